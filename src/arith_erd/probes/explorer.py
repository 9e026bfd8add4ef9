"""A page in which the networks compute, and can be intervened on: ``explorer.html``."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pandas as pd
from matplotlib.figure import Figure

from ..interp.explorer.measure import measure
from ..interp.explorer.page import write_page
from ..interp.hooked import Hooked
from ..interp.loading import load_references
from ..models.references import written_for
from ..plots.style import canvas, headline, seeds_text
from .probe import Natural, Positive, Probe, listed


class Explorer(Probe):
    """Writes a page that works offline.

    A row is a network of the page: the bits of its numbers there, and the share of the sample that it answers right.

    Args:
        subjects: trained replicas of one task, of the classes Transformer and NanoGPT.
        pairs: random examples over which means are taken and directions fitted.
        beside: references that the page offers too, where the task is theirs.
        most: networks; further ones are left out, and the notes say so.
    """

    columns = ("seed", "network", "bits", "right")
    units: ClassVar[dict[str, str]] = {"right": "accuracy"}

    def __init__(
        self, subjects: Sequence[Hooked], pairs: Positive = 512, beside: Sequence[str] = (), most: Natural = 8
    ) -> None:
        task, names = subjects[0].task, {subject.name for subject in subjects}
        extra = [one for name in listed(beside) if written_for(task) for one in load_references(name, [0], task)]
        self.left_out = max(len(subjects) - most, 0)
        self.subjects = [*subjects[:most], *(one for one in extra if one.name not in names)]
        self.pairs = pairs

    def rows(self) -> Iterator[dict[str, Any]]:
        self.measured = [measure(subject, self.pairs) for subject in self.subjects]
        for one in self.measured:
            yield self.row(one.model.seed, one.model.name, one.bits, one.right)

    def files(self) -> dict[str, str]:
        """The page."""
        return {"explorer.html": write_page(self.measured)}

    def notes(self) -> list[str]:
        out = [f"{self.left_out} networks left out; probe.most takes more"] if self.left_out else []
        return ["explorer.html opens in any browser, without a network connection", *out]

    def figure(self, rows: pd.DataFrame) -> Figure:
        """A bar for each network."""
        figure = canvas(5.0, 1.0 + 0.3 * len(rows))
        ax = figure.subplots()
        ax.barh([f"{row.network[:30]}, seed {row.seed}" for row in rows.itertuples()], rows["right"])
        headline(ax, "Right answers", seeds_text(rows))
        return figure
