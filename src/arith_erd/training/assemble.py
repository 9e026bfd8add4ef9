"""Make the parts of a training run from its job (data, trainer, pack, loss, optimizer, schedule), and test them.

A user's network, loss or optimizer may be wrong in a pack without raising an error. For example, a pack has one
optimizer for the stacked parameters of all replicas. It must treat every number by itself, as Adam does. Adafactor
divides by norms of whole tensors, so replicas would influence each other.
"""

import inspect
import logging
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import lightning as L
import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ..config.groups import Training
from ..config.job import Job
from ..errors import UserError, bad_value
from ..losses import Loss
from ..models.weights import initialise
from ..system.machine import configure_matmul
from .checkpoint import CheckpointFile
from .data import TableData
from .module import LitPack, change_rate
from .pack import Pack, wants_compile

EXAMPLES = 2  # of each replica; with a single one, a loss per example would look like a loss per replica
STEPS = 3
CLOSE = 1e-6  # relative to the largest update; rounding in 64 bits is far below, a norm over two replicas far above

MakeOptimizer = Callable[[list[dict[str, Any]]], Optimizer]


def assemble(job: Job, device: torch.device, data: TableData | None = None) -> LitPack:
    """Make the pack of a job's seeds, still on the CPU; a `UserError` if network or recipe cannot train a pack."""
    configure_matmul()
    data = data or table_data(job)
    if job.trainer.compile is True and not data.loss.compiles:
        raise bad_value("trainer.compile", "true", "auto or false, since a pack with this loss cannot be compiled")
    compile = data.loss.compiles and wants_compile(job, device, data.steps_per_epoch)
    if compile:
        torch.compiler.reset()  # it gives up after eight versions of one function, and would count other jobs' packs
    pack = Pack(job.network, job.seeds, compile, job.trainer.cuda_graphs, data.loss)
    begin_loss(job, pack, data)
    optimizer = optimizer_of(job, device)
    module = LitPack(pack, optimizer, job.model.gradient_clip, *schedule_of(job, data, optimizer))
    if job.trainer.precision == "64-true":
        module.double()  # Lightning would do so only after loading a checkpoint, whose digits it would cut
    return module


def table_data(job: Job) -> TableData:
    """The task's table, divided by the split, with the targets of the loss; a `UserError` if one part is empty."""
    data = TableData(job.task, job.split, job.seeds, job.data.batch_size, job.model.loss.build(Loss), job.data.examples)
    held_out, whole = len(data.validation[0]), data.size
    if not 0 < held_out < whole:
        group = job.resolved["split"]
        options = [f" split.{key}={value}" for key, value in group.items() if key not in ("name", "_target_")]
        given = f"split={group['name']}{''.join(options)}"
        raise UserError(f"{given}: holds out {held_out:,} of {whole:,} examples; expected at least 1, and not all")
    return data


def make_trainer(options: Training, callbacks: list[L.Callback]) -> L.Trainer:
    """Make a trainer that leaves logging and saving to callbacks; a `UserError` without the device or precision."""
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


def begin_loss(job: Job, pack: Pack, data: TableData) -> None:
    """Let a pack's loss make its parameters, and test loss and network on a few examples, eager, with all replicas.

    The network may have no state besides its parameters.
    """
    net, loss, replicas = job.model.net, job.model.loss, len(pack.seeds)
    batch = [x[:EXAMPLES].expand(replicas, *x[:EXAMPLES].shape) for x in data.train]
    other = initialise(pack.make_network, pack.seeds[0] ^ 1)
    if more := sorted(other.state_dict().keys() - dict(other.named_parameters())):
        accepted = "parameters under one name each, and buffers with persistent=False"
        raise net.fault(f"also keeps {', '.join(more)}; expected {accepted}")
    for name, module in other.named_modules():
        if isinstance(module, torch.nn.RNNBase):
            accepted = "expected a layer of arith_erd.models.baselines, as in model=lstm"
            raise net.fault(f"{name} is an nn.{type(module).__name__}, which vmap cannot batch; {accepted}")
    with net.blamed():  # vmap refuses random numbers
        logits = pack.dry_run(*batch[:2])
    expected = (*batch[1].shape, job.task.vocab_size)
    if logits.shape != expected:
        raise net.fault(f"returned logits {tuple(logits.shape[1:])}; expected (B, m, V), here {expected[1:]}")
    buffers = dict(pack.stacked.named_buffers())
    for name, buffer in other.named_buffers():
        if not torch.equal(buffer, buffers[name]):
            raise net.fault(f"its buffer {name} is random or changes; expected a constant buffer, or a parameter")
    with loss.blamed():
        pack.begin_loss(*(x[:EXAMPLES] for x in data.train[:2]))
        own = pack.dry_run(*batch, loss=True)
    if own.shape != (replicas,):
        raise loss.fault(f"returned a tensor of shape {tuple(own.shape[1:])}; expected one number")
    if not own.requires_grad:
        raise loss.fault("does not depend on a parameter that requires gradients; expected at least one")


