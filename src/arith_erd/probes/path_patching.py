"""Which heads bring which operand bits to a position of the answer? Path patching (Goldowsky-Dill et al., 2023)."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from ..bits import ONE, ZERO
from ..errors import UserError
from ..interp.hooked import Hooked
from ..interp.interventions import Replace
from ..mechanism.place_value import ColumnSums, generator, random_inputs
from ..plots.style import headline, heat_map, set_title, subplots
from .probe import OneOrMore, Positive, Probe, in_text


class PathPatching(Probe):
    """Patch one head at position t from a run in which bit i of an operand is inverted; keep all later attention.

    Prefixes are random with 0 <= c < 1 (`mechanism.place_value`), and a_t = b_t = 0. The prefix and the later attention
    outputs at position t are those of the base run. So the change takes the direct path from the head to the logits,
    through feed-forward layers and norms only.

    A row is one head (``site`` and ``head``, from 1) for answer bit ``bit`` = t and operand bit ``place`` = i, of a or
    b. ``effect`` is the mean change of the logit of 1 minus that of 0, with opposite sign if bit i becomes 0. ``whole``
    is the same if bit i is inverted for the whole network. The effects of all heads need not add up to it.

    Args:
        bits: answer bits t, one or several; None for all bits with a column, from 2 on.
        pairs: examples for each t.

    Raises:
        UserError: if the task is not addition in base 2, lowest bit first, or the network has no heads.
    """

    columns = ("seed", "bit", "place", "site", "head", "effect", "whole", "n")

    def __init__(self, models: Sequence[Hooked], bits: OneOrMore[int] | None = None, pairs: Positive = 128) -> None:
        self.models, self.task, self.pairs = models, models[0].task, pairs
        self.sums = ColumnSums(self.task)
        if not self.sums.adds:
            raise UserError(f"probe=path_patching: received task={self.task.name}; expected an addition")
        self.bits = [bits] if isinstance(bits, int) else list(bits or range(2, self.task.bits))
        if wrong := [t for t in self.bits if not 1 <= t < self.task.width]:
            raise UserError(f"probe.bits={wrong[0]}: expected bits of the answer, 1 to {self.task.width - 1}")
        self.sites = [name for name in models[0].sites if name.startswith("dec.") and name.endswith("attn.z")]
        if not self.sites:
            raise UserError(f"probe=path_patching: {models[0].name} has no attention; expected a network that has")

    @torch.no_grad()
    def rows(self) -> Iterator[dict[str, Any]]:
        for model in self.models:
            for t in self.bits:
                yield from (self.row(model.seed, t, *measured) for measured in self._effects(model, t))

    def _effects(self, model: Hooked, t: int) -> Iterator[tuple[int, str, int, float, float, int]]:
        rng = generator("paths", t)
        drawn = random_inputs(rng, self.sums, t, 40 * self.pairs, empty=True)
        base = drawn.chosen(np.flatnonzero((drawn.c >= 0) & (drawn.c < 1))[: self.pairs])
        inputs = model.inputs(base.tensors())
        outputs = [site.replace("attn.z", "attn_out") for site in self.sites]
        logits, cache = model.run_with_cache(inputs, [*self.sites, *outputs])
        turned = rng.integers(0, 2, len(base.a))
        for place in range(t):
            a, b = (x ^ ((turned == i) << place) for i, x in enumerate((base.a, base.b)))
            chosen = np.where(turned == 0, a, b) >> place & 1
            up = torch.from_numpy(2 * chosen - 1).to(logits.device)  # 1 where the bit becomes 1
            prompt = model.inputs(self.task.examples(a, b))[0]
            other, given = model.run_with_cache((prompt, inputs[1]), self.sites)

            def effect(found: torch.Tensor, up: torch.Tensor = up) -> float:
                change = (found - logits)[:, -1, ONE] - (found - logits)[:, -1, ZERO]
                return float((change * up).double().mean())

            whole = effect(other)
            for i, site in enumerate(self.sites):
                later = [Replace(name, t, cache[name][:, t]) for name in outputs[i + 1 :]]
                for head in range(cache[site].shape[2]):
                    z = cache[site][:, t].clone()  # (N, nh, hs)
                    z[:, head] = given[site][:, t, head]
                    patched = model.run(inputs, [Replace(site, t, z), *later])
                    yield place, site.removesuffix(".z"), head + 1, effect(patched), whole, len(base.a)

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The ten strongest heads for the highest answer bit measured."""
        wide = relative_effects(rows)
        return in_text(wide.loc[wide.abs().max(axis=1).nlargest(10).index])

    def figure(self, rows: pd.DataFrame) -> Figure:
        wide = relative_effects(rows)
        strongest = wide.abs().max(axis=1).nlargest(16).index
        shown = wide[wide.index.isin(strongest)]
        figure, ax = subplots(2.6 + 0.6 * len(shown.columns), 1.4 + 0.3 * len(shown))
        norm = Normalize(0, max(0.1, shown.to_numpy().max()))
        labels = [f"{site.removeprefix('dec.')}, head {head}" for site, head in shown.index]
        heat_map(ax, shown.set_axis(labels), norm, numbers=".2f")
        t = rows["bit"].max()
        ax.set_xlabel("operand bit i")
        headline(ax, f"Effect on bit {t}", f"1: that of operand bit {t - 1} as a whole")
        set_title(figure, self.task.name, "which heads bring which bits?", rows)
        return figure


def relative_effects(rows: pd.DataFrame) -> pd.DataFrame:
    """Effects (heads, places) on the highest measured bit t, relative to the whole effect of operand bit t - 1."""
    t = rows["bit"].max()
    top = rows[rows["bit"] == t]
    unit = top.loc[top["place"] == t - 1].groupby("seed")["whole"].first()
    relative = top["effect"] / top["seed"].map(unit)
    return top.assign(effect=relative).pivot_table("effect", ["site", "head"], "place", sort=False)
