"""What a probe is: rows of measurements, a table and a picture of them."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import pandas as pd
from matplotlib.figure import Figure

from ..plots.course import Course
from ..plots.sheet import Sheet, tabulate


class Probe(ABC):
    """One question about a task or about trained networks.

    Built from its configuration, with what its YAML file says it ``needs``, of ``task``, ``split`` and ``subjects``
    (trained networks), and the options there. It knows neither logger nor path.

    A probe owns its columns, its table and its figure. ``sheet`` describes the rows to whoever reads them later; the
    report lays out its tables by that description and knows no probe by name.
    """

    columns: tuple[str, ...]
    """Of `rows`, in order. Fixed by the class, or set by its constructor where they depend on the task."""
    units: ClassVar[Mapping[str, str]] = {}
    """Units of measures, ``accuracy`` or ``percent``; columns of floats without one are plain numbers."""
    across: ClassVar[tuple[str, ...]] = ()
    """Columns whose values become columns of the table."""
    counted: ClassVar[tuple[str, ...]] = ()
    """Where a row is a single case: the columns by which the table counts cases."""

    @abstractmethod
    def rows(self) -> Iterator[dict[str, Any]]:
        """Measurements, one plain dictionary each, with the keys of ``columns``."""

    @abstractmethod
    def figure(self, rows: pd.DataFrame) -> Figure:
        """Draw the rows."""

    def course(self, rows: pd.DataFrame) -> Course:
        """What ``epoch=all`` follows over the epochs of training, of the rows of one epoch.

        By default the first measure, a line for each value of the first column that tells rows apart. A probe that
        has something better to show overrides this.
        """
        return Course.of(rows, self.sheet("", rows))

    def files(self) -> dict[str, str]:
        """More files to write beside the rows, name -> text; known once ``rows`` is exhausted."""
        return {}

    def notes(self) -> list[str]:
        """What a reader must know before believing the rows."""
        return []

    def sheet(self, name: str, rows: pd.DataFrame, settings: Mapping[str, Any] | None = None) -> Sheet:
        """Describe the rows, for ``probe.json``."""
        layout = {"across": self.across, "counted": self.counted, "settings": dict(settings or {})}
        return Sheet.of(name, rows, self.units, **layout)

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        """What the terminal shows: each measure's mean over the seeds with its 95% interval (Student's t)."""
        return tabulate(rows, self.sheet("", rows))
