"""What a probe is: rows of measurements, a table and a picture of them."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from ..stats import bootstrap_interval


class Probe(ABC):
    """One question about a task or about trained networks.

    Built from its configuration, with what its YAML file says it ``needs``, of ``task``, ``split`` and ``subjects``
    (trained networks), and the options there. It knows neither logger nor path.
    """

    columns: tuple[str, ...]

    @abstractmethod
    def rows(self) -> Iterator[dict[str, Any]]:
        """Measurements, one plain dictionary each, with the keys of ``columns``."""

    @abstractmethod
    def figure(self, rows: pd.DataFrame) -> Figure:
        """Draw the rows."""

    def notes(self) -> list[str]:
        """What a reader must know before believing the rows."""
        return []

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        """What the terminal shows: each measure's mean over the seeds, with its 95% bootstrap interval.

        Columns of floats are measures; all others but ``seed`` say what was measured.
        """
        measures = [column for column in rows if pd.api.types.is_float_dtype(rows[column])]
        keys = [column for column in rows if column not in measures and column != "seed"]
        return rows.groupby(keys, sort=False, dropna=False)[measures].agg(mean_and_interval).reset_index()


def mean_and_interval(values: pd.Series) -> str:
    """``0.889 [0.871, 0.902]``; without the brackets from fewer than three seeds."""
    interval = bootstrap_interval(values.to_numpy())
    brackets = "" if interval is None else f" [{interval[0]:.3f}, {interval[1]:.3f}]"
    return f"{values.mean():.3f}{brackets}"
