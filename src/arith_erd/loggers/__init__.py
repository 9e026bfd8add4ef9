"""Where numbers go besides the run directory. The files in ``conf/logger/`` name the classes in ``_target_``."""

from .logger import Csv, Logger

__all__ = ["Csv", "Logger"]
