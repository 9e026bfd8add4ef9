"""The command ``arith-probe``, which ``probe.py`` is too: see ``python probe.py --help``."""

from ..config.job import ProbeJob
from ..launch.cli import entry_point
from ..system.machine import configure_threads


@entry_point("probe")
def main(job: ProbeJob) -> None:
    configure_threads()
    from .run_probe import run_job  # slow imports only for a job that was accepted

    run_job(job)


if __name__ == "__main__":
    main()
