"""Where numbers go besides the run directory. The files in ``conf/logger/`` name the classes in ``_target_``."""

from .csv import Csv
from .logger import Logger

__all__ = ["Csv", "Logger"]
