"""Memory: what a replica needs, and what there is. Both are known before anything is allocated."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional as F

from ..config.job import Job
from ..errors import UserError
from ..models.dropout import set_dropout_keys
from ..seeds import format_seeds
from ..system.machine import device_name

COPIES = 4  # of each weight: itself, its gradient and Adam's two moments


def available_bytes(device: torch.device, root: Path = Path("/")) -> int:
    """On CUDA what the driver says is free; else what the machine and its control groups (containers, Slurm) allow."""
    if device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()  # left by an earlier job of a sweep
        return int(torch.cuda.mem_get_info(device)[0])
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    group = top = root / "sys/fs/cgroup"
    with suppress(OSError):
        lines = (root / "proc/self/cgroup").read_text(errors="replace").splitlines()
        group = top / next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), "")
    for file in (*(folder / "memory.max" for folder in (group, *group.parents)), top / "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # no such file, or the word "max"
            limits.append(int(file.read_text()))
    return min(limits)


def replica_bytes(job: Job) -> int:
    """Bytes that a replica keeps during a training step: `COPIES` of its weights, and what the backward pass reads."""
    saved = dict[int, int]()  # bytes by storage: many saved tensors are views of the same one

    def note(tensor: Tensor) -> Tensor:
        saved[tensor.untyped_storage()._cdata] = tensor.untyped_storage().nbytes()
        return tensor

    batch = min(job.data.batch_size, job.task.size)
    loss: Tensor | None = None  # it keeps every noted storage alive
    with torch.device("meta"):
        network = job.network().to(torch.float64 if job.trainer.precision == "64-true" else torch.float32)
        with suppress(Exception), saved_tensors_hooks(note, lambda tensor: tensor):  # `begin_loss` refuses what fails
            set_dropout_keys(network, torch.zeros(2, dtype=torch.int32))
            prompt, answer_in = (torch.zeros(batch, n).long() for n in (job.task.prompt_length, job.task.answer_length))
            loss = F.cross_entropy(network(prompt, answer_in).flatten(0, 1), answer_in.flatten())
    weights = {p.untyped_storage()._cdata: p.numel() * p.element_size() for p in network.parameters()}
    activations = sum(size for storage, size in saved.items() if storage not in weights)
    del loss
    return COPIES * sum(weights.values()) + activations


def require_room(job: Job, device: torch.device) -> None:
    """Raise a `UserError` for a pack that needs more memory than there is: how much, and what to make smaller."""
    free, needed = available_bytes(device), len(job.seeds) * replica_bytes(job)
    if needed > free:
        raise _does_not_fit(job, device, f"at least {needed / 2**30:.3g} GiB, and there are {free / 2**30:.3g}")


@contextmanager
def memory_errors_explained(job: Job, device: torch.device) -> Iterator[None]:
    """Turn an allocation that fails, on a CPU or a GPU, into a `UserError`."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error):
            raise _does_not_fit(job, device, "out of memory") from error
        raise


def _does_not_fit(job: Job, device: torch.device, why: str) -> UserError:
    number, smaller = f"{len(job.seeds)} replicas", "pack.max_replicas"
    if len(job.seeds) == 1:
        number, smaller = "a replica", "data.batch_size or model.net"
    return UserError(
        f"seed={format_seeds(job.seeds)}: {number} at data.batch_size={job.data.batch_size}: too large for the memory "
        f"of {device_name(device)} ({why}); expected a smaller {smaller}"
    )
