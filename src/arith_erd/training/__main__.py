"""The command ``arith-train``, the same as ``train.py``: see ``python train.py --help``."""

from ..config.job import Job
from ..launch.cli import entry_point
from ..runs.table import load_table
from .train import train


@entry_point("train")
def main(job: Job) -> float:
    """Train a job, and return the mean final validation sequence accuracy over its seeds, which a search maximises."""
    return float(load_table(train(job))["val_seq_acc"].mean())


if __name__ == "__main__":
    main()
