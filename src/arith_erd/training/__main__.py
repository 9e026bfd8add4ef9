"""The command ``arith-train``, which ``train.py`` is too: see ``python train.py --help``."""

from collections.abc import Sequence

from ..config.job import Job
from ..launch.cli import entry_point
from ..runs import Run
from ..runs.table import load_table
from .train import train


@entry_point("train")
def main(job: Job) -> float:
    """Train a job; the mean final validation sequence accuracy over its seeds, which a search maximises."""
    return objective(train(job))


def objective(runs: Sequence[Run]) -> float:
    return float(load_table([run.path for run in runs])["val_seq_acc"].mean())


if __name__ == "__main__":
    main()
