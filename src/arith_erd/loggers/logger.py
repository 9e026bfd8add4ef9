"""What a logger is told."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ..runs import Row


class Logger:
    """Told of a run's start, of each epoch's rows and of its end; does nothing with them."""

    def start(self, name: str, seeds: Sequence[int], config: dict[str, Any], folder: Path) -> None:
        """A run begins, or goes on. ``folder`` is the run directory."""

    def log(self, rows: Sequence[Row]) -> None:
        """The rows of one epoch, one a seed: the columns of ``metrics.csv``."""

    def finish(self, summaries: Sequence[Row]) -> None:
        """The run has ended: the ``seeds`` of ``summary.json``, none if it failed. Called exactly once."""

    def probe(self, run: str, seed: int, name: str, rows: pd.DataFrame, figure: Path) -> None:
        """What the probe ``name`` found in one seed of a run."""
