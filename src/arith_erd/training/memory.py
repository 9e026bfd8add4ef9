"""Does a pack fit into memory, and if not, how many replicas fit? Errors that still occur become one line."""

import gc
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import torch
from lightning.pytorch.callbacks import Checkpoint
from torch._dynamo.exc import TorchDynamoException

from ..config.job import Job
from ..errors import UserError, bad_value, first_line
from ..seeds import format_ranges
from ..system.machine import device_name, memory_limit
from .build import build_module, build_task_data, make_trainer

COPIES_PER_WEIGHT = 4  # a weight itself, its gradient and Adam's two moments
MEASURED_PACKS = (2, 3)  # replicas; one alone would be trained without vmap
EVALUATED = 256  # examples in an evaluation batch of a large pack: `data.evaluation_batch_size`
MEASURED_DEVICE = "cuda"  # packs elsewhere are not measured
USABLE = 0.95  # share of the free memory that a pack may use, since the allocator cannot fill every gap


class CompilerError(UserError):
    """PyTorch's compiler fails: there is no C++ compiler or no OpenMP, a path has a space, a disk is full, .."""


class PackTooLargeError(UserError):
    """A pack needs more memory than is free, by measurement. ``size`` replicas fit, in the fewest equal packs."""

    def __init__(self, job: Job, fits: int, need: str) -> None:
        self.size, self.need = math.ceil(len(job.seeds) / math.ceil(len(job.seeds) / fits)), need
        super().__init__(f"seed={format_ranges(job.seeds)}: {need}; expected pack.max_replicas={fits} or less")


def free_bytes(device: torch.device) -> int:
    """Empty the cache of a CUDA device, and return the number of bytes that are free then."""
    gc.collect()
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info(device)[0]


def peak_bytes(device: torch.device, work: Callable[[], None]) -> int:
    """Do some work, and return the most memory that tensors on a device held meanwhile."""
    torch.cuda.reset_peak_memory_stats(device)
    work()
    return torch.cuda.max_memory_allocated(device)


def require_memory(job: Job, device: torch.device) -> None:
    """Refuse a pack that needs more memory than there is: on CUDA by measurement, else by the size of its weights.

    Raises:
        PackTooLargeError: if fewer replicas fit.
        MemoryError: if not even one replica fits, or if weights, gradients and Adam's moments do not fit.
    """
    if device.type == MEASURED_DEVICE and len(job.seeds) > max(MEASURED_PACKS):
        if not job.run.checkpoint_file.is_file():  # a run with a checkpoint has fitted before
            _require_measured_memory(job, device)
        return
    with torch.device("meta"):
        parameters = job.network().num_parameters
    needed = COPIES_PER_WEIGHT * len(job.seeds) * parameters * (8 if job.trainer.precision == "64-true" else 4)
    free = torch.cuda.mem_get_info(device)[1] if device.type == "cuda" else memory_limit()
    if needed > free:
        raise MemoryError(f"at least {needed / 2**30:.3g} GiB, and there are {free / 2**30:.3g}")


def _require_measured_memory(job: Job, device: torch.device) -> None:
    """Extrapolate the peaks of two small packs, since memory grows linearly.

    Eager packs come first: they need more memory, but save a minute of compilation.
    """
    replicas, usable = len(job.seeds), USABLE * free_bytes(device)
    for compile in dict.fromkeys((False, job.trainer.compile)):
        trainer = replace(job.trainer, compile=compile)
        packs = [replace(job, seed=job.seeds[:size], trainer=trainer) for size in MEASURED_PACKS]
        few, more = (peak_bytes(device, partial(train_briefly, pack)) for pack in packs)
        needed = few + (replicas - MEASURED_PACKS[0]) * (more - few)
        fits = MEASURED_PACKS[0] + int((usable - few) // (more - few))
        need = f"a pack of {replicas} needs {needed / 2**30:.3g} GiB of {usable / 2**30:.3g} on {device_name(device)}"
        if replicas <= fits:
            print(f"pack.max_replicas={job.pack.max_replicas}: {need}")
            free_bytes(device)
            return
    if fits < 1:
        raise MemoryError(need)
    raise PackTooLargeError(job, fits, need)


def train_briefly(job: Job) -> None:
    """Train a pack for two epochs of a few examples, with their evaluation."""
    # Two epochs, since only the second one starts with Adam's moments.
    job = replace(job, trainer=replace(job.trainer, max_epochs=2, cuda_graphs=False))
    trainer = make_trainer(job.trainer, [Checkpoint()])  # saves nothing; without it Lightning adds one that does
    data = build_task_data(job)
    module = build_module(job, trainer.strategy.root_device, data)
    data.train = tuple(x[: max(job.data.batch_size, EVALUATED)] for x in data.train)
    data.validation = tuple(x[:EVALUATED] for x in data.validation)
    data.slices = {}
    trainer.fit(module, data)


@contextmanager
def explain_errors_of_torch(job: Job, device: torch.device) -> Iterator[None]:
    """Raise a `UserError` when PyTorch cannot allocate memory, compile, or capture a CUDA graph."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if skipped := re.search("skipping cudagraphs .*", str(error)):  # inside the compiler, or later
            raise bad_value("trainer.cuda_graphs", "true", f"false, since PyTorch says: {skipped[0]}") from error
        if isinstance(error, TorchDynamoException):
            if job.trainer.compile is False:  # somebody's own network compiles itself
                raise
            raise CompilerError(f"the compiler fails here: {first_line(error)}") from error
        if not isinstance(error, torch.OutOfMemoryError | MemoryError) and "can't allocate memory" not in str(error):
            raise
        smaller = "pack.max_replicas" if len(job.seeds) > 1 else "data.batch_size or model.net"
        raise UserError(
            f"seed={format_ranges(job.seeds)}: a pack of {len(job.seeds)} at data.batch_size={job.data.batch_size}: "
            f"too large for the memory of {device_name(device)} ({first_line(error)}); expected a smaller {smaller}"
        ) from error
