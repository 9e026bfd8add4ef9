"""The table of all hostile inputs."""

from . import configurations, files, weights
from .world import Case, attempt

CASES: tuple[Case, ...] = (*configurations.cases(), *weights.cases(), *files.cases())


def run_all() -> list[tuple[str, bool, str]]:
    """Name, whether it held, and the message that refused it or what went wrong, of every case."""
    results = []
    for case in CASES:
        try:
            results.append((case.name, True, attempt(case)))
        except Exception as error:  # the table counts failures, whatever they are
            results.append((case.name, False, f"{type(error).__name__}: {error}"))
    return results
