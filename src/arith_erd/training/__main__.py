"""The command ``arith-train``, which ``train.py`` is too: see ``python train.py --help``."""

import sys
from collections.abc import Sequence
from importlib import import_module

from ..config.build import sources
from ..config.job import Job
from ..launch.cli import entry_point
from ..runs import Run
from ..runs.table import load_table
from ..system.files import require_writable
from ..system.machine import settle_threads


@entry_point("train")
def main(job: Job) -> float:
    """Train a job; the mean final validation sequence accuracy over its seeds, which a search maximises."""
    runs = job.runs()
    replacing = any(run.replaced.path.exists() for run in runs)  # an interrupted overwriting is completed
    if all(run.finished for run in runs) and not job.overwrite and not replacing:
        for run in runs:
            print(run.skipped(job.checkpoint.keep, sources(job.resolved)))
        return objective(runs)
    require_writable("runs_dir", job.runs_dir)
    settle_threads()
    if "torch" not in sys.modules:
        print("loading PyTorch", flush=True)
    import_module("arith_erd.plots")  # before Lightning, which imports matplotlib too
    from .train import train  # only for a job that was accepted and has work left

    return objective(train(job))


def objective(runs: Sequence[Run]) -> float:
    return float(load_table([run.path for run in runs])["val_seq_acc"].mean())


if __name__ == "__main__":
    main()
