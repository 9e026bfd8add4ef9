"""How many replicas a device's memory holds, told from one network without running it."""

import gc
import os

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional as F

from ..system.machine import device_name

PLANNED = 0.6  # of the free memory; the rest is for what a backward pass and an evaluation need in passing


def training_bytes(network: nn.Module, prompt: Tensor, answer_in: Tensor) -> int:
    """What a replica keeps in memory during a training step, all on the ``meta`` device, so that nothing is computed.

    Four times its weights (gradients and Adam's two moments beside them), and what the backward pass reads again.

    Args:
        network: in training mode.
        prompt: (B, P).
        answer_in: (B, m).
    """
    saved: dict[int, int] = {}  # bytes by storage: many saved tensors are views of one

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        saved[storage._cdata] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(note, lambda tensor: tensor):
        logits = network(prompt, answer_in)
        loss = F.cross_entropy(logits.flatten(0, 1), answer_in.flatten())  # keeps every noted storage alive
    weights = {p.untyped_storage()._cdata: p.untyped_storage().nbytes() for p in network.parameters()}
    activations = sum(size for storage, size in saved.items() if storage not in weights)
    del loss
    return 4 * sum(weights.values()) + activations


def free_bytes(device: torch.device) -> int:
    """Memory that a program may still take: on CUDA what the driver says, elsewhere half of the machine's."""
    if device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()  # what an earlier job of a sweep has left
        return int(torch.cuda.mem_get_info(device)[0])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def fitting(wanted: int, replica: int, device: torch.device) -> int:
    """How many of the ``wanted`` replicas, of ``replica`` bytes each, to train at once; says so if it is not all."""
    free = free_bytes(device)
    count = max(1, int(PLANNED * free / replica))
    if count < wanted:
        gibibytes = f"{replica / 2**30:.2g} GiB a replica, {free / 2**30:.3g} GiB free on {device_name(device)}"
        print(f"pack.max_replicas=auto: {gibibytes}; {wanted} replicas become several packs")
    return count
