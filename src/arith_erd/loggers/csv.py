"""The default logger. Every run writes ``metrics.csv`` itself, so this logger adds nothing."""

from .logger import Logger


class Csv(Logger):
    """No logger besides the run directory."""
