"""What is measured of this package. Each function runs in a process of its own, so that its peak memory is its own."""

import resource
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning as L
import torch
from authors import share
from lightning.pytorch.callbacks import Checkpoint
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.flop_counter import FlopCounterMode

from arith_erd.config.job import Job
from arith_erd.loggers import Logger
from arith_erd.runs import Run
from arith_erd.system.machine import device_name, versions
from arith_erd.training.assemble import assemble, make_trainer, table_data, wants_compile
from arith_erd.training.callbacks import EpochProgress, KeepRows
from arith_erd.training.checkpoint import ResumePoint
from arith_erd.training.data import TableData, evaluation_batch_size
from arith_erd.training.finish import parameters
from arith_erd.training.module import LitPack

PRODUCTS = {"32-true": torch.float32, "64-true": torch.float64, "bf16-mixed": torch.bfloat16}
WARM_UP = 1024  # examples: 8 steps at the default batch size


class Clock(Checkpoint):
    """Seconds of each epoch. The first of the callbacks, so that all that the others do lies inside an epoch.

    ``training`` runs from the epoch's start to its evaluation, ``evaluation`` covers both subsets, and ``rest`` is
    what follows: metric rows, checkpoint, hooks. Lightning's work *within* a step is in ``training``; `speed` sets it
    apart. A `Checkpoint` that saves nothing, for else Lightning would add one of its own that does.
    """

    def __init__(self) -> None:
        self.epochs: list[dict[str, float]] = []
        self.marks: list[float] = []

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._close(pl_module.device)
        self.marks = [now(pl_module.device)]

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.marks.append(now(pl_module.device))

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.marks.append(now(pl_module.device))

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._close(pl_module.device)
        self.marks = []

    def _close(self, device: torch.device) -> None:
        if not self.marks:
            return
        end = now(device)
        start, evaluation, rest = self.marks if len(self.marks) == 3 else (self.marks[0], end, end)
        self.epochs.append(
            {
                "training": evaluation - start,
                "evaluation": rest - evaluation,
                "rest": end - rest,
                "total": end - start,
            }
        )


def epochs(job: Job, count: int, fraction: float) -> dict[str, Any]:
    """Time the first ``count`` epochs of a run, with all that a run does: rows, logger, checkpoint.

    A warm-up (and with it any compilation) comes first and is undone, so what is trained are a run's own first epochs.
    A last, smaller batch, which only overrides can bring about, is still compiled in the timed epoch.

    Returns:
        ``epochs``, seconds in ``training``, ``evaluation``, ``rest`` and ``total`` of each, the first two extrapolated
        to all examples where ``fraction`` is below 1; ``warm_up_seconds``; ``memory``, the peaks in bytes; ``rows``,
        the last epoch's loss and accuracies a seed; ``parameters`` of a replica.
    """
    module, whole = assemble(job, device_of(job)), examples(job)
    full = [len(half[0]) for half in (whole.train, whole.validation)]
    fresh = {name: value.clone() for name, value in module.state_dict().items()}
    # Whole evaluation batches: a size that the warm-up has not met would be compiled in the timed epoch.
    warm = max(WARM_UP, evaluation_batch_size(device_of(job), len(module.pack.seeds)))
    start = time.perf_counter()
    make_trainer(replace(job.trainer, max_epochs=1), [Clock()]).fit(module, examples(job, warm, warm))
    warm_up = time.perf_counter() - start
    module.load_state_dict(fresh)

    kept = [share(size, fraction) for size in full]
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder) / "run")
        run.create(job.resolved)
        clock = Clock()
        callbacks = [
            clock,
            KeepRows(run, job.logger.build(Logger)),
            EpochProgress(),
            ResumePoint(run),
        ]
        make_trainer(replace(job.trainer, max_epochs=count), callbacks).fit(module, examples(job, *kept))
    for epoch in clock.epochs:
        epoch["training"] *= full[0] / kept[0]
        epoch["evaluation"] *= sum(full) / sum(kept)
        epoch["total"] = epoch["training"] + epoch["evaluation"] + epoch["rest"]
    return {
        "epochs": clock.epochs,
        "warm_up_seconds": warm_up,
        "memory": peak_memory(),
        "rows": module.rows,
        "parameters": parameters(module.pack),
    }


