"""How many replicas fit into a device's memory, estimated from one network without running it."""

import gc
import os

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional as F

from ..models.dropout import set_dropout_keys
from ..system.machine import device_name

PLANNED = 0.6  # of the free memory; the rest is for temporary tensors of the backward pass and the evaluation


def training_bytes(network: nn.Module, prompt: Tensor, answer_in: Tensor) -> int:
    """Bytes that one replica keeps during a training step, measured on the ``meta`` device without computing anything.

    These are four times its weights (with gradients and Adam's two moments), and the activations saved for the backward
    pass.

    Args:
        network: in training mode; its dropout layers get keys.
        prompt: (B, P).
        answer_in: (B, m).
    """
    set_dropout_keys(network, torch.zeros(2, dtype=torch.int32, device=prompt.device))
    saved: dict[int, int] = {}  # bytes by storage: many saved tensors are views of the same one

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
    """Memory that a program may still take: on CUDA as the driver reports it, elsewhere half of the machine's."""
    if device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()  # left by an earlier job of a sweep
        return int(torch.cuda.mem_get_info(device)[0])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def replicas_that_fit(wanted: int, replica: int, device: torch.device) -> int:
    """How many of the ``wanted`` replicas to train at once, at least one; prints a line if not all fit.

    Args:
        wanted: number of replicas.
        replica: bytes of one.
        device: where they are trained.
    """
    free = free_bytes(device)
    count = max(1, int(PLANNED * free / replica))
    if count < wanted:
        gibibytes = f"{replica / 2**30:.2g} GiB a replica, {free / 2**30:.3g} GiB free on {device_name(device)}"
        print(f"pack.max_replicas=auto: {gibibytes}; {wanted} replicas become several packs")
    return count
