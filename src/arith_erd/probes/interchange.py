"""Which variable does each position pass to later layers?"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import pandas as pd
from matplotlib.figure import Figure
from pydantic import Field

from ..interp.causal_model import CausalModelSpec, build_causal_model
from ..interp.counterfactuals import FamilySpec, distinguishable, own_families, require_distinct, suggested_families
from ..interp.hooked import Hooked
from ..interp.interchange import patching_effects
from ..interp.sites import chosen_sites
from ..plots.style import headline, heat_map, set_title, subplots
from .probe import Natural, OneOrMore, Positive, Probe, in_text, listed, weighted

COLOURS = {"prompt": "Blues", "answer": "Greens", "": "Greys"}


class Interchange(Probe):
    """Replace the activation at a position by one from another run. Which causal variable predicts the new answer?

    A row is a site, a position, a family of pairs and the ``answer`` token that is read: at a site with the answer's
    positions the token that the position predicts, elsewhere each token. The pairs of the family ``carry`` differ in
    the carry alone. ``flipped`` is the share of the ``n`` answers that change. ``iia_VARIABLE`` (interchange
    intervention accuracy) is the share of answers that a variable of the causal model predicts. If ``iia_carry`` is
    high, the position passed on only the carry into t; if ``iia_sum`` is, everything that determines bit t; if
    ``iia_none`` is, nothing; if ``iia_token`` is (at sites with the prompt), its token.

    Args:
        causal_model: a hypothesis of yours (`interp.causal_model.build_causal_model`); None for the task's own.
        variable: a variable of the causal model or a list; None for all that predict different answers.
        families: name -> the variables that differ between the runs of a pair (``vary``) and those that are equal
            (``keep``); None for one family for each variable, in which it alone differs.
        sample: number of base runs, the same runs for every site, position and family.

    Raises:
        UserError: for an unknown site or variable, or variables that no pair of runs distinguishes.
    """

    def __init__(
        self,
        models: Sequence[Hooked],
        site: OneOrMore[str] = "all",
        variable: OneOrMore[str] | None = None,
        sample: Positive = 64,
        seed: Natural = 0,
        causal_model: CausalModelSpec = None,
        families: Annotated[Mapping[str, FamilySpec], Field(min_length=1)] | None = None,
    ) -> None:
        self.models, self.sample, self.seed = models, sample, seed
        self.causal_model = build_causal_model(models[0].task, causal_model, "probe.causal_model")
        self.sites = chosen_sites(models, site)
        self.variables = distinguishable(self.causal_model) if variable is None else listed(variable)
        if variable is not None:
            require_distinct(self.causal_model, self.variables, "probe.variable")
        if families is None:
            self.families = suggested_families(self.causal_model, None if variable is None else self.variables)
        else:
            self.families = own_families(self.causal_model, families, "probe.families")
        self.unpaired = [n for n in listed(variable or ()) if families is None and n not in self.families]
        self.measures = ["flipped", *(f"iia_{name}" for name in ("none", *self.variables, "token"))]
        self.columns = ("seed", "site", "position", "family", "answer", "n", *self.measures)

    def rows(self) -> Iterator[dict[str, Any]]:
        arguments = (self.causal_model, self.families, self.variables, self.sites, self.sample, self.seed)
        for model in self.models:
            yield from ({"seed": model.seed} | row for row in patching_effects(model, *arguments))

    def notes(self) -> list[str]:
        return [
            *(
                f"no pairs differ in {name} alone: no other variable beside it affects the answer"
                for name in self.unpaired
            ),
            "patching a whole activation cannot distinguish a value from a carry and an xor passed on together; "
            "probe=subspaces and probe=dose can",
        ]

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        decoder = rows[rows["site"].str.startswith("dec.")]
        shown = decoder if len(decoder) else rows
        means = weighted(shown, ["site", "family"], self.measures).dropna(axis=1, how="all")
        return in_text(means.rename(columns=lambda name: name.removeprefix("iia_")))

    def figure(self, rows: pd.DataFrame) -> Figure:
        task = self.models[0].task
        names = list(dict.fromkeys(rows["family"]))
        prompt = rows["iia_token"].notna().groupby(rows["site"]).any()
        own = (rows["position"] == rows["answer"]).groupby(rows["site"]).all()  # each position predicts a token
        holds = {site: "prompt" if prompt[site] else "answer" if own[site] else "" for site in rows["site"].unique()}
        stacks = {str(kind): part for kind, part in rows.groupby(rows["site"].map(holds), sort=False)}
        widths = [part["position"].nunique() for part in stacks.values()]
        height = max(part["site"].nunique() for part in stacks.values())
        shape = 1.5 + 0.38 * max(sum(widths), 18), 0.7 + (0.75 + 0.2 * height) * len(names)
        figure, grid = subplots(*shape, len(names), len(stacks), squeeze=False, width_ratios=widths)
        places = {"prompt": task.prompt_names, "answer": task.answer_names, "": []}
        for line, family in zip(grid, names, strict=True):
            for ax, (stack, part) in zip(line, stacks.items(), strict=True):
                here = weighted(part[part["family"] == family], ["site", "position"], ["flipped"])["flipped"]
                table = here.unstack("position").reindex(columns=sorted(part["position"].unique())).iloc[::-1]
                table = table.rename(columns=dict(enumerate(places[stack])))
                heat_map(ax, table, cmap=COLOURS[stack], numbers=".2f")
            kept = self.families[family].keep
            headline(line[0], family, f"{', '.join(kept)} the same" if self.families[family].vary and kept else "")
        set_title(figure, task.name, "answers that change when one position is patched from another run", rows)
        return figure
