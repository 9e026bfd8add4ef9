"""Does a value copied from one answer position work at another?"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import pandas as pd
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from ..errors import bad_value
from ..interp.dose import transfers
from ..interp.hooked import Hooked
from ..interp.sites import chosen_sites
from ..plots.style import canvas, grid, headline, heat_map, question
from .dose import TITLES, valued
from .probe import Natural, Positive, Probe, listed

Method = Literal["slope", "das", "whole"]


class Transfer(Probe):
    """Copy the activation along the value's directions from position t of another run to position t'.

    If all positions store the same number S in the same directions, the answer at t' becomes bit t' of the other run's
    sum. At three bits, copy the value of ``1 + 4`` at position 0 to position 2 of ``3 + 5``: the answer there becomes 1
    (5 is ``1010``), where 8 has 0. A row is a pair of positions; ``iia`` is balanced as in ``probe=subspaces``: 0.5
    without an intervention. With ``pair=same`` the number comes from position t of the same run, and the answer should
    not change.

    Raises:
        UserError: for a site or method that is not there, or a task without a value.
    """

    columns = ("seed", "site", "method", "source", "position", "pair", "n", "iia", "no_intervention")

    def __init__(
        self,
        subjects: Sequence[Hooked],
        site: str | Sequence[str] = "dec.3",
        method: Method | Sequence[Method] = ("slope", "das"),
        sample: Positive = 200,
        seed: Natural = 0,
    ) -> None:
        self.subjects, self.sample, self.seed = subjects, sample, seed
        self.causal_model = valued(subjects[0].task)
        self.sites = chosen_sites(subjects, site)
        self.methods = listed(method)
        for name in self.sites:
            if name.startswith("enc."):
                raise bad_value("probe.site", name, "sites of the decoder, whose positions answer one digit each")

    def rows(self) -> Iterator[dict[str, Any]]:
        arguments = (self.causal_model, self.sites, self.methods, self.sample, self.seed)
        for subject in self.subjects:
            yield from ({"seed": subject.seed} | row for row in transfers(subject, *arguments))

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        return _between_runs(rows).map(lambda x: f"{x:.2f}").reset_index()

    def figure(self, rows: pd.DataFrame) -> Figure:
        cells = list(_between_runs(rows).groupby(level=["site", "method"], sort=False))
        across, names = min(len(cells), 3), self.subjects[0].task.answer_names
        height = (1.2 + 0.32 * len(names)) * -(-len(cells) // across)
        figure = canvas(1 + (1.2 + 0.36 * len(names)) * max(across, 2), 1.2 + height)
        for ax, ((site, method), table) in zip(grid(figure, len(cells), across), cells, strict=True):
            heat_map(ax, table.to_numpy(), names, names, Normalize(0.5, 1), "Greens", ".2f")
            ax.set(xlabel="to position", ylabel="from position")
            headline(ax, TITLES[method][0], site)
        text = "share of answers with the other run's bit (0.5: no intervention)"
        question(figure, self.causal_model.task.name, text, rows)
        return figure


def _between_runs(rows: pd.DataFrame) -> pd.DataFrame:
    other = rows[rows["pair"] == "other"]
    return other.groupby(["site", "method", "source", "position"], sort=False)["iia"].mean().unstack("position")
