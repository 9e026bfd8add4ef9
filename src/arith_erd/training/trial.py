"""One step of a pack before its run starts: a network or a loss of one's own may be wrong without raising anything."""

import torch
from torch import Tensor

from ..config.job import Job
from .data import TableData
from .pack import Pack

EXAMPLES = 2
"""Of each replica. With one, a loss for each example would look like one for each replica."""


def try_step(job: Job, pack: Pack, data: TableData) -> None:
    """Call the network and the loss of a pack on a few examples: on the CPU, eager, all replicas at once.

    Raises:
        UserError: if one of them fails or gives another shape; if the network has a state besides its parameters, or
            randomness of its own; or if the loss of one replica depends on another.
    """
    replicas = len(pack.seeds)
    prompt, completion, *targets = (x[:EXAMPLES].expand(replicas, *x[:EXAMPLES].shape) for x in data.train)
    logits, activation = _try_network(job, pack, prompt, completion)
    loss = job.model.loss
    with loss.blamed():
        losses = pack.loss(logits.requires_grad_(), completion, activation, targets[0] if targets else None)
        shape = tuple(losses.shape)
    if shape != (replicas,):
        raise loss.fault(f"gives a tensor of shape {shape}; expected ({replicas},), one loss for each seed")
    if not losses.requires_grad:
        raise loss.fault("does not depend on the logits; expected a loss that can be minimised")
    (gradient,) = torch.autograd.grad(losses[0], logits)
    if gradient[1:].any():
        raise loss.fault("gives each seed a loss that depends on the logits of others; expected one on its own alone")


def _try_network(job: Job, pack: Pack, prompt: Tensor, completion: Tensor) -> tuple[Tensor, Tensor | None]:
    """Logits (R, B, m, V), and what the loss reads."""
    net = job.model.net
    with torch.device("meta"):
        network = pack.make_network()
    names = {name for name, _ in network.named_parameters()}
    if not names:
        raise net.fault("has no parameters; expected some to train")
    if more := sorted(network.state_dict().keys() - names):
        raise net.fault(
            f"also keeps {', '.join(more)}; expected parameters under one name each, and buffers with persistent=False"
        )
    buffers = dict(pack.stacked.named_buffers())
    before = torch.get_rng_state(), {name: buffer._version for name, buffer in buffers.items()}
    with net.blamed(), torch.no_grad():
        logits, activation = pack.trial(prompt, completion)
    if not torch.equal(before[0], torch.get_rng_state()):
        raise net.fault("draws random numbers; expected those of arith_erd.models.dropout.Dropout alone")
    if changed := [name for name, buffer in buffers.items() if buffer._version != before[1][name]]:
        raise net.fault(f"changes its buffer {changed[0]}; expected buffers that stay as they are")
    expected = (*completion.shape, job.task.vocab_size)
    if logits.shape != expected:
        raise net.fault(f"gives logits of shape {tuple(logits.shape[1:])}; expected (B, m, V), here {expected[1:]}")
    return logits, activation
