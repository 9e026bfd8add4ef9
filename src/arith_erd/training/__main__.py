"""The command ``arith-train``, which ``train.py`` is too: see ``python train.py --help``."""

import sys
from importlib import import_module

from ..config.job import Job
from ..launch.cli import entry_point
from ..system.files import require_writable
from ..system.machine import settle_threads


@entry_point("train")
def main(job: Job) -> None:
    runs = job.runs()
    replacing = any(run.replaced.path.exists() for run in runs)  # an interrupted overwriting is completed
    if all(run.finished for run in runs) and not job.overwrite and not replacing:
        for run in runs:
            print(run.skipped(job.checkpoint.keep))
        return
    require_writable("runs_dir", job.runs_dir)
    settle_threads()
    if "torch" not in sys.modules:
        print("loading PyTorch", flush=True)
    import_module("arith_erd.plots")  # before Lightning, which imports matplotlib too
    from .train import train  # only for a job that was accepted and has work left

    train(job)


if __name__ == "__main__":
    main()
