"""From a job to the things that train it: the pack in its Lightning module, the data, the trainer."""

import logging
import warnings

import lightning as L
import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException

from ..config.groups import Training
from ..config.job import Job
from ..errors import UserError, bad_value
from ..losses import Loss
from ..system.machine import configure_matmul
from .checkpoint import CheckpointFile
from .data import TableData
from .module import LitPack
from .pack import Pack, wants_compile
from .recipe import begin_loss, optimizer_of, schedule_of


def assemble(job: Job, device: torch.device, data: TableData | None = None) -> LitPack:
    """The pack of a job's seeds, still on the CPU; a `UserError` if the network or its recipe cannot train one."""
    configure_matmul()
    data = data or table_data(job)
    if job.trainer.compile is True and not data.loss.compiles:
        raise bad_value("trainer.compile", "true", "auto or false, since a pack with this loss is not compiled")
    compile = data.loss.compiles and wants_compile(job, device, data.steps_per_epoch)
    if compile:
        torch.compiler.reset()  # it gives up after eight versions of one function, and would count other jobs' packs
    pack = Pack(job.network, job.seeds, compile, job.trainer.cuda_graphs, data.loss)
    begin_loss(job, pack, data)
    optimizer = optimizer_of(job, device)
    schedule = schedule_of(job, data, optimizer)
    interval = job.model.scheduler.interval if job.model.scheduler else "step"
    module = LitPack(pack, optimizer, job.model.gradient_clip, schedule, interval)
    if job.trainer.precision == "64-true":
        module.double()  # Lightning would do so only after loading a checkpoint, whose digits it would cut
    return module


def table_data(job: Job) -> TableData:
    """The task's table, cut in two by the split, with the targets of the loss; a `UserError` if one part is empty."""
    data = TableData(job.task, job.split, job.seeds, job.data.batch_size, job.model.loss.build(Loss), job.data.examples)
    held_out, whole = len(data.validation[0]), data.size
    if not 0 < held_out < whole:
        group = job.resolved["split"]
        options = [f" split.{key}={value}" for key, value in group.items() if key not in ("name", "_target_")]
        given = f"split={group['name']}{''.join(options)}"
        raise UserError(f"{given}: holds out {held_out:,} of {whole:,} examples; expected at least 1, and not all")
    return data


def make_trainer(options: Training, callbacks: list[L.Callback]) -> L.Trainer:
    """A trainer that leaves logging and saving to callbacks; a `UserError` if it lacks the device or precision."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    # Apple's GPU, which Lightning would choose too, has no 64-bit numbers.
    best = "cuda" if torch.cuda.is_available() else "cpu"
    accelerator = {"auto": best, "gpu": "cuda"}.get(options.accelerator, options.accelerator)
    if accelerator == "cuda" and best == "cpu":
        raise bad_value("trainer.accelerator", options.accelerator, "cpu or auto: PyTorch sees no CUDA device here")
    try:
        return L.Trainer(
            max_epochs=options.max_epochs,
            precision=options.precision,
            accelerator=accelerator,
            devices=1,
            callbacks=callbacks,
            # Under Slurm, Lightning's own choice would save and requeue from inside a signal's handler.
            plugins=[LightningEnvironment(), CheckpointFile()],
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
        )
    except (MisconfigurationException, RuntimeError, ValueError) as error:
        options_given = f"trainer.accelerator={options.accelerator}, trainer.precision={options.precision}"
        raise UserError(f"{options_given}: {error}") from error
