"""Which low-dimensional subspace carries a causal variable? Distributed alignment search."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import pandas as pd

from ..config.causal_models import CausalModelSpec, build_causal_model
from ..errors import UserError, bad_value
from ..interp.causal_model import distinguishable_variables, require_distinguishable
from ..interp.das import DASConfig
from ..interp.das_controls import ANGLE_COLUMNS, ControlledDAS
from ..interp.hooked import Hooked
from ..plots.curves import EpochCurves
from ..plots.panels import Dots
from ..plots.style import BLUE, GREY, INK, ORANGE
from .probe import IN_FILE, Count, Natural, NetworkProbe, OneOrMore, as_list, format_cells, select_sites

CONTROL_COLUMNS = ("iia_random", "iia_random_max", "iia_flipped", "iia_flipped_max", "iia_untrained", "iia_decoy")
TABLE_COLUMNS = {"iia": "iia", "gap": "gap", "iia_random_max": "random", "iia_flipped_max": "flipped"}
TABLE_COLUMNS |= {"iia_untrained": "untrained", "full_patch": "full patch"}
TABLE_COLUMNS |= {"angle_least_squares": "angle LS", "angle_leace": "angle LEACE"}
BAR_STYLES = {
    ("iia_random", "iia_random_max"): (GREY, "random directions: mean to best"),
    ("iia_flipped", "iia_flipped_max"): (ORANGE, "same variance, other signs: mean to best"),
}
MARK_STYLES: dict[str, tuple[str, dict[str, Any]]] = {
    "no_intervention": ("no intervention", {"color": GREY, "marker": "|", "markersize": 9}),
    "iia_untrained": ("untrained network", {"color": INK, "marker": "x", "markersize": 5}),
    "iia_decoy": ("control network", {"color": INK, "marker": "+", "markersize": 7}),
    "full_patch": ("whole activation", {"color": INK, "marker": "D", "markerfacecolor": "none", "markersize": 7}),
    "iia": ("the subspace found", {"color": BLUE, "marker": "o", "markersize": 7}),
}


class Subspaces(NetworkProbe):
    """Search for a subspace whose interchange between runs acts like a causal variable's, with controls.

    A row is a variable at one position of a site, and a subspace of one rank. Positions of the answer are indices or
    names (``r4``); those of the prompt, in a decoder-only network, are names (``a4``). ``iia`` is the balanced
    interchange-intervention accuracy on test pairs, which share no operand with the training pairs. ``gap`` is the
    accuracy on training pairs minus ``iia``. `interp.das_controls.ControlledDAS.evaluate` describes the other columns.
    Angles are in degrees, between the subspace and the directions that probes read.

    ``sum`` at position t predicts bit t of the source's sum, so a late layer that holds only this bit scores high at
    rank 1. A number is stored only if `probe=dose` succeeds too. ``sum_mod`` predicts the same bit, but its search
    starts from other directions.
    """

    columns = (
        *("seed", "site", "position", "variable", "rank", "span", "chosen", "train", "validation", "iia", "gap"),
        *("no_intervention", "full_patch", *CONTROL_COLUMNS, *ANGLE_COLUMNS),
    )

    picture = Dots(
        *("iia", "", "variable", "panel"),
        title="does interchanging a few directions act like interchanging the variable?",
        xlabel="answers that the variable predicts",
        marks=MARK_STYLES,
        bars=BAR_STYLES,
    )

    site: OneOrMore[str] | None = IN_FILE
    position: OneOrMore[Natural | str] | None = IN_FILE
    variable: OneOrMore[str] | None = IN_FILE
    rank: OneOrMore[Count] = IN_FILE
    num_train: Count = IN_FILE
    num_validation: Count = IN_FILE
    num_test: Count = IN_FILE
    steps: Count = IN_FILE
    num_controls: Count = IN_FILE
    seed: Natural = IN_FILE
    causal_model: CausalModelSpec = IN_FILE

    def __post_init__(self) -> None:
        task, self.sites = self.task, select_sites(self.models, self.site)
        self.hypothesis = build_causal_model(task, self.causal_model, "probe.causal_model")
        self.positions = as_list(task.width // 2 if self.position is None else self.position)
        self.variables = None if self.variable is None else as_list(self.variable)
        self.config = DASConfig(
            self.num_train, self.num_validation, self.num_test, self.steps, num_controls=self.num_controls
        )
        for name, at in product(self.sites, self.positions):
            if at != "all" and name.startswith("enc."):
                raise UserError(f"probe.position={at}: expected all at {name}; this probe takes the encoder as a whole")
            if at not in ("all", *range(task.width), *task.answer_names, *task.prompt_names):
                accepted = f"an integer from 0 to {task.width - 1}, a name such as r1 or a0, a list of them, or all"
                raise bad_value("probe.position", at, accepted)
        tokens = {name: t for t, name in enumerate(task.answer_names)}
        scored = [tokens.get(at, at) for at in self.positions]
        digits = [task.answer_digits[t] if isinstance(t, int) else None for t in scored]
        for name in self.variables or ():
            require_distinguishable(self.hypothesis, [name], "probe.variable", digits)
        if "all" in self.positions and not (self.variables or self.hypothesis.answer_variable):
            raise UserError(f"probe.position=all: task={task.name} has no value; expected variables in probe.variable")

    def measure(self, model: Hooked) -> Iterator[dict[str, Any]]:
        for site, position in product(self.sites, self.positions):
            index = None if position == "all" else position
            search = ControlledDAS(model, self.hypothesis, site, index, self.config, self.seed)
            value = [self.hypothesis.answer_variable]
            default = value if position == "all" else distinguishable_variables(self.hypothesis)
            for variable in self.variables or default:
                for scores in search.evaluate(variable, as_list(self.rank)):
                    yield scores | {"site": site, "position": position, "variable": variable}

    def notes(self) -> list[str]:
        digit, value = self.task.digit_word, self.hypothesis.answer_variable
        also = f"a layer that holds just {digit} t also scores high for the {value} at rank 1; " if value else ""
        return [
            f"only linear subspaces are searched; {also}if span is no larger than rank, every variable scores high, "
            "since the subspace is the whole space",
            "angles, in degrees: to the weights of a least-squares probe (LS) and to the directions that LEACE erases",
        ]

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        chosen = rows[rows["chosen"] == 1]
        means = chosen.groupby(["site", "position", "variable"], sort=False)[["rank", *TABLE_COLUMNS]].mean()
        return format_cells(means.rename(columns=TABLE_COLUMNS), ".3g")

    def epoch_curves(self, rows: pd.DataFrame) -> EpochCurves:
        chosen = rows[rows["chosen"] == 1]  # the rank can change from epoch to epoch
        return EpochCurves.from_rows(chosen, "iia", ("variable", "position"), "site", "interchange accuracy")

    def shown(self, rows: pd.DataFrame) -> pd.DataFrame:
        chosen = rows[rows["chosen"] == 1]
        of_variable = chosen.groupby(["site", "position", "variable"])[["rank", "span"]].transform("mean")
        sizes = [f"{rank:.3g} of {span:.3g}" for rank, span in of_variable.to_numpy()]
        return chosen.assign(
            variable=chosen["variable"] + ", rank " + pd.Series(sizes, chosen.index),
            panel=chosen["site"] + ", position " + chosen["position"].astype(str),
        )
