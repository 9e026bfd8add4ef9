"""Runs on disk: their directories, what identifies them, and tables of them."""

from .directory import Run, run_directories
from .epochs import KEEP_NOTHING, METRICS, MetricRow, SeedSummary, WeightSchedule, epochs_to
from .identity import NAME, NAMES, identity, leaves, require_name, settings

__all__ = ["KEEP_NOTHING", "METRICS", "NAME", "NAMES", "MetricRow", "Run", "SeedSummary", "WeightSchedule"]
__all__ += ["epochs_to", "identity", "leaves", "require_name", "run_directories", "settings"]
