"""The recipe of a replica: its optimizer and its learning rate schedule.

A pack has one optimizer for the stacks of all replicas' parameters, which must work on every number by itself, as Adam
does. Adafactor, which divides by norms of whole tensors, would let replicas influence each other.
"""

import inspect
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ..config.job import Job
from ..errors import UserError, first_line
from .data import TableData

STEPS = 3
CLOSE = 1e-6  # of the largest update; rounding in 64 bits is far below, a norm over two replicas far above

MakeOptimizer = Callable[[list[dict[str, Any]]], Optimizer]


def optimizer_of(job: Job, device: torch.device) -> MakeOptimizer:
    """The factory of a job's optimizer; a `UserError` if it refuses its options, or lets replicas influence others."""
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
    """Whether a few steps on a stack of two replicas move the first one as steps on it alone do.

    The second replica's gradients are a thousand times larger, so that any quantity taken over both shows.
    """
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, 3, 4), (2, 5))  # of a matrix and a vector of each replica
    start, *gradients = ([torch.randn(s, generator=generator).double() for s in shapes] for _ in range(STEPS + 1))
    for _, large in (gradient for step in gradients for gradient in step):
        large *= 1000.0

    def updates(replicas: int) -> list[torch.Tensor]:
        values = [torch.nn.Parameter(x[:replicas].clone().to(device)) for x in start]
        optimizer = make([{"params": values[:1]}, {"params": values[1:], "weight_decay": 0.0}])
        asked: list[int] = []

        def closure() -> float:  # Lightning gives one too
            asked.append(1)
            return 0.0

        for number, step in enumerate(gradients, 1):
            for value, gradient in zip(values, step, strict=True):
                value.grad = gradient[:replicas].to(value)
            optimizer.step(closure)
            if len(asked) != number:
                raise RuntimeError("expected a step(closure) that calls the closure once, as those of torch do")
        return [value.detach().cpu()[0] - x[0] for value, x in zip(values, start, strict=True)]

    return all(
        torch.allclose(packed, alone, rtol=0, atol=CLOSE * float(alone.abs().max()))
        for packed, alone in zip(updates(2), updates(1), strict=True)
    )


def schedule_of(job: Job, data: TableData, make: MakeOptimizer) -> Callable[[Optimizer], LRScheduler] | None:
    """The factory of a job's scheduler; None for a constant rate.

    A class that takes ``steps_per_epoch``, as torch's `OneCycleLR` does, is told how often it changes in an epoch. One
    that refuses its options, needs more than the number of steps, or begins with a wrong rate is a `UserError`.
    """
    schedule = job.model.scheduler
    if schedule is None:
        return None
    factory = schedule.scheduler
    takes = inspect.signature(factory.load(LRScheduler)).parameters
    changes = data.steps_per_epoch if schedule.interval == "step" else 1  # in an epoch
    more = {"steps_per_epoch": changes} if "steps_per_epoch" in takes else {}
    made: Callable[[Optimizer], LRScheduler] = partial(factory.build, LRScheduler, **more)

    value = torch.nn.Parameter(torch.zeros(1))  # tried with nothing to train
    value.grad = torch.zeros_like(value)
    optimizer = make([{"params": [value]}])
    scheduler = made(optimizer)
    optimizer.step()  # schedulers warn where it comes later
    change_rate(scheduler)
    return made


def change_rate(scheduler: LRScheduler) -> None:
    """Take a scheduler one step further, after the step that the rate until now was for.

    It is a `UserError` if that rate was negative or not finite, or the scheduler raises: `OneCycleLR` does at its end.
    """
    change = scheduler.last_epoch + 1
    for group in scheduler.optimizer.param_groups:
        if not 0 <= float(group["lr"]) < math.inf:
            accepted = "expected a schedule with rates of at least 0"
            raise UserError(f"model.scheduler: the rate is {float(group['lr']):.4g} at step {change:,}; {accepted}")
    try:
        scheduler.step()
    except Exception as error:  # ReduceLROnPlateau wants a number, and any class may raise anything
        why = f"change {change:,} fails with {first_line(error).rstrip('.')}"
        raise UserError(
            f"model.scheduler: {why}; expected a function of the step alone, for all epochs of the run"
        ) from error