def speed(job: Job, steps: int, repeats: int) -> dict[str, Any]:
    """Time the same steps in a bare loop and under Lightning, in turn.

    Both call the same `LitPack.training_step` on the same batches with the same optimiser; the bare loop leaves out
    everything else that Lightning does. Neither evaluates or saves.

    Returns:
        seconds of a step under ``bare`` and ``lightning``, one for each of ``repeats``; ``memory``, peaks in bytes.
    """
    module = assemble(job, device_of(job))
    batch_size = job.data.batch_size
    available = len(examples(job).train[0])
    used = min(available, steps * batch_size)
    count = -(-steps * batch_size // available)  # epochs
    total = count * -(-used // batch_size)

    def under_lightning(count: int, used: int) -> tuple[L.Trainer, TableData, float]:
        data, clock = examples(job, used, 0), Clock()
        trainer = make_trainer(replace(job.trainer, max_epochs=count), [clock])
        trainer.limit_val_batches = 0
        trainer.fit(module, data)
        return trainer, data, sum(epoch["total"] for epoch in clock.epochs)

    trainer, _, _ = under_lightning(1, min(used, WARM_UP))
    seconds: dict[str, list[float]] = {"bare": [], "lightning": []}
    for _ in range(repeats):
        trainer, data, elapsed = under_lightning(count, used)
        seconds["lightning"].append(elapsed / total)
        bare = BareLoop(trainer, module, data)
        seconds["bare"].append(sum(bare.epoch() for _ in range(count)) / total)
    return {"steps": total, "seconds_per_step": seconds, "memory": peak_memory()}


def matrix_floor(job: Job) -> float:
    """Seconds that the matrix products of a training step would take, if all ran as fast as a large one.

    Products are counted by torch in one replica's step, forward and backward; the large one is of two square matrices
    in the precision of the training, the fastest of a few.
    """
    device = device_of(job)
    eager = replace(job, seeds=job.seeds[:1], trainer=replace(job.trainer, compile=False))
    module = assemble(eager, device).to(device)
    half = examples(job, job.data.batch_size, 0).train
    prompt, completion = (x.unsqueeze(0).to(device) for x in half)  # (1, B, P), (1, B, m)
    with FlopCounterMode(display=False) as counter:
        module.pack.losses(prompt, completion, step=0).sum().backward()
    size = 1024 if device.type == "cpu" else 8192
    square = torch.rand(size, size, device=device, dtype=PRODUCTS[job.trainer.precision])
    seconds = []
    for _ in range(5):
        start = now(device)
        torch.mm(square, square)
        seconds.append(now(device) - start)
    return len(job.seeds) * counter.get_total_flops() * min(seconds) / (2 * size**3)


def operators(job: Job, steps: int, top: int = 15) -> list[dict[str, Any]]:
    """The operators in which a training step spends most time itself, not in what it calls; milliseconds a step."""
    module = assemble(job, device_of(job))
    data = examples(job, steps * job.data.batch_size, 0)
    trainer = make_trainer(replace(job.trainer, max_epochs=1), [Clock()])
    trainer.limit_val_batches = 0
    trainer.fit(module, data)  # a warm-up, and everything is attached and on its device
    bare = BareLoop(trainer, module, data)
    bare.epoch()
    cuda = module.device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    with profile(activities=activities) as profiler, record_function("(outside any operator)"):
        bare.epoch()
    field = "self_device_time_total" if cuda else "self_cpu_time_total"
    events = sorted(profiler.key_averages(), key=lambda event: -getattr(event, field))
    spent = sum(getattr(event, field) for event in events)
    return [
        {
            "operator": event.key,
            "calls": event.count / steps,
            "milliseconds": getattr(event, field) / 1e3 / steps,
            "share": getattr(event, field) / spent,
        }
        for event in events[:top]
    ]


class BareLoop:
    """A plain PyTorch loop over the steps that Lightning would run."""

    def __init__(self, trainer: L.Trainer, module: LitPack, data: TableData) -> None:
        self.trainer = trainer
        self.module = module.to(trainer.strategy.root_device)  # after a fit, Lightning leaves it on the CPU
        self.module.train()
        self.data = data
        self.optimizer = module.configure_optimizers()

    def epoch(self) -> float:
        """Seconds of one epoch of training steps."""
        start = now(self.module.device)
        self.module.on_train_epoch_start()
        for i, batch in enumerate(self.data.train_dataloader()):
            with self.trainer.precision_plugin.train_step_context():
                loss = self.module.training_step(batch, i)
            self.optimizer.zero_grad()
            loss.backward()
            self.module.configure_gradient_clipping(self.optimizer)
            self.optimizer.step()
        return now(self.module.device) - start


def device_of(job: Job) -> torch.device:
    """Where Lightning would train it."""
    return make_trainer(replace(job.trainer, max_epochs=1), [Clock()]).strategy.root_device


def examples(job: Job, train: int | None = None, validation: int | None = None) -> TableData:
    """The data of a run; with numbers, only the first few examples of each subset."""
    data = table_data(job)
    data.train = (data.train[0][:train], data.train[1][:train])
    data.validation = (data.validation[0][:validation], data.validation[1][:validation])
    return data


def environment(job: Job) -> dict[str, Any]:
    """Device, threads and versions, as torch sees them."""
    device = device_of(job)
    return {
        "device": "CPU" if device.type == "cpu" else device_name(device),
        "threads": torch.get_num_threads(),
        "compiled": wants_compile(job, device, table_data(job).steps_per_epoch),
        "versions": versions(),
    }


def peak_memory() -> dict[str, int | None]:
    """Largest resident set of this process so far and, on CUDA, largest memory held in tensors; bytes."""
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {"resident": resident, "device": torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None}


def now(device: torch.device) -> float:
    """The time at which everything asked of the device so far is done."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
    return time.perf_counter()
