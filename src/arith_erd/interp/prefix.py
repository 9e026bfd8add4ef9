"""Give a network a wrong prefix. Does its next token change?

The interventions run on all pairs of a task, at each position t >= 1, teacher forced. They change only answer tokens
before t::

    flip      r_(t-1) inverted
    neutral   its embedding replaced by the mean of the embeddings of 0 and 1
    start     replaced by <start>
    far       one earlier token inverted, each in turn
    random    all tokens of the prefix drawn at random

``flip`` tests whether the network is sensitive to the prefix, ``neutral`` whether it needs it. It can be sensitive
without needing it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..bits import ONE, START, UNUSED, ZERO, Array, from_bits
from ..models.decoding import shift_right
from ..models.network import Network
from .branches import Branch, answers_to, neutral_token
from .causal import CausalTask

INTERVENTIONS = ("flip", "neutral", "start", "far", "random")


@dataclass(frozen=True)
class Reading:
    """A network's answers at one position, after one kind of prefix.

    Attributes:
        position: t.
        intervention: one of `INTERVENTIONS`.
        tokens: (N,), the likeliest at t.
        prefix: (N, t), the bits that the network got; None if a token was not a bit.
    """

    position: int
    intervention: str
    tokens: Array
    prefix: Array | None


@dataclass(frozen=True)
class Readings:
    """The tokens (N, m) after right prefixes, and those after wrong ones."""

    clean: Array
    changed: list[Reading]


def read_prefixes(network: Network, pairs: CausalTask, draws: int = 2, seed: int = 0) -> Readings:
    """Every intervention at every position, for all N pairs of a task.

    Args:
        network: in evaluation mode.
        pairs: of its task.
        draws: random prefixes of each pair.
        seed: of those.
    """
    device = next(network.parameters()).device
    prompt, completion = (torch.as_tensor(x, device=device) for x in (pairs.examples.prompt, pairs.examples.completion))
    planned = [*_single_tokens(completion), *random_prefixes(completion, draws, seed)]
    with neutral_token(network):
        clean, found = answers_to(network, prompt, shift_right(completion), [branch for _, branch in planned])
    changed = [
        reading
        for (intervention, branch), tokens in zip(planned, found, strict=True)
        for reading in _readings(intervention, branch, tokens, completion)
    ]
    return Readings(clean.cpu().numpy(), changed)


def _single_tokens(completion: Tensor) -> Iterator[tuple[str, Branch]]:
    """Branches with one changed token. The input at position t is r_(t-1), the first token that a branch changes."""
    for t in range(1, completion.shape[1]):
        rest = completion[:, t - 1 : -1]  # r_(t-1) .. r_(m-2), (N, m - t)
        inverted = torch.cat([ZERO + ONE - rest[:, :1], rest[:, 1:]], dim=1)
        yield "flip", Branch(t, inverted)
        yield "neutral", Branch(t, torch.full_like(rest[:, :1], UNUSED))
        yield "start", Branch(t, torch.full_like(rest[:, :1], START))


def random_prefixes(completion: Tensor, draws: int, seed: int) -> Iterator[tuple[str, Branch]]:
    """As many branches as ``draws``, each a random prefix of every answer in ``completion``, (N, m)."""
    generator = torch.Generator().manual_seed(seed)  # on the CPU: the same prefixes on every device
    for _ in range(draws):
        tokens = torch.randint(ZERO, ONE + 1, (len(completion), completion.shape[1] - 1), generator=generator)
        yield "random", Branch(1, tokens.to(completion.device))


def _readings(intervention: str, branch: Branch, tokens: Tensor, completion: Tensor) -> Iterator[Reading]:
    """One reading per position of a branch. ``flip`` at the start of a branch is ``far`` for the later positions."""
    given = torch.cat([completion[:, : branch.start - 1], branch.tokens], dim=1)  # (N, start - 1 + L)
    bits = None if intervention in ("neutral", "start") else (given - ZERO).cpu().numpy()
    for i, found in enumerate(tokens.cpu().numpy().T):
        t = branch.start + i
        kind = "far" if intervention == "flip" and i else intervention
        yield Reading(t, kind, found, None if bits is None else bits[:, :t])


def distance(pairs: CausalTask, prefix: Array) -> np.ndarray:
    """Errors (N,) of prefixes (N, t): (right - given) / 2^t, in (-1, 1).

    This is the error of the remainder of the answer, in units of 2^t. A machine that rounds the remainder gives the
    other bit if the error exceeds 1/2. A single inverted r_(t-1) gives 1/2, where the machine ties.
    """
    t = prefix.shape[1]
    right = pairs.values["answer"][:, :t]
    return (from_bits(right) - from_bits(prefix)) / 2.0**t


def hypotheses(pairs: CausalTask, prefix: Array) -> dict[str, Array]:
    """Bit t (N,) that each hypothesis expects after the prefixes (N, t); -1 where it expects neither.

    ``prompt_only`` ignores the prefix. ``local_carry`` (addition only) reads r_(t-1): with the operand bits x, y at
    t - 1, the carry is [x + y + (1 - r_(t-1)) >= 2]. ``remainder`` takes the parity of round((S - p) / 2^t), with p the
    number that the prefix spells.

    Two more, for addition, put numbers in between. With c = (a mod 2^t + b mod 2^t - p) / 2^t, which is the carry if
    the prefix is right: ``graded_carry`` takes a_t xor b_t xor [c > 1/2]. ``local_remainder`` takes the parity of
    round(a_t + b_t + c), held between 0 and 3, or 1 in the last bit: the numbers of a right prefix.
    """
    t = prefix.shape[1]
    values = pairs.values
    bit = values["answer"][:, t]
    off = distance(pairs, prefix)
    tie = np.abs(off) == 0.5
    expected = {"prompt_only": bit}
    if "carry" in values:
        x, y = values["a_bit"][:, t - 1], values["b_bit"][:, t - 1]
        expected["local_carry"] = values["xor"][:, t] ^ (x + y + 1 - prefix[:, t - 1] >= 2)
    expected["remainder"] = np.where(tie, -1, bit ^ (np.abs(off) > 0.5))
    if "carry" in values:
        carry = values["carry"][:, t] + off
        column = values["a_bit"][:, t] + values["b_bit"][:, t]
        most = 1 if t == values["answer"].shape[1] - 1 else 3
        total = np.clip(np.round(column + carry), 0, most).astype(np.int64)
        expected["graded_carry"] = np.where(tie, -1, values["xor"][:, t] ^ (carry > 0.5))
        expected["local_remainder"] = np.where(tie, -1, total % 2)
    return expected


def strata(pairs: CausalTask, t: int) -> dict[str, Array]:
    """Masks (N,) of the strata: ``all``; for addition also ``propagate`` (a_(t-1) != b_(t-1)) and ``settled``."""
    everything = np.ones(len(pairs.a), dtype=bool)
    if "carry" not in pairs.values:
        return {"all": everything}
    propagate = pairs.values["xor"][:, t - 1] == 1
    return {"all": everything, "propagate": propagate, "settled": ~propagate}
