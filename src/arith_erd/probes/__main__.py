"""The command ``arith-probe``, the same as ``probe.py``: see ``python probe.py --help``."""

from ..config.job import ProbeJob
from ..launch.cli import entry_point
from ..system.machine import configure_threads


@entry_point("probe")
def main(job: ProbeJob) -> None:
    configure_threads()
    from .run_probe import run_job  # slow imports, only for a valid job

    run_job(job)


if __name__ == "__main__":
    main()
