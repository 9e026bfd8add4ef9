"""A page in which the networks compute, and can be intervened on: ``explorer.html``."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, ClassVar

import pandas as pd
from matplotlib.figure import Figure

from ..interp.explorer.measure import Measured, measure
from ..interp.explorer.page import write_page
from ..interp.hooked import Hooked
from ..interp.loading import load_references
from ..models.references import written_for
from ..plots.style import canvas, headline, heat_map, seeds_text
from .probe import Natural, Positive, Probe, listed


class Explorer(Probe):
    """Writes a page that works offline, and measures what its interventions do over many pairs.

    A row is one answer position under one intervention (`interp.explorer.measure.Effect`).

    Args:
        subjects: trained replicas of one task, of the classes Transformer and NanoGPT.
        pairs: random examples over which means are taken and directions fitted.
        beside: references that the page offers too, where the task is theirs.
        most: networks; further ones are left out, and the notes say so.
    """

    columns = ("seed", "network", "intervention", "site", "position", "n", "changed")
    units: ClassVar[dict[str, str]] = {"changed": "accuracy"}

    def __init__(
        self, subjects: Sequence[Hooked], pairs: Positive = 512, beside: Sequence[str] = (), most: Natural = 8
    ) -> None:
        task = subjects[0].task
        names = {subject.name for subject in subjects}
        extra = [one for name in listed(beside) if written_for(task) for one in load_references(name, [0], task)]
        self.left_out = max(len(subjects) - most, 0)
        self.subjects = [*subjects[:most], *(one for one in extra if one.name not in names)]
        self.pairs = pairs
        self.measured: list[Measured] = []

    def rows(self) -> Iterator[dict[str, Any]]:
        self.measured = []
        for subject in self.subjects:
            self.measured.append(measure(subject, self.pairs))
            for effect in self.measured[-1].effects:
                yield {"seed": subject.seed, "network": subject.name} | asdict(effect)

    def files(self) -> dict[str, str]:
        """The page."""
        return {"explorer.html": write_page(self.measured)}

    def notes(self) -> list[str]:
        out = [f"{self.left_out} networks left out; probe.most takes more"] if self.left_out else []
        return ["explorer.html opens in any browser, without a network connection", *out]

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The share of answer tokens that change: mean over positions and seeds, one column per network."""
        return self._wide(rows).map("{:.3f}".format).reset_index()

    def figure(self, rows: pd.DataFrame) -> Figure:
        """The same as a heat map."""
        mean = self._wide(rows)
        figure = canvas(3.0 + 1.2 * len(mean.columns), 1.0 + 0.42 * len(mean))
        ax = figure.subplots()
        labels = [" ".join(index) for index in mean.index]
        heat_map(ax, mean.to_numpy(), labels, [str(name)[:20] for name in mean.columns], numbers=".2f")
        headline(ax, "Share of answer tokens that change", seeds_text(rows))
        return figure

    def _wide(self, rows: pd.DataFrame) -> pd.DataFrame:
        return rows.groupby(["intervention", "site", "network"], sort=False)["changed"].mean().unstack("network")
