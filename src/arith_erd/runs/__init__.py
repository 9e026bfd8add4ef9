"""Runs on disk: their directories, what identifies them, and tables of them."""

from .directory import Run, matching
from .epochs import METRICS, NOTHING, Keep, Row, epochs_to, read_metrics
from .identity import NAME, NAMES, identity, require_name, settings, without_added

__all__ = ["METRICS", "NAME", "NAMES", "NOTHING", "Keep", "Row", "Run", "epochs_to", "identity", "matching"]
__all__ += ["read_metrics", "require_name", "settings", "without_added"]
