"""The installed commands. Ctrl-C ends a command quietly even while it loads, which takes a second."""

from collections.abc import Callable
from importlib import import_module

from .system.cli_errors import one_line_errors
from .system.signals import catch_signals


def _command(package: str) -> Callable[[], None]:
    def main() -> None:
        with one_line_errors(), catch_signals():
            import_module(f".{package}.__main__", __package__).main()

    return main


train, probe, runs, report = map(_command, ("training", "probes", "runs", "report"))
