"""The command ``arith-probe``, which ``probe.py`` is too: see ``python probe.py --help``."""

from ..config.job import ProbeJob
from ..launch.cli import entry_point
from ..system.machine import settle_threads


@entry_point("probe")
def main(job: ProbeJob) -> None:
    settle_threads()
    from .ask import answer  # slow imports only for a job that was accepted

    answer(job)


if __name__ == "__main__":
    main()
