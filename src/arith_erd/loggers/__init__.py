"""Where numbers go besides the run directory. The files in ``conf/logger/`` name the classes in ``_target_``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ..runs.directory import MetricRow, SeedSummary


class Logger:
    """Called at a run's start, after each epoch and at its end. The methods of this base class do nothing."""

    def start(self, name: str, seeds: Sequence[int], config: dict[str, Any], folder: Path) -> None:
        """A run starts or resumes. ``folder`` is the run directory."""

    def log(self, rows: Sequence[MetricRow]) -> None:
        """The rows of one epoch, one for each seed: the columns of ``metrics.csv``, and ``learning_rate``."""

    def finish(self, summaries: Sequence[SeedSummary]) -> None:
        """The run has ended, called once; ``summaries`` are the ``seeds`` of ``summary.json``, empty if it failed.

        If it did not fail, the run directory holds the final weights and ``curves.png`` by now.
        """

    def probe(self, run: str, seed: int, name: str, rows: pd.DataFrame, figure: Path, folder: Path) -> None:
        """The rows and the figure of a probe for one seed; ``folder`` is the run directory, or the
        figure's folder if there is no run."""


class Csv(Logger):
    """The default: every run writes ``metrics.csv`` itself, so this logger adds nothing."""
