"""Runs on disk: their directories, what identifies them, and tables of them."""

from .directory import Run, run_directories
from .epochs import METRICS, MetricRow, SeedSummary, epochs_to, kept_epochs
from .identity import NAME, NAMES, identity, leaves, require_name, settings

__all__ = ["METRICS", "NAME", "NAMES", "MetricRow", "Run", "SeedSummary"]
__all__ += ["epochs_to", "identity", "kept_epochs", "leaves", "require_name", "run_directories", "settings"]
