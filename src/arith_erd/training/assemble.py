"""From a job to the things that train it: the pack in its Lightning module, the data, the trainer."""

import logging
import os
import shutil
import sysconfig
import warnings
from pathlib import Path

import lightning as L
import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException

from ..config.groups import Training
from ..config.job import Job
from ..errors import UserError
from ..system.files import own_folder
from ..system.products import settle_products
from . import memory, recipe
from .checkpoint import CheckpointFile
from .compiling import compiles_layers
from .data import TableData
from .module import LitPack
from .pack import Pack
from .trial import try_step

LONG = 20e12
"""Operations from which compiling pays on a CPU. Two cores gained a minute after 11e12 (transformer, 9 epochs) and 7e12
(nanoGPT, 14 epochs) with nothing in the compiler's cache; see benchmarks/README.md."""


def assemble(job: Job, device: torch.device, data: TableData | None = None) -> LitPack:
    """The pack of a job, ready to be trained on a device.

    Args:
        job: whose seeds make up the pack.
        device: where it will be trained; the pack is still on the CPU.
        data: as `table_data` makes it, where that has been done.

    Raises:
        UserError: if the network or its recipe do not take their options, or could not train a pack.
    """
    settle_products()
    data = data or table_data(job)
    compile = wants_compile(job, device, data.steps_per_epoch)
    if compile:
        _keep_compiled_code_private()
        torch.compiler.reset()  # it gives up after eight versions of one function, and would count other jobs' packs
    pack = Pack(job.network, job.seeds, compile, job.trainer.cuda_graphs, recipe.loss_of(job))
    recipe.begin_loss(job, pack, data)
    try_step(job, pack, data)
    optimizer = recipe.optimizer_of(job, device)
    schedule = recipe.schedule_of(job, data, optimizer)
    interval = job.model.scheduler.interval if job.model.scheduler else "step"
    module = LitPack(pack, optimizer, job.model.gradient_clip, schedule, interval)
    if job.trainer.precision == "64-true":
        module.double()  # Lightning would do so only after loading a checkpoint, whose digits it would cut
    return module


def _keep_compiled_code_private() -> None:
    """See that the folder from which the compiler loads code is our own; by default its name can be guessed."""
    if "TORCHINDUCTOR_CACHE_DIR" not in os.environ:
        from torch._inductor.runtime.cache_dir_utils import default_cache_dir

        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(own_folder(Path(default_cache_dir())))


def table_data(job: Job) -> TableData:
    """The task's table, cut in two by the split, with what the loss wants to know of each example.

    Raises:
        UserError: if the split leaves nothing to train on, or nothing to validate on; or the task does
            not have what the loss wants.
    """
    data = TableData(job.task, job.split, job.seeds, job.data.batch_size, recipe.loss_of(job).targets)
    held_out, whole = len(data.validation[0]), job.task.size
    if not 0 < held_out < whole:
        group = job.resolved["split"]
        options = [f"split.{key}={value}" for key, value in group.items() if key not in ("name", "_target_")]
        given = " ".join([f"split={group['name']}", *options])
        raise UserError(f"{given}: holds out {held_out:,} of {whole:,} examples; expected at least 1, and not all")
    return data


def make_trainer(options: Training, callbacks: list[L.Callback]) -> L.Trainer:
    """A trainer that logs, saves and shows nothing of its own: our callbacks do, once an epoch.

    Raises:
        UserError: if the device is not there, or does not have the precision.
    """
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    # Apple's GPU, which Lightning would choose too, has no 64-bit numbers.
    best = "cuda" if torch.cuda.is_available() else "cpu"
    accelerator = {"auto": best, "gpu": "cuda"}.get(options.accelerator, options.accelerator)
    try:
        return L.Trainer(
            max_epochs=options.max_epochs,
            precision=options.precision,  # type: ignore[arg-type]
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


def wants_compile(job: Job, device: torch.device, steps_per_epoch: int) -> bool:
    """Whether to compile; ``auto`` does so on CUDA, and on a CPU with a C++ compiler if the run is long enough to gain.

    On a CPU it takes a minute or more, and five for packs of tiny networks, which ``auto`` leaves alone: see `Pack`.
    """
    option = job.trainer.compile
    if option != "auto":
        return bool(option)
    if device.type == "cuda":
        return True
    with torch.device("meta"):
        network = job.network()
    long = _operations(job, network, steps_per_epoch) >= LONG
    return long and compiles_layers(network, len(job.seeds), device) and _has_compiler()


def _has_compiler() -> bool:
    """Whether a C++ compiler and Python's headers are there, as the compiled code needs them."""
    header = Path(sysconfig.get_path("include"), "Python.h")
    return header.is_file() and shutil.which(os.environ.get("CXX", "g++")) is not None


def _operations(job: Job, network: torch.nn.Module, steps_per_epoch: int) -> int:
    """Of training all seeds: 6 N T each, of N parameters and T tokens."""
    parameters = len(job.seeds) * sum(p.numel() for p in network.parameters())
    tokens = _batch_size(job) * (job.task.prompt_length + job.task.width)
    return 6 * parameters * tokens * steps_per_epoch * job.trainer.max_epochs


def _batch_size(job: Job) -> int:
    """Examples in a batch; the whole table where it has fewer than ``data.batch_size``."""
    return min(job.data.batch_size, job.task.size)


def capacity(job: Job) -> int:
    """How many replicas of a job its device holds, at least one."""
    device = make_trainer(job.trainer, []).strategy.root_device
    with torch.device("meta"):
        network = job.network()
        if job.trainer.precision == "64-true":
            network.double()
        lengths = (job.task.prompt_length, job.task.width)
        prompt, answer_in = (torch.zeros(_batch_size(job), n, dtype=torch.int64) for n in lengths)
        with job.model.net.blamed():
            replica = memory.training_bytes(network, prompt, answer_in)
    return memory.replicas_that_fit(len(job.seeds), replica, device)
