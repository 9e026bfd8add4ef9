"""Which variable does each position of each layer hand on?"""

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from ..errors import require_integer
from ..interp.activations import chosen_sites
from ..interp.causal import CausalTask
from ..interp.subject import Subject
from ..interp.transmission import models_of, transmissions
from ..plots.interchange import draw_transmissions
from .probe import Probe


class Interchange(Probe):
    """Put the embedding of one position into another pair's run, and see which causal model predicts the answer.

    A row is a site, a position of it, a family of pairs (`interp.pairs.FAMILIES`) and the bit ``answer`` that is read:
    in the decoder the one that the position predicts, in the encoder each. ``flipped`` is the share of the ``n``
    answers that change. Of each causal model there is ``iia_*`` (interchange-intervention accuracy): the share of
    answers that it predicts, beside ``floor_*``, the same with nothing exchanged, and ``ceiling_*``, with every
    position of the site exchanged. ``iia_carry`` says that the carry into t came along and nothing else; ``iia_sum``
    that all came along that bit t of the answer hangs on; ``iia_none`` that nothing did; ``iia_token``, in the encoder,
    that the prompt's token did.

    Take ``3 + 5`` at three bits and ``1 + 4``: at t = 1 the operands' bits have xor 1 and 0, the carries are 1 and 0.
    If the embedding of ``1 + 4`` at ``dec.2`` makes ``3 + 5`` answer 1 at t = 1, then the carry came alone:
    1 ^ 0 = 1. If it answers 0, then nothing did, or all.

    One position's whole embedding cannot tell a value from a carry and an xor that travel together: both give the
    source's bit. It tells where and when each is there. `probe=subspaces` tells them apart.

    Args:
        subjects: trained replicas of one task.
        site: a name, a list of them, or ``all``.
        sample: pairs whose runs are changed, the same everywhere.
        seed: of those and of their sources.

    Raises:
        UserError: for a site that is not there, or an answer written in plain order.
    """

    def __init__(
        self, subjects: Sequence[Subject], site: str | Sequence[str] = "all", sample: int = 64, seed: int = 0
    ) -> None:
        require_integer("probe.sample", sample, 1)
        require_integer("probe.seed", seed, 0)
        self.subjects = subjects
        self.pairs = CausalTask(subjects[0].task)
        self.sites = chosen_sites([subject.network for subject in subjects], site)
        self.sample = sample
        self.seed = seed
        measures = [f"{kind}_{model}" for kind in ("iia", "floor", "ceiling") for model in models_of(self.pairs)]
        where = ("seed", "site", "position", "family", "answer", "n")
        self.columns = (*where, "flipped", "flipped_later", *measures)

    def rows(self) -> Iterator[dict[str, Any]]:
        for subject in self.subjects:
            for row in transmissions(subject.network, self.pairs, self.sites, self.sample, self.seed):
                yield {"seed": subject.seed} | row

    def notes(self) -> list[str]:
        """What the rows cannot tell."""
        return [
            "the whole embedding of one position cannot tell a value from a carry and an xor that travel together; "
            "probe=subspaces and probe=dose can"
        ]

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        """By site and family, over all positions: how many answers change, and who predicted them."""
        shown = ["flipped", *(f"iia_{model}" for model in models_of(self.pairs))]
        whole = rows[shown].mul(rows["n"], axis=0).assign(site=rows["site"], family=rows["family"], n=rows["n"])
        if (rows["site"].str.startswith("dec.")).any():
            whole = whole[rows["site"].str.startswith("dec.")]
            shown.remove("iia_token")
        sums = whole.groupby(["site", "family"], sort=False).sum()
        shares = sums[shown].div(sums["n"], axis=0)
        return shares.map(lambda x: f"{x:.2f}").rename(columns=lambda name: name.removeprefix("iia_")).reset_index()

    def figure(self, rows: pd.DataFrame) -> Figure:
        """Answers that change by layer and position, a panel for each family of pairs and each stack."""
        return draw_transmissions(rows, self.subjects[0].task.name, self.subjects[0].task.bits)
