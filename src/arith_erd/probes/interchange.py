"""Which variable does each position pass to later layers?"""

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
    """Replace the embedding of a position by one from another run. Which causal model predicts the new answer?

    A row is a site, a position of it, a family of pairs (`interp.pairs.FAMILIES`) and the bit ``answer`` that is read:
    in the decoder the one that the position predicts, in the encoder each. ``flipped`` is the share of the ``n``
    answers that change. Each causal model has ``iia_*`` (interchange-intervention accuracy), the share of answers that
    it predicts; ``floor_*``, the same with nothing exchanged; and ``ceiling_*``, with every position of the site
    exchanged. High ``iia_carry``: the exchange transferred only the carry into t. High ``iia_sum``: everything that
    determines bit t. High ``iia_none``: nothing. High ``iia_token``, in the encoder: the prompt's token.

    Take ``3 + 5`` at three bits and ``1 + 4``: at t = 1 the operands' bits have xor 1 and 0, the carries are 1 and 0.
    If the embedding of ``1 + 4`` at ``dec.2`` makes ``3 + 5`` answer 1 at t = 1, then only the carry was transferred:
    1 ^ 0 = 1. An answer of 0 means nothing or everything was.

    Whole embeddings cannot distinguish a value from a carry and an xor that are transferred together: both give the
    source's bit. The probe shows at which position and layer they are present; `probe=subspaces` separates them.

    Args:
        subjects: trained replicas of one task.
        site: a name, a list of them, or ``all``.
        sample: number of pairs whose runs are changed, the same everywhere.
        seed: of these pairs and their sources.

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
        """What the rows cannot show."""
        return [
            "the whole embedding of one position cannot distinguish a value from a carry and an xor that are "
            "transferred together; probe=subspaces and probe=dose can"
        ]

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        """By site and family, over all positions: the share of changed answers, and each causal model's accuracy."""
        shown = ["flipped", *(f"iia_{model}" for model in models_of(self.pairs))]
        whole = rows[shown].mul(rows["n"], axis=0).assign(site=rows["site"], family=rows["family"], n=rows["n"])
        if (rows["site"].str.startswith("dec.")).any():
            whole = whole[rows["site"].str.startswith("dec.")]
            shown.remove("iia_token")
        sums = whole.groupby(["site", "family"], sort=False).sum()
        shares = sums[shown].div(sums["n"], axis=0)
        return shares.map(lambda x: f"{x:.2f}").rename(columns=lambda name: name.removeprefix("iia_")).reset_index()

    def figure(self, rows: pd.DataFrame) -> Figure:
        """Answers that change by layer and position, one panel for each family of pairs and each stack."""
        return draw_transmissions(rows, self.subjects[0].task.name, self.subjects[0].task.bits)