def optimizer_of(job: Job, device: torch.device) -> MakeOptimizer:
    """The factory of a job's optimizer; a `UserError` if its options are wrong, or replicas influence each other."""
    make = partial(job.model.optimizer.build, Optimizer)
    with job.model.optimizer.blamed():  # it may raise anything at a tensor or a gradient that it cannot use
        alone = replicas_are_independent(make, device)
    if not alone:
        raise job.model.optimizer.fault(
            "lets the seeds of a pack influence each other, since it mixes the numbers of a tensor; "
            "expected an optimizer that treats each number by itself, such as optimizer=adamw"
        )
    return make


def replicas_are_independent(make: MakeOptimizer, device: torch.device) -> bool:
    """Whether a few steps on a stack of two replicas change the first replica as steps on it alone do.

    The second replica's gradients are a thousand times larger, to reveal any quantity that is computed over both.
    """
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, 3, 4), (2, 5))  # of a matrix and a vector of each replica
    start, *gradients = ([torch.randn(s, generator=generator).double() for s in shapes] for _ in range(STEPS + 1))

    def updates(replicas: int) -> list[Tensor]:
        values = [torch.nn.Parameter(x[:replicas].clone().to(device)) for x in start]
        optimizer = make([{"params": values[:1]}, {"params": values[1:], "weight_decay": 0.0}])
        for step in gradients:
            for value, (first, second) in zip(values, step, strict=True):
                value.grad = torch.stack([first, 1000.0 * second])[:replicas].to(value)
            optimizer.step(lambda: 0.0)  # Lightning gives a closure too
        return [value.detach().cpu()[0] - x[0] for value, x in zip(values, start, strict=True)]

    return all(
        torch.allclose(packed, alone, rtol=0, atol=CLOSE * float(alone.abs().max()))
        for packed, alone in zip(updates(2), updates(1), strict=True)
    )


def schedule_of(
    job: Job, data: TableData, make: MakeOptimizer
) -> tuple[Callable[[Optimizer], LRScheduler] | None, str]:
    """The factory of a job's scheduler (None for a constant rate), and its interval, ``step`` or ``epoch``.

    If the class has an argument ``steps_per_epoch``, as torch's `OneCycleLR` does, it is filled in. The first step is
    tried: a class that refuses its options, or whose step needs an argument, is a `UserError`.
    """
    if job.model.scheduler is None:
        return None, "step"
    arguments = dict(job.model.scheduler.arguments)
    interval = arguments.pop("interval", "step")
    factory = replace(job.model.scheduler, arguments=arguments)
    takes = inspect.signature(factory.load(LRScheduler)).parameters
    changes = data.steps_per_epoch if interval == "step" else 1  # in an epoch
    more = {"steps_per_epoch": changes} if "steps_per_epoch" in takes else {}
    made: Callable[[Optimizer], LRScheduler] = partial(factory.build, LRScheduler, **more)
    optimizer = make([{"params": [torch.nn.Parameter(torch.zeros(1))]}])
    scheduler = made(optimizer)
    optimizer.step()  # schedulers warn where it comes later
    change_rate(scheduler)
    return made, interval
