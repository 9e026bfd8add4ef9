"""Make the parts of a training run from its job (data, trainer, pack, loss, optimizer, schedule), and test them.

A user's network, loss or optimizer may be wrong in a pack without raising an error. For example, Adafactor divides by
norms of whole tensors, so replicas stacked in one tensor would influence each other.
"""

import inspect
import logging
import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import lightning as L
import numpy as np
import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ..config.job import Job, read_job
from ..config.schema import TrainerConfig
from ..errors import UserError, bad_value
from ..losses import Loss
from ..models.network import initialise, is_causal, shift_right
from ..system.cli_errors import naming_user_code
from ..system.machine import configure_matmul
from .checkpoint import DirectCheckpointIO
from .data import TaskData
from .lit_pack import LitPack, step_scheduler
from .pack import Pack, should_compile

TRIAL_EXAMPLES = 2  # for each replica; with a single one, a loss per example would look like a loss per replica
TRIAL_STEPS = 3
TOLERANCE = 1e-6  # relative to the largest update: far above rounding in 64 bits, far below a norm over two replicas

MakeOptimizer = Callable[[list[dict[str, Any]]], Optimizer]


def build_module(job: Job, device: torch.device, data: TaskData | None = None) -> LitPack:
    """Make the pack of a job's seeds, still on the CPU; a `UserError` if network or recipe cannot train a pack.

    This also makes the loss, which gives its targets to ``data``; by default ``data`` is made from the job.
    """
    configure_matmul()
    data, loss = data or build_task_data(job), job.model.loss.build(Loss)
    compile = should_compile(job, device, data.steps_per_epoch, loss)
    if compile:
        torch.compiler.reset()  # else earlier jobs' packs count towards its limit of eight versions
    pack = Pack(job.network, job.seeds, compile, job.trainer.cuda_graphs, loss)
    check_network(job, pack, data)
    prepare_loss(job, pack, data)
    make_optimizer = checked_optimizer(job, device)
    module = LitPack(pack, make_optimizer, job.model.gradient_clip, *checked_scheduler(job, data, make_optimizer))
    if job.trainer.precision == "64-true":
        module.double()  # Lightning does so only after it has loaded a checkpoint, and would cut the digits
    return module


def build_task_data(job: Job) -> TaskData:
    """The task's table, divided by the split.

    Raises:
        UserError: if one part is empty; if task and split give other examples when they are made again, as `load_run`
            does; or if the split gives another answer when it is asked again.
    """
    with naming_user_code("examples", job.task, job.split):
        data, again = (
            TaskData(same_job.task, same_job.split, same_job.seeds, same_job.data.batch_size, same_job.data.examples)
            for same_job in (job, read_job(job.resolved))
        )
    held_out, total = len(data.held_out), len(data.examples)
    if not 0 < held_out < total:
        split = f"split={job.option_names['split']}"  # not its repr, which may be an address
        raise UserError(f"{split}: holds out {held_out:,} of {total:,} examples; expected at least 1, and not all")
    asked_again = np.flatnonzero(np.asarray(job.split(data.examples)))
    for group, mine, others in (
        ("task", data.examples.completion, again.examples.completion),
        ("split", data.held_out, again.held_out),
        ("split", data.held_out, asked_again),
    ):
        if not np.array_equal(mine, others):
            what = f"{group}={job.option_names[group]}: gives other examples when it is made or asked again"
            raise UserError(f"{what}; expected the same each time, from a generator with a seed")
    return data


