"""Runs on disk: their directories, what identifies them, and tables of them."""

from .directory import (
    METRICS,
    NAME,
    NAMES,
    MetricRow,
    Run,
    SeedSummary,
    epochs_to,
    identity,
    kept_epochs,
    leaves,
    require_name,
    run_directories,
    settings,
)

__all__ = ["METRICS", "NAME", "NAMES", "MetricRow", "Run", "SeedSummary"]
__all__ += ["epochs_to", "identity", "kept_epochs", "leaves", "require_name", "run_directories", "settings"]
