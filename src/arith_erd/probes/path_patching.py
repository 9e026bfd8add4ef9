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
from ..mechanism.prefixes import require_binary
from ..plots.style import canvas, headline, heat_map, question
from .probe import Natural, Positive, Probe, sample_pairs


class PathPatching(Probe):
    """Give one head, at position t, what it gives if bit i of an operand is inverted; keep all later attention.

    The prefix stays the same, and the position's later attention outputs stay those of the base run, so the change
    takes the direct path from the head to the logits, through feed-forward layers and norms only. ``share`` is the
    change of the logit difference between 1 and 0 over the change if bit i is inverted for the whole network, added up
    over ``n`` pairs; the shares of all heads need not add up to 1.

    A row is one head (``site`` and ``head``, from 1) for one answer bit ``bit`` = t and one operand bit ``place`` = i,
    of a and b alike.

    Args:
        bits: answer bits t, one or several; None for all above 1.
        pairs: examples for each t and i.

    Raises:
        UserError: for a task without two binary operands, lowest bit first, or a network without heads.
    """

    columns = ("seed", "bit", "place", "site", "head", "share", "n")

    def __init__(
        self,
        subjects: Sequence[Hooked],
        bits: int | Sequence[int] | None = None,
        pairs: Positive = 64,
        seed: Natural = 0,
    ) -> None:
        self.subjects, self.task, self.seed = subjects, subjects[0].task, seed
        require_binary(self.task)
        self.bits = [bits] if isinstance(bits, int) else list(bits or range(2, self.task.width))
        if wrong := [t for t in self.bits if not 0 <= t < self.task.width]:
            raise UserError(f"probe.bits={wrong[0]}: expected bits of the answer, 0 to {self.task.width - 1}")
        self.sites = [name for name in subjects[0].sites if name.startswith("dec.") and name.endswith("attn.z")]
        if not self.sites:
            raise UserError(f"probe=path_patching: {subjects[0].name} has no attention; expected a network that has")
        self.pairs = sample_pairs(self.task, pairs, seed)

    @torch.no_grad()
    def rows(self) -> Iterator[dict[str, Any]]:
        for subject in self.subjects:
            for t in self.bits:
                for place in range(min(t + 1, self.task.bits)):
                    for site, head, share in self._shares(subject, t, place):
                        yield self.row(subject.seed, t, place, site, head, share, len(self.pairs))

    def _shares(self, subject: Hooked, t: int, place: int) -> Iterator[tuple[str, int, float]]:
        prompt, answer_in = subject.inputs(self.pairs)
        answer_in = answer_in[:, : t + 1]
        operands, rng = self.pairs.operands.copy(), np.random.default_rng([self.seed, t, place])
        chosen = np.arange(len(operands)), rng.integers(0, 2, len(operands))
        operands[chosen] ^= 1 << place
        up = torch.from_numpy(2 * (operands[chosen] >> place & 1) - 1).to(subject.device)  # 1 if the bit becomes 1
        source = subject.inputs(self.task.examples(*operands.T))[0]
        outputs = [site.replace("attn.z", "attn_out") for site in self.sites]
        logits, base = subject.run_with_cache((prompt, answer_in), [*self.sites, *outputs])
        other, given = subject.run_with_cache((source, answer_in), self.sites)

        def change(found: torch.Tensor) -> float:
            difference = (found - logits)[:, -1, ONE] - (found - logits)[:, -1, ZERO]
            return float((difference * up).double().sum())

        whole = change(other)
        for i, site in enumerate(self.sites):
            later = [Replace(name, t, base[name][:, t]) for name in outputs[i + 1 :]]
            for head in range(base[site].shape[2]):
                z = base[site][:, t].clone()  # (N, nh, hs)
                z[:, head] = given[site][:, t, head]
                patched = subject.run((prompt, answer_in), [Replace(site, t, z), *later])
                yield site.removesuffix(".z"), head + 1, change(patched) / whole

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The ten heads with the largest share of any bit, for the highest answer bit measured."""
        wide = self._wide(rows)
        return wide.loc[wide.abs().max(axis=1).nlargest(10).index].map("{:.2f}".format).reset_index()

    def figure(self, rows: pd.DataFrame) -> Figure:
        wide = self._wide(rows)
        strong = wide.loc[sorted(wide.abs().max(axis=1).nlargest(16).index, key=list(wide.index).index)]
        figure = canvas(2.2 + 0.6 * len(strong.columns), 1.4 + 0.3 * len(strong))
        ax = figure.subplots()
        labels = [f"{site.removeprefix('dec.')}, head {head}" for site, head in strong.index]
        heat_map(ax, strong.to_numpy(), labels, [f"{name}" for name in strong.columns], Normalize(0, 1), numbers=".2f")
        ax.set_xlabel("operand bit i")
        headline(ax, f"Share of the effect on bit {rows['bit'].max()}", "16 strongest heads")
        question(figure, self.task.name, "which heads bring which bits?", rows)
        return figure

    def _wide(self, rows: pd.DataFrame) -> pd.DataFrame:
        top = rows[rows["bit"] == rows["bit"].max()]
        return top.groupby(["site", "head", "place"], sort=False)["share"].mean().unstack("place")
