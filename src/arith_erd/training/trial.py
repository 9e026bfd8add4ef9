"""One step of a pack before its run starts: a network or a loss of one's own may be wrong without raising anything."""

import torch
from torch import Tensor

from ..config.job import Job
from ..models.decoding import shift_right
from ..models.dropout import set_dropout_keys
from ..models.weights import initialise
from .data import TableData
from .pack import Pack

EXAMPLES = 2  # of each replica; with one, a loss for each example would look like one for each replica


def try_step(job: Job, pack: Pack, data: TableData) -> None:
    """Call the network and the loss of a pack on a few examples: on the CPU, eager, all replicas at once.

    Raises:
        UserError: if one of them fails, or gives another shape or no numbers; if the network has a state besides its
            parameters; if one of them draws random numbers; or if the loss of one replica depends on another.
    """
    replicas = len(pack.seeds)
    prompt, completion, *targets = (x[:EXAMPLES].expand(replicas, *x[:EXAMPLES].shape) for x in data.train)
    _try_network(job, pack, prompt[0], completion[0])
    net = job.model.net
    with net.blamed(), torch.no_grad():
        logits, activation = pack.trial(prompt, completion)
    exchanged = None
    if data.loss.exchanges():
        logits, exchanged = logits[:, 0], logits[:, 1:]
    expected = (*completion.shape, job.task.vocab_size)
    if logits.shape != expected:
        raise net.fault(f"gives logits of shape {tuple(logits.shape[1:])}; expected (B, m, V), here {expected[1:]}")
    _try_loss(job, pack, [logits, completion, activation, targets[0] if targets else None], exchanged)


def _try_network(job: Job, pack: Pack, prompt: Tensor, completion: Tensor) -> None:
    """Call the network of one seed: prompt (B, P), completion (B, m)."""
    net = job.model.net
    network, other = (initialise(pack.make_network, seed) for seed in (0, 1))
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise net.fault("has no parameters that require gradients; expected some to train")
    if more := sorted(network.state_dict().keys() - dict(network.named_parameters())):
        accepted = "parameters under one name each, and buffers with persistent=False"
        raise net.fault(f"also keeps {', '.join(more)}; expected {accepted}")
    set_dropout_keys(network, pack.replica_keys[0])
    buffers = dict(network.named_buffers())
    for name, buffer in other.named_buffers():
        if not torch.equal(buffer, buffers[name]):
            raise net.fault(f"draws its buffer {name}; expected parameters for what differs between seeds")
    before, versions = torch.get_rng_state(), {name: buffer._version for name, buffer in buffers.items()}
    with net.blamed(), torch.no_grad():
        network(prompt, shift_right(completion))
    if not torch.equal(before, torch.get_rng_state()):
        raise net.fault("draws random numbers; expected those of arith_erd.models.dropout.Dropout alone")
    for name, buffer in network.named_buffers():
        if buffer is not buffers.get(name) or buffer._version != versions[name]:
            raise net.fault(f"changes its buffer {name}; expected buffers that stay as they are")


def _try_loss(job: Job, pack: Pack, given: list[Tensor | None], exchanged: Tensor | None = None) -> None:
    """Call the loss on what the replicas gave; and, for each of them, with the rows of the others exchanged."""
    loss, replicas = job.model.loss, len(pack.seeds)
    computed = [x.requires_grad_() for x in (given[0], given[2]) if x is not None]  # logits and activation

    def losses(rows: Tensor | slice = slice(None)) -> Tensor:
        with loss.blamed():
            more = {} if exchanged is None else {"exchanged": exchanged[rows]}
            result: Tensor = pack.loss(*(None if x is None else x[rows] for x in given), **more)
            return result

    own = losses()
    if own.shape != (replicas,):
        raise loss.fault(f"gives a tensor of shape {tuple(own.shape)}; expected ({replicas},), one loss for each seed")
    if not own.isfinite().all():
        raise loss.fault(f"gives {own.detach()[~own.isfinite()][0].item()} at the first step; expected a finite number")
    if not own.requires_grad or all(g is None for g in torch.autograd.grad(own.sum(), computed, allow_unused=True)):
        raise loss.fault("does not depend on what the network computes; expected a loss that can be minimised")
    with torch.no_grad():
        if not torch.equal(losses(), own):
            raise loss.fault("gives another value at the second call; expected no randomness and no state")
        for index in range(replicas if replicas > 1 else 0):
            rows = torch.arange(replicas).roll(1)
            rows[index] = index
            if not torch.allclose(losses(rows)[index], own[index]):
                raise loss.fault("gives each seed a loss that depends on other seeds; expected one on its own alone")
