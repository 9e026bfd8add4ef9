"""Does a value copied from one answer position work at another?"""

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from ..errors import bad_value, require_integer
from ..interp.activations import chosen_sites
from ..interp.subject import Subject
from ..interp.transfer import METHODS, transfers
from ..plots.dose import draw_transfers
from .dose import chosen_methods, valued
from .probe import Probe


class Transfer(Probe):
    """Copy the embedding along the value's directions from position t of another run to position t'.

    If all positions store the same number S in the same directions, the answer at t' becomes bit t' of the other run's
    sum. At three bits, copy the value of ``1 + 4`` at position 0 to position 2 of ``3 + 5``: the answer there becomes 1
    (5 is ``1010``), where 8 has 0. A row is a pair of positions; ``iia`` is balanced as in ``probe=subspaces``: 0.5
    without any exchange. With ``pair=same`` the number comes from position t of the same run, and the answer should not
    change.

    Args:
        subjects: trained replicas of one task that has a value.
        site: a decoder layer, or a list of them.
        method: ``slope``, ``das`` or ``whole``, or a list of them.
        sample: number of couples.
        seed: of the couples and the searches.

    Raises:
        UserError: for a site or method that is not there, a task without a value, or an answer in plain order.
    """

    columns = ("seed", "site", "method", "source", "position", "pair", "n", "iia", "floor")

    def __init__(
        self,
        subjects: Sequence[Subject],
        site: str | Sequence[str] = "dec.3",
        method: str | Sequence[str] = ("slope", "das"),
        sample: int = 200,
        seed: int = 0,
    ) -> None:
        require_integer("probe.sample", sample, 1)
        require_integer("probe.seed", seed, 0)
        self.subjects = subjects
        self.pairs = valued(subjects[0])
        self.sites = chosen_sites([subject.network for subject in subjects], site)
        for name in self.sites:
            if name.startswith("enc."):
                raise bad_value("probe.site", name, "sites of the decoder, whose positions answer one bit each")
        self.methods = chosen_methods(method, METHODS)
        self.sample = sample
        self.seed = seed

    def rows(self) -> Iterator[dict[str, Any]]:
        for subject in self.subjects:
            for row in transfers(subject.network, self.pairs, self.sites, self.methods, self.sample, self.seed):
                yield {"seed": subject.seed} | row

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Exchanges between runs: source position against target position; means over seeds."""
        shown = rows[rows["pair"] == "other"]
        means = shown.groupby(["site", "method", "source", "position"], sort=False)["iia"].mean().unstack("position")
        return means.map(lambda x: f"{x:.2f}").reset_index()

    def figure(self, rows: pd.DataFrame) -> Figure:
        """A heat map for each site and method: source position against target position."""
        return draw_transfers(rows, self.subjects[0].task.name)
