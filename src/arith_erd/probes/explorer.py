"""Write ``explorer.html``, a page that runs the networks in the browser, with interventions."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, ClassVar

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from ..interp.explorer import export_network, write_page
from ..interp.hooked import Hooked
from ..interp.loading import load_references
from ..models.references import written_for
from ..plots.curves import EpochCurves
from ..plots.style import headline, seeds_text, subplots, tidy
from .probe import Positive, Probe, listed


class Explorer(Probe):
    """Write a page of at most ``most`` replicas, and of the references ``beside`` if they perform the same task.

    A row is a network: the bits of its numbers in the page, and its accuracy on ``pairs`` random examples.
    """

    columns = ("seed", "network", "bits", "right")
    units: ClassVar[dict[str, str]] = {"right": "accuracy"}

    def __init__(self, models: Sequence[Hooked], pairs: Positive, beside: Sequence[str], most: Positive) -> None:
        task = models[0].task
        extra = [one for name in listed(beside) if written_for(task) for one in load_references(name, [0], task)]
        extra = [one for one in extra if one.name not in {model.name for model in models}]
        self.models, self.left_out = [*models[:most], *extra], len(models[most:])
        self.measured = cache(lambda model: export_network(model, pairs))  # each network once: for rows and page

    def rows(self) -> Iterator[dict[str, Any]]:
        for one in map(self.measured, self.models):
            yield self.row(one["seed"], one["name"], one["bits"], one["right"])

    def files(self) -> dict[str, str]:
        return {"explorer.html": write_page([*map(self.measured, self.models)])}

    def notes(self) -> list[str]:
        return [f"{self.left_out} networks left out; increase probe.most to include them"] if self.left_out else []

    def epoch_curves(self, rows: pd.DataFrame) -> EpochCurves:
        return EpochCurves.of(rows, "right", ["network"], label="right answers", unit="accuracy")

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        return rows.assign(right=rows["right"].map("{:.1%}".format))

    def figure(self, rows: pd.DataFrame) -> Figure:
        figure, ax = subplots(6.4, 1.2 + 0.3 * len(rows))
        beside = rows["network"].str.startswith("reference-")
        ax.barh(rows["network"].where(beside, rows["seed"].map("seed {}".format)), rows["right"], height=0.6)
        tidy(ax, "x")
        ax.set(xlim=(0, 1), xlabel="right answers")
        ax.xaxis.set_major_formatter(PercentFormatter(1))
        ax.invert_yaxis()
        headline(ax, "Networks of the page", seeds_text(rows))
        return figure
