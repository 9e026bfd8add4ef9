"""The installed commands; ``python -m arith_erd`` is ``arith``. Ctrl-C ends one quietly even while it loads."""

from collections.abc import Callable
from importlib import import_module

from .system.cli_errors import one_line_errors
from .system.signals import catch_signals


def _command(module: str) -> Callable[[], None]:
    def main() -> None:
        with one_line_errors(), catch_signals():
            import_module(f".{module}", __package__).main()

    return main


arith, train, probe, runs, report = map(
    _command, ("first_answer", "training.__main__", "probes.__main__", "runs.__main__", "report.__main__")
)

if __name__ == "__main__":
    arith()
