"""Loggers: destinations of numbers besides the run directory. ``conf/logger/`` names the classes in ``_target_``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ..runs.directory import Row


class Logger:
    """Base class, called at a run's start, after each epoch and at its end. Its methods do nothing."""

    def start(self, name: str, seeds: Sequence[int], config: dict[str, Any], folder: Path) -> None:
        """A run starts or resumes. ``folder`` is the run directory."""

    def replay(self, rows: Sequence[Row]) -> None:
        """The rows of epochs before this start; none unless the run resumes. `log` may have received them already."""

    def log(self, rows: Sequence[Row]) -> None:
        """Log an epoch. Each row has the columns of ``metrics.csv``, ``learning_rate``, ``val_seq_acc/length=5`` .."""

    def finish(self, summaries: Sequence[Row]) -> None:
        """A run has ended. ``summaries`` are the ``seeds`` of ``summary.json``, empty if it failed."""

    def probe(self, run: str, seed: int, name: str, rows: pd.DataFrame, figure: Path, folder: Path) -> None:
        """Log a probe's rows and figure for one seed; ``folder`` is the run directory, else the figure's."""


class Csv(Logger):
    """The default: every run writes ``metrics.csv`` itself, so this logger adds nothing."""
