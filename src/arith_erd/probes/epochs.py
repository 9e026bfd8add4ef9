"""Any probe at several epochs of training."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from ..interp.hooked import Hooked
from ..plots.course import Course
from ..plots.sheet import Sheet
from .probe import Probe


class OverEpochs(Probe):
    """Another probe at several epochs of a run: its rows with a column ``epoch``, and the course of one measure.

    Networks are loaded one epoch at a time. If there is only one epoch, table and figure are those of the probe itself.
    ``make`` builds the probe for networks of one epoch, ``load`` gives these by epoch, 0 for the untrained ones;
    ``reached`` is the epoch at which each seed reached 95%, for the figure.
    """

    def __init__(
        self,
        make: Callable[[Sequence[Hooked]], Probe],
        load: Callable[[int], Sequence[Hooked]],
        epochs: Sequence[int],
        title: str = "over training",
        reached: Mapping[int, int | None] | None = None,
    ) -> None:
        self.make, self.load, self.epochs, self.title, self.reached = make, load, epochs, title, reached
        self.probe = make(load(epochs[0]))  # refuses its options before anything is measured
        self.columns = ("epoch", *self.probe.columns)
        self.courses: list[Course] = []

    def rows(self) -> Iterator[dict[str, Any]]:
        self.courses = []
        for epoch in self.epochs:
            self.probe = self.make(self.load(epoch))
            rows = list(self.probe.rows())
            course = self.probe.course(pd.DataFrame(rows, columns=list(self.probe.columns)))
            self.courses.append(replace(course, table=course.table.assign(epoch=epoch)))
            yield from ({"epoch": epoch, **row} for row in rows)

    @property
    def course_over_epochs(self) -> Course:
        return replace(self.courses[0], table=pd.concat([course.table for course in self.courses], ignore_index=True))

    def figure(self, rows: pd.DataFrame) -> Figure:
        if len(self.epochs) == 1:
            return self.probe.figure(rows.drop(columns="epoch"))
        return self.course_over_epochs.draw(self.title, self.reached)

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        if len(self.epochs) == 1:
            return self.probe.table(rows.drop(columns="epoch"))
        return self.course_over_epochs.tabulated()

    def sheet(self, name: str, rows: pd.DataFrame, settings: Mapping[str, Any] | None = None) -> Sheet:
        return self.probe.sheet(name, rows, settings)

    def files(self) -> dict[str, str]:
        return self.probe.files() if len(self.epochs) == 1 else {}

    def notes(self) -> list[str]:
        return self.probe.notes()
