"""Runs on disk: their directories, what identifies them, and tables of them."""

from .directory import Run, matching
from .epochs import METRICS, NOTHING, Keep, Row, epochs_to
from .identity import NAME, NAMES, identity, leaves, require_name, settings

__all__ = ["METRICS", "NAME", "NAMES", "NOTHING", "Keep", "Row", "Run", "epochs_to", "identity", "leaves", "matching"]
__all__ += ["require_name", "settings"]
