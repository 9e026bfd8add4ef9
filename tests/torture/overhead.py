"""What a checkpoint after every epoch costs an epoch of addition."""

import time
from pathlib import Path

from arith_erd.config.compose import compose
from arith_erd.training.checkpoint import ResumePoint
from arith_erd.training.train import train


def checkpoint_and_epoch(folder: Path) -> tuple[float, float]:
    """Train addition for two epochs, as ``python train.py`` would.

    Returns:
        Seconds that saving the second checkpoint took (the one that also renames the first), and seconds of its epoch.
    """
    took: list[float] = []
    original = ResumePoint.on_train_epoch_end

    def timed(self, trainer, pl_module):  # type: ignore[no-untyped-def]
        started = time.perf_counter()
        original(self, trainer, pl_module)
        took.append(time.perf_counter() - started)

    ResumePoint.on_train_epoch_end = timed  # type: ignore[method-assign]
    try:
        (run,) = train(compose("train", ["trainer.max_epochs=2", f"runs_dir={folder}"]))
    finally:
        ResumePoint.on_train_epoch_end = original  # type: ignore[method-assign]
    return took[-1], run.metrics()[-1]["seconds"]
