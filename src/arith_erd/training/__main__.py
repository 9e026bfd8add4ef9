"""The command ``arith-train``, the same as ``train.py``: see ``python train.py --help``."""

from ..config.job import Job
from ..launch.cli import entry_point
from .train import train


@entry_point("train")
def main(job: Job) -> None:
    """Train the packs of a job."""
    train(job)


if __name__ == "__main__":
    main()
