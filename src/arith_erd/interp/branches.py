"""Many answers to the same prompts in one pass: a clean one, and branches that leave it.

A causal decoder's output at position t does not depend on later tokens. So a branch that differs from the clean answer
from position s on needs only its tokens from s on; they attend to the clean tokens before s. Seven-bit addition with
each token inverted in turn takes 8 + 28 tokens instead of 7 x 8, and computes the prompt's keys and values once.
"""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..bits import ONE, UNUSED, VOCAB_SIZE, ZERO
from ..errors import UserError
from ..models.network import Network, Tree

LARGEST = 64  # tokens of the branches in one pass: the cost of attention is quadratic in them
BATCH = 32  # larger batches are slower on a CPU: 1,024 pairs take 5.2 s at 32 and 8.6 s at 256


@dataclass(frozen=True)
class Branch:
    """Decoder inputs (N, L) at the positions ``start .. start + L - 1``, in place of the clean ones."""

    start: int
    tokens: Tensor


def require_tree(network: Network, probe: str) -> None:
    """Refuse a network whose ``decode`` takes no `Tree`.

    Raises:
        UserError: naming the probe and the models that have one.
    """
    if "tree" not in inspect.signature(network.decode).parameters:
        received = f"received a network {type(network).__name__} whose decode takes no tree"
        raise UserError(f"probe={probe}: {received}; expected model transformer or nanogpt")


@torch.no_grad()
def answers_to(
    network: Network, prompt: Tensor, answer_in: Tensor, branches: Sequence[Branch], batch_size: int = BATCH
) -> tuple[Tensor, list[Tensor]]:
    """The likeliest token after each decoder input, of the clean answer and of the branches.

    Args:
        network: in evaluation mode.
        prompt: (N, P).
        answer_in: (N, m), the clean decoder inputs ``<start> r_0 .. r_{m-2}``.
        branches: at least one.

    Returns:
        Tokens (N, m), and (N, L) for each branch.
    """
    groups = list(_groups(branches))
    trees = [_tree(answer_in.shape[1], group, prompt.device) for group in groups]
    batches: list[list[Tensor]] = []
    for part in torch.arange(len(prompt), device=prompt.device).split(batch_size):
        memory = network.encode(prompt[part])
        found: list[Tensor] = []
        for group, tree in zip(groups, trees, strict=True):
            inputs = [answer_in[part], *(branch.tokens[part] for branch in group)]
            tokens = network.decode(memory, torch.cat(inputs, dim=1), tree).argmax(dim=-1)  # (B, T)
            clean, *rest = tokens.split([x.shape[1] for x in inputs], dim=1)
            found += rest
        batches.append([clean, *found])
    clean, *found = (torch.cat(parts) for parts in zip(*batches, strict=True))
    return clean, found


def _groups(branches: Sequence[Branch]) -> Iterator[list[Branch]]:
    """Split the branches, in order, into groups that fit into one pass."""
    group: list[Branch] = []
    for branch in branches:
        if group and sum(other.tokens.shape[1] for other in [*group, branch]) > LARGEST:
            yield group
            group = []
        group.append(branch)
    yield group


def _tree(length: int, branches: Sequence[Branch], device: torch.device) -> Tree:
    """A clean answer of ``length`` tokens, then the branches; each attends to the clean tokens before its start."""
    positions = [torch.arange(length)]
    future = [torch.ones(length, length).triu(1).bool()]
    for branch in branches:
        size = branch.tokens.shape[1]
        positions.append(torch.arange(branch.start, branch.start + size))
        future.append(torch.ones(size, size).triu(1).bool())
    hidden = ~torch.block_diag(*(~own for own in future)).bool()  # (T, T): no branch attends to another
    at = length
    for branch in branches:
        size = branch.tokens.shape[1]
        hidden[at : at + size, : branch.start] = False
        at += size
    return Tree(torch.cat(positions).to(device), hidden.to(device))


@contextmanager
def neutral_token(network: Network) -> Iterator[None]:
    """Within the context the embedding of the token `UNUSED` is the mean of those of 0 and 1.

    The weights stay as they are, so that a head tied to the embedding gives the same logits.
    """

    def hook(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        weight = module.weight
        assert isinstance(weight, Tensor)
        neutral = (weight[ZERO] + weight[ONE]) / 2  # (C,)
        return torch.where((inputs[0] == UNUSED)[..., None], neutral, output)

    of_tokens = [m for m in network.modules() if isinstance(m, nn.Embedding) and m.num_embeddings == VOCAB_SIZE]
    handles = [module.register_forward_hook(hook) for module in of_tokens]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
