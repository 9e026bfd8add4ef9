"""Runs on disk: their directories, names and rows, and the division of seeds into packs."""

from .directory import Run
from .identity import identity, require_name, settings, without_added
from .kept import Keep
from .names import find_run, matching, run_name
from .rows import METRICS, Row, epochs_to, read_metrics

__all__ = [
    "METRICS",
    "Keep",
    "Row",
    "Run",
    "epochs_to",
    "find_run",
    "identity",
    "matching",
    "read_metrics",
    "require_name",
    "run_name",
    "settings",
    "without_added",
]
