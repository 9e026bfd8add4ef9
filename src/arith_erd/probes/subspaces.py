"""Which low-dimensional subspace carries a causal variable? Distributed alignment search."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, Literal

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..errors import UserError, bad_value
from ..interp.causal_model import CausalModelSpec, build_causal_model
from ..interp.counterfactuals import distinguishable, require_distinct
from ..interp.das import ANGLES, ControlledDAS, DASConfig
from ..interp.hooked import Hooked
from ..interp.interchange import digit_index
from ..interp.sites import chosen_sites
from ..plots.curves import EpochCurves
from ..plots.style import BLUE, GREY, INK, ORANGE, grid, headline, legend_below, set_title, tidy
from .probe import Natural, OneOrMore, Positive, Probe, in_text, listed

CONTROLS = ("iia_random", "iia_random_max", "iia_flipped", "iia_flipped_max", "iia_untrained", "iia_decoy")
SHOWN = {"iia": "iia", "iia_random_max": "random", "iia_flipped_max": "flipped", "iia_untrained": "untrained"}
SHOWN |= {"full_patch": "full patch", "angle_least_squares": "angle LS", "angle_leace": "angle LEACE"}
BARS = {
    "iia_random": (-0.14, GREY, "random directions: mean to best"),
    "iia_flipped": (0.14, ORANGE, "same variance, other signs: mean to best"),
}
MARKS: dict[str, tuple[str, dict[str, Any]]] = {
    "iia_untrained": ("x", {"color": INK, "markersize": 5, "label": "untrained network"}),
    "iia_decoy": ("+", {"color": INK, "markersize": 7, "label": "control network"}),
    "full_patch": ("D", {"color": INK, "markerfacecolor": "none", "markersize": 7, "label": "whole activation"}),
    "iia": ("o", {"color": BLUE, "markersize": 7, "label": "the subspace found"}),
}


class Subspaces(Probe):
    """Search for a subspace whose interchange between runs acts like that of a causal variable, with controls.

    A row is a variable at one position of a site, and a subspace of one rank. ``iia`` is the balanced
    interchange-intervention accuracy on test pairs, which share no operand with the training pairs. The other columns
    are those of `evaluate`, `controls`, `negative_controls` and `angles` of `interp.das.ControlledDAS`. Angles are in
    degrees, between the subspace and the directions that probes read.

    ``sum`` at position t predicts bit t of the source's sum, so a late layer that holds only this bit scores high at
    rank 1. A number is stored only if `probe=dose` succeeds too. ``sum_mod`` predicts the same bit, but its search
    starts from other directions.

    Args:
        site: a site, a list of sites, or ``all`` layers; None for the middle layer of the decoder.
        causal_model: a hypothesis of yours (`interp.causal_model.build_causal_model`); None for the task's own.
        position: a position of the answer, a list, or ``all``: every position of the site together; None for the
            middle one.
        variable: a variable of the causal model or a list; None for all that predict different answers, or with
            ``all`` positions for the value.
        train, validation, test, steps: see `interp.das.DASConfig`; ``random`` is its ``controls``.

    Raises:
        UserError: for an unknown site, position, variable or rank, or a variable whose interchange changes no answer.
    """

    columns = (
        *("seed", "site", "position", "variable", "rank", "span", "chosen", "train", "validation", "iia"),
        *("no_intervention", "full_patch", *CONTROLS, *ANGLES),
    )

    def __init__(
        self,
        models: Sequence[Hooked],
        site: OneOrMore[str] | None = None,
        position: OneOrMore[Natural | Literal["all"]] | None = None,
        variable: OneOrMore[str] | None = None,
        rank: OneOrMore[Positive] = (1, 2),
        train: Positive = 1000,
        validation: Positive = 500,
        test: Positive = 500,
        steps: Positive = 50,
        random: Positive = 20,
        seed: Natural = 0,
        causal_model: CausalModelSpec = None,
    ) -> None:
        self.models, self.seed = models, seed
        task = models[0].task
        self.causal_model = build_causal_model(task, causal_model, "probe.causal_model")
        self.sites = chosen_sites(models, site)
        self.positions = listed(task.width // 2 if position is None else position)
        self.variables = None if variable is None else listed(variable)
        self.ranks = listed(rank)
        self.config = DASConfig(train, validation, test, steps, controls=random)
        for name, at in product(self.sites, self.positions):
            if at != "all" and name.startswith("enc."):
                raise UserError(f"probe.position={at}: expected all at {name}; only the decoder has single positions")
            if at != "all" and at >= task.width:
                raise bad_value("probe.position", at, f"an integer from 0 to {task.width - 1}, a list of them, or all")
        digits = [None if at == "all" else digit_index(task, at) for at in self.positions]
        for name in self.variables or ():
            require_distinct(self.causal_model, [name], "probe.variable", digits)
        if "all" in self.positions and not (self.variables or self.causal_model.answer_variable):
            raise UserError(f"probe.position=all: task={task.name} has no value; expected variables in probe.variable")

    def rows(self) -> Iterator[dict[str, Any]]:
        for model in self.models:
            for site, position in product(self.sites, self.positions):
                at = None if position == "all" else position
                search = ControlledDAS(model, self.causal_model, site, at, self.config, self.seed)
                whole = [self.causal_model.answer_variable]
                default = whole if position == "all" else distinguishable(self.causal_model)
                for variable in self.variables or default:
                    for found in search.evaluate(variable, self.ranks):
                        found |= {"seed": model.seed, "site": site, "position": position, "variable": variable}
                        yield {name: found.get(name) for name in self.columns}

    def notes(self) -> list[str]:
        return [
            "only linear subspaces are searched; a layer that holds just bit t also scores high for the sum at rank 1; "
            "if span is no larger than rank, every variable does, since the subspace is the whole space",
            "angles, in degrees: to the weights of a least-squares probe (LS) and to the directions that LEACE erases",
        ]

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        chosen = rows[rows["chosen"] == 1]
        means = chosen.groupby(["site", "position", "variable"], sort=False)[["rank", *SHOWN]].mean()
        return in_text(means.rename(columns=SHOWN), ".3g")

    def epoch_curves(self, rows: pd.DataFrame) -> EpochCurves:
        chosen = rows[rows["chosen"] == 1]
        return EpochCurves.of(chosen, "iia", ("variable", "position"), "site", "interchange accuracy")

    def figure(self, rows: pd.DataFrame) -> Figure:
        panels = list(rows[rows["chosen"] == 1].groupby(["site", "position"], sort=False))
        across = min(len(panels), 3)
        height = 0.8 + 0.42 * max(part["variable"].nunique() for _, part in panels)
        shape = 1.6 + 3.6 * max(across, 2), 1.8 + height * -(-len(panels) // across)
        figure, axes = grid(*shape, len(panels), across)
        for ax, ((site, position), part) in zip(axes, panels, strict=True):
            _panel(ax, part.groupby("variable", sort=False).mean(numeric_only=True))
            headline(ax, site, f"position {position}")
        legend_below(figure, columns=3)
        asked = "does interchanging a few directions act as interchanging the variable?"
        set_title(figure, self.causal_model.task.name, asked, rows)
        return figure


def _panel(ax: Axes, means: pd.DataFrame) -> None:
    at = range(len(means))
    for kind, (offset, colour, label) in BARS.items():
        width = means[f"{kind}_max"] - means[kind]
        ax.barh([y + offset for y in at], width, left=means[kind], height=0.2, color=colour, alpha=0.5, label=label)
    for kind, (marker, look) in MARKS.items():
        if kind in means:  # the control network only where there is one
            ax.plot(means[kind], at, marker, linestyle="", **look)
    for y, (_, row) in enumerate(means.iterrows()):
        ax.text(1.06, y, f"rank {row['rank']:.3g} of {row['span']:.3g}", va="center", fontsize=7, color=INK)
    ax.axvline(0.5, color=GREY, linewidth=0.8, linestyle=":")
    tidy(ax, "x")
    ax.set_yticks(list(at), list(means.index))
    ax.set(xlim=(0.25, 1.4), ylim=(len(means) - 0.5, -0.5), xticks=[0.25, 0.5, 0.75, 1.0])
    ax.set_xlabel("answers as the variable predicts (0.5: no intervention)", fontsize=9)
    ax.grid(visible=False, axis="y")