def make_trainer(options: TrainerConfig, callbacks: list[L.Callback]) -> L.Trainer:
    """Make a trainer that leaves logging and saving to callbacks; a `UserError` if the device is missing."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    # Apple's GPU, which Lightning would choose too, has no 64-bit numbers.
    best = "cuda" if torch.cuda.is_available() else "cpu"
    accelerator = {"auto": best, "gpu": "cuda"}.get(options.accelerator, options.accelerator)
    if accelerator == "cuda" and best == "cpu":
        raise bad_value("trainer.accelerator", options.accelerator, "cpu or auto: PyTorch sees no CUDA device here")
    return L.Trainer(
        max_epochs=options.max_epochs,
        precision=options.precision,
        accelerator=accelerator,
        devices=1,
        callbacks=callbacks,
        # Under Slurm, Lightning's own choice would save and requeue from inside a signal's handler.
        plugins=[LightningEnvironment(), DirectCheckpointIO()],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )


def trial_batch(data: TaskData, replicas: int) -> list[Tensor]:
    """The first two training examples for each of R replicas: prompts (R, 2, P), completions (R, 2, m), targets."""
    return [x[:TRIAL_EXAMPLES].expand(replicas, *x[:TRIAL_EXAMPLES].shape) for x in data.train]


def check_network(job: Job, pack: Pack, data: TaskData) -> None:
    """Run the network without compilation; a `UserError` if a pack of it would train wrongly."""
    net, batch = job.model.net, trial_batch(data, len(pack.seeds))
    network = initialise(pack.make_network, pack.seeds[0] ^ 1)  # a network of another seed
    if state := sorted(network.state_dict().keys() - dict(network.named_parameters())):
        accepted = "parameters under one name each, and buffers with persistent=False"
        raise net.error_about(f"its state_dict also holds {', '.join(state)}; expected {accepted}")
    again = initialise(pack.make_network, pack.seeds[0]).state_dict()
    for name, value in pack.replica_state(0).items():
        if not torch.allclose(value, again[name], rtol=0, atol=0, equal_nan=True):
            raise net.error_about(f"a seed gives {name} other values each time; expected values from torch's generator")
    for name, module in network.named_modules():
        if isinstance(module, torch.nn.RNNBase):
            accepted = "expected a layer of arith_erd.models.baselines, as in model=lstm"
            raise net.error_about(f"{name} is an nn.{type(module).__name__}, which vmap cannot batch; {accepted}")
    with net.explain_errors():  # vmap refuses random numbers
        logits = pack.dry_run(*batch)
    expected = (*batch[1].shape, job.task.vocab_size)
    if logits.shape != expected:
        raise net.error_about(f"returned logits {tuple(logits.shape[1:])}; expected (B, m, V), here {expected[1:]}")
    buffers = dict(pack.stacked.named_buffers())
    for name, buffer in network.named_buffers():
        if not torch.equal(buffer, buffers[name]):
            raise net.error_about(f"its buffer {name} is random or changes; expected a constant buffer, or a parameter")
    prompt, completion = batch[0][0], batch[1][0]
    with net.explain_errors():
        causal = is_causal(partial(network.eval().to(prompt.device), prompt), shift_right(completion))
    if not causal:
        raise net.error_about("its logits depend on later tokens of the answer; expected a causal network")


def prepare_loss(job: Job, pack: Pack, data: TaskData) -> None:
    """Let the loss give its targets to ``data``, and run it; a `UserError` if it cannot train a pack."""
    loss, replicas = job.model.loss, len(pack.seeds)
    with loss.explain_errors():
        data.set_targets(pack.prepare_loss(job.task, data.examples))
        losses = pack.dry_run(*trial_batch(data, replicas), loss=True)
    if losses.shape != (replicas,):
        raise loss.error_about(f"returned a tensor of shape {tuple(losses.shape[1:])}; expected one number")
    if not losses.requires_grad:
        raise loss.error_about("does not depend on a parameter that requires gradients; expected at least one")


def checked_optimizer(job: Job, device: torch.device) -> MakeOptimizer:
    """A function that makes the optimizer; a `UserError` if options are wrong, or replicas influence each other."""
    make = partial(job.model.optimizer.build, Optimizer)
    with job.model.optimizer.explain_errors():  # it may raise anything for tensors or gradients that it cannot use
        independent = replicas_are_independent(make, device)
    if not independent:
        raise job.model.optimizer.error_about(
            "lets the seeds of a pack influence each other, since it mixes the numbers of a tensor; "
            "expected an optimizer that treats each number by itself, such as optimizer=adamw"
        )
    return make


def replicas_are_independent(make: MakeOptimizer, device: torch.device) -> bool:
    """Whether a few steps on a stack of two replicas change the first replica as steps on that replica alone do.

    The second replica's gradients are a thousand times larger, to reveal any quantity that is computed over both.
    """
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, 3, 4), (2, 5))  # a matrix and a vector of each replica
    start, *gradients = ([torch.randn(s, generator=generator).double() for s in shapes] for _ in range(TRIAL_STEPS + 1))

    def updates(replicas: int) -> list[Tensor]:
        values = [torch.nn.Parameter(x[:replicas].clone().to(device)) for x in start]
        optimizer = make([{"params": values[:1]}, {"params": values[1:], "weight_decay": 0.0}])
        for step in gradients:
            for value, (first, second) in zip(values, step, strict=True):
                value.grad = torch.stack([first, 1000.0 * second])[:replicas].to(value)
            optimizer.step(lambda: 0.0)  # Lightning gives a closure too
        return [value.detach().cpu()[0] - x[0] for value, x in zip(values, start, strict=True)]

    return all(
        torch.allclose(packed, alone, rtol=0, atol=TOLERANCE * float(alone.abs().max()))
        for packed, alone in zip(updates(2), updates(1), strict=True)
    )


def checked_scheduler(
    job: Job, data: TaskData, make_optimizer: MakeOptimizer
) -> tuple[Callable[[Optimizer], LRScheduler] | None, str]:
    """A function that makes the scheduler (None for a constant rate), and its interval, ``step`` or ``epoch``.

    It fills in an argument ``steps_per_epoch``, as torch's `OneCycleLR` has, and tries the first step.
    """
    if job.model.scheduler is None:
        return None, "step"
    arguments = dict(job.model.scheduler.arguments)
    interval = arguments.pop("interval", "step")
    spec = replace(job.model.scheduler, arguments=arguments)
    if "steps_per_epoch" in inspect.signature(spec.import_class(LRScheduler)).parameters:
        arguments["steps_per_epoch"] = data.steps_per_epoch if interval == "step" else 1
        part, epochs = arguments.get("pct_start"), arguments.get("epochs")
        if isinstance(part, float) and isinstance(epochs, int) and part * epochs * arguments["steps_per_epoch"] == 1:
            # A warm-up of one step divides by zero (torch 2.13); a shorter one has no step at all.
            arguments["pct_start"] = math.nextafter(part, 0)
    make_scheduler: Callable[[Optimizer], LRScheduler] = partial(spec.build, LRScheduler)
    optimizer = make_optimizer([{"params": [torch.nn.Parameter(torch.zeros(1))]}])
    scheduler = make_scheduler(optimizer)
    optimizer.step()  # schedulers warn if it comes after their step
    step_scheduler(scheduler)
    return make_scheduler, interval
