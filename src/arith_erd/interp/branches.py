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

from ..bits import ONE, START, UNUSED, VOCAB_SIZE, ZERO
from ..errors import UserError
from ..models.network import Network, Tree

TOKENS = 4096  # in one pass


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
    network: Network, prompt: Tensor, answer_in: Tensor, branches: Sequence[Branch], tokens: int = TOKENS
) -> tuple[Tensor, list[Tensor]]:
    """The likeliest token after each decoder input, of the clean answer and of the branches.

    Args:
        network: in evaluation mode.
        prompt: (N, P).
        answer_in: (N, m), the clean decoder inputs ``<start> r_0 .. r_{m-2}``.
        branches: at least one.
        tokens: of the decoder in one pass, at most; a single pair may have more.

    Returns:
        Tokens (N, m), and (N, L) for each branch.
    """
    length = answer_in.shape[1]
    tree, places = _tree(length, branches, prompt.device)
    total = len(tree.positions)
    batches: list[list[Tensor]] = []
    for part in torch.arange(len(prompt), device=prompt.device).split(max(1, tokens // total)):
        inputs = answer_in.new_full((len(part), total), START)  # where no branch is, anything will do
        inputs[:, :length] = answer_in[part]
        for branch, place in zip(branches, places, strict=True):
            inputs[:, place] = branch.tokens[part]
        found = network.decode(network.encode(prompt[part]), inputs, tree).argmax(dim=-1)  # (B, T)
        batches.append([found[:, :length], *(found[:, place] for place in places)])
    clean, *rest = (torch.cat(parts) for parts in zip(*batches, strict=True))
    return clean, rest


def _tree(length: int, branches: Sequence[Branch], device: torch.device) -> tuple[Tree, list[slice]]:
    """A clean answer of ``length`` tokens, then the branches; and where in the sequence each of them is.

    A token attends to the clean tokens before the start of its branch, and to those of its branch up to itself.
    """
    sizes = [branch.tokens.shape[1] for branch in branches]
    width, rows = max(sizes), _rows(sizes)
    positions = torch.cat([torch.arange(length), torch.zeros(len(rows) * width, dtype=torch.int64)])
    future = torch.ones(len(rows), width, length + width, dtype=torch.bool)
    future[:, torch.arange(width), length + torch.arange(width)] = False  # what attends to nothing gives NaN
    places = [slice(0)] * len(branches)
    for number, row in enumerate(rows):
        at = 0
        for index in row:
            start, size = branches[index].start, sizes[index]
            places[index] = slice(length + number * width + at, length + number * width + at + size)
            positions[places[index]] = torch.arange(start, start + size)
            future[number, at : at + size, :start] = False
            own = slice(length + at, length + at + size)
            future[number, at : at + size, own] = torch.ones(size, size).triu(1).bool()
            at += size
    return Tree(positions.to(device), future.to(device)), places


def _rows(sizes: Sequence[int]) -> list[list[int]]:
    """Pack branches into rows as wide as the largest: from the largest on, each into the first row with room for it."""
    rows: list[list[int]] = []
    for index in sorted(range(len(sizes)), key=lambda index: -sizes[index]):
        free = (row for row in rows if sum(sizes[i] for i in row) + sizes[index] <= max(sizes))
        if (row := next(free, None)) is None:
            rows.append(row := [])
        row.append(index)
    return rows


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
