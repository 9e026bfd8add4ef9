"""Time this package. Each function runs in a process of its own, so that its peak memory is its own."""

import resource
import sys
import tempfile
import time
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Checkpoint

from arith_erd.config.job import Job
from arith_erd.loggers import Logger
from arith_erd.losses import Loss
from arith_erd.runs.directory import Run
from arith_erd.system.machine import device_name, versions
from arith_erd.training.build import build_module, build_task_data, make_trainer
from arith_erd.training.callbacks import EpochProgress, MetricsWriter
from arith_erd.training.checkpoint import CheckpointWriter
from arith_erd.training.data import TaskData, evaluation_batch_size
from arith_erd.training.lit_pack import LitPack
from arith_erd.training.pack import should_compile

WARM_UP = 1024  # examples: 8 steps at the default batch size


class Clock(Checkpoint):
    """Time an epoch. As the first callback it counts the work of all others.

    ``training`` runs from the epoch's start to its evaluation, ``evaluation`` covers both subsets, and ``rest`` is
    what follows: metric rows, checkpoint, hooks. A `Checkpoint` that saves nothing, for else Lightning would add one of
    its own that does.
    """

    def __init__(self) -> None:
        self.marks: list[float] = []

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.marks = [synchronized_time(pl_module.device)]

    def mark(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.marks.append(synchronized_time(pl_module.device))

    on_validation_start = on_validation_end = on_train_end = mark

    @property
    def seconds(self) -> dict[str, float]:
        start, *middle, end = self.marks
        evaluation, rest = middle or (end, end)
        return {
            "training": evaluation - start,
            "evaluation": rest - evaluation,
            "rest": end - rest,
            "total": end - start,
        }


def time_epoch(job: Job) -> dict[str, Any]:
    """Time the first epoch of a run, with all that a run does: rows, logger, checkpoint.

    A warm-up (and with it any compilation) comes first and is undone, so what is trained is a run's own first epoch.

    Returns:
        ``seconds`` of `Clock`, ``warm_up_seconds``, ``memory`` in bytes, and ``rows``, loss and accuracies by seed.
    """
    device, data = training_device(job), build_task_data(job)
    module = build_module(job, device, data)
    initial_state = {name: value.clone() for name, value in module.state_dict().items()}
    # Whole evaluation batches: a size that the warm-up has not met would be compiled in the timed epoch.
    num_warm_up = max(WARM_UP, evaluation_batch_size(device, len(module.pack.seeds)))
    start = time.perf_counter()
    trainer_config = replace(job.trainer, max_epochs=1)
    make_trainer(trainer_config, [Clock()]).fit(module, shortened(data, num_warm_up, num_warm_up))
    warm_up = time.perf_counter() - start
    module.load_state_dict(initial_state)
    with tempfile.TemporaryDirectory() as folder:
        run, clock = Run(Path(folder) / "run"), Clock()
        run.create(job.resolved)
        writer = MetricsWriter(run, job.logger.build(Logger), keep="none")
        callbacks = [clock, writer, EpochProgress(), CheckpointWriter(run, 1, at_end=True)]
        make_trainer(trainer_config, callbacks).fit(module, data)
    return {"seconds": clock.seconds, "warm_up_seconds": warm_up, "memory": peak_memory(), "rows": module.rows}


def fit_steps(job: Job, module: LitPack, data: TaskData, steps: int) -> float:
    """Train for some steps, at most an epoch, as a run does; seconds a step."""
    data, clock = shortened(data, steps * job.data.batch_size, 0), Clock()
    trainer = make_trainer(replace(job.trainer, max_epochs=1), [clock])
    trainer.limit_val_batches = 0
    trainer.fit(module, data)
    return clock.seconds["total"] / data.steps_per_epoch


def training_device(job: Job) -> torch.device:
    """The device on which Lightning would train."""
    return make_trainer(replace(job.trainer, max_epochs=1), [Clock()]).strategy.root_device


def shortened(data: TaskData, train: int, validation: int) -> TaskData:
    """Only the first few examples of each subset."""
    data = copy(data)
    data.train = tuple(x[:train] for x in data.train)
    data.validation = tuple(x[:validation] for x in data.validation)
    return data


def describe_environment(job: Job) -> dict[str, Any]:
    """Device, threads and versions, as torch sees them."""
    device = training_device(job)
    data = build_task_data(job)
    compiled = should_compile(job, device, data.steps_per_epoch, job.model.loss.build(Loss))
    return {"device": device_name(device), "compiled": compiled, "versions": versions()}


def peak_memory() -> dict[str, int | None]:
    """Largest resident set of this process so far and, on CUDA, largest memory held in tensors; bytes."""
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {"resident": resident, "device": torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None}


def synchronized_time(device: torch.device) -> float:
    """The time at which everything asked of the device so far is done."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
    return time.perf_counter()
