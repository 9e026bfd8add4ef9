"""One step of a pack before its run starts: a network or a loss of one's own may be wrong without raising anything."""

import torch
from torch import Tensor, nn

from ..config.job import Job
from ..models.weights import initialise
from .data import TableData
from .pack import Pack

EXAMPLES = 2  # of each replica; with one, a loss for each example would look like one for each replica


def begin_loss(job: Job, pack: Pack, data: TableData) -> None:
    """Have a pack's loss make its parameters; try it and the network: a few examples, eager, all replicas at once.

    Raises:
        UserError: if one of them fails, or gives another shape; if the network has a state besides its parameters, or
            the loss does not reach these; or if the loss of a replica depends on more than the replica.
    """
    net, loss, replicas = job.model.net, job.model.loss, len(pack.seeds)
    prompt, completion, *targets = (x[:EXAMPLES].expand(replicas, *x[:EXAMPLES].shape) for x in data.train)
    other = initialise(pack.make_network, pack.seeds[0] ^ 1)
    if more := sorted(other.state_dict().keys() - dict(other.named_parameters())):
        accepted = "parameters under one name each, and buffers with persistent=False"
        raise net.fault(f"also keeps {', '.join(more)}; expected {accepted}")
    for name, module in other.named_modules():
        if isinstance(module, nn.RNNBase):
            accepted = "expected a layer of arith_erd.models.recurrent, as in model=lstm"
            raise net.fault(f"{name} is an nn.{type(module).__name__}, which vmap cannot batch; {accepted}")
    with net.blamed():  # vmap refuses random numbers
        logits, activation = pack.trial(prompt, completion)
    expected = (*completion.shape, job.task.vocab_size)
    runs = 1 if data.loss.exchanges() else 0  # an axis of further runs, behind that of the replicas
    if (*logits.shape[:1], *logits.shape[1 + runs :]) != expected:
        raise net.fault(f"gives logits of shape {tuple(logits.shape[1:])}; expected (B, m, V), here {expected[1:]}")
    buffers = dict(pack.stacked.named_buffers())
    for name, buffer in other.named_buffers():
        if not torch.equal(buffer, buffers[name]):
            raise net.fault(f"draws or changes its buffer {name}; expected parameters for what is not constant")
    if activation is not None:
        with loss.blamed():
            pack.loss.begin(replicas, activation.shape[2:], targets[0].shape[-1] if targets else 0)

    def losses(rows: Tensor | slice = slice(None)) -> Tensor:
        more = [None if x is None else x[rows] for x in (activation, targets[0] if targets else None)]
        with loss.blamed():
            return pack.loss_of(logits[rows], completion[rows], *more)

    own = losses()
    if own.shape != (replicas,):
        raise loss.fault(f"gives a tensor of shape {tuple(own.shape)}; expected ({replicas},), one loss for each seed")
    learnt = [parameter for parameter in pack.stacked.parameters() if parameter.requires_grad]
    reached = torch.autograd.grad(own.sum(), learnt, allow_unused=True) if own.requires_grad and learnt else ()
    if all(gradient is None for gradient in reached):
        raise loss.fault("does not depend on a parameter of the network that requires gradients; expected one at least")
    with torch.no_grad():
        for index in range(replicas):  # each with the rows of the others exchanged
            rows = torch.arange(replicas).roll(1)
            rows[index] = index
            if not torch.allclose(losses(rows)[index], own[index], equal_nan=True):
                accepted = "expected one of its own tensors alone"
                raise loss.fault(f"depends for each seed on other seeds, earlier calls or random numbers; {accepted}")
