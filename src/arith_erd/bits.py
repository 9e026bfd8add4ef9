"""Integers, their bits, and the five tokens that a model sees (paper, section 3 and table 2).

The worked example, at three bits and in the default reverse order (least significant bit first)::

    3 + 5 = 8      prompt      1 1 0 + 1 0 1     tokens  4 4 3 2 4 3 4
                   completion  0 0 0 1           tokens  3 3 3 4

Bits are kept least significant first everywhere. Only token sequences have a choice of order.
"""

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.int64]
Order = Literal["reverse", "plain"]

UNUSED, START, OPERATOR, ZERO, ONE = range(5)
VOCAB_SIZE = 5
ORDERS: tuple[Order, ...] = get_args(Order)


def to_bits(values: npt.ArrayLike, width: int) -> Array:
    """Integers (...,) -> bits (..., width), least significant first: 6 at width 4 is ``0 1 1 0``."""
    return (np.asarray(values, dtype=np.int64)[..., None] >> np.arange(width)) & 1


def from_bits(bits: npt.ArrayLike) -> Array:
    """Bits (..., width), least significant first -> integers (...,): the inverse of `to_bits`."""
    bits = np.asarray(bits, dtype=np.int64)
    return bits @ (np.int64(1) << np.arange(bits.shape[-1]))


def partial(values: Array, width: int) -> Array:
    """Integers (N,) -> the numbers their lowest t + 1 bits spell (N, width): 6 at width 3 is ``0 2 6``."""
    return values[:, None] & ((np.int64(2) << np.arange(width)) - 1)


def reorder(bits: Array, order: Order) -> Array:
    """Bits least significant first <-> bits in ``order``; its own inverse."""
    return bits if order == "reverse" else bits[..., ::-1]


def encode_prompt(a: Array, b: Array, bits: int, order: Order) -> Array:
    """Operands (N,), (N,) -> prompt tokens (N, 2 * bits + 1)."""
    operator = np.full((len(a), 1), OPERATOR)
    operands = [reorder(to_bits(x, bits), order) + ZERO for x in (a, b)]
    return np.concatenate([operands[0], operator, operands[1]], axis=1)


def encode_completion(answer: Array, width: int, order: Order) -> Array:
    """Answers (N,) -> completion tokens (N, width)."""
    return reorder(to_bits(answer, width), order) + ZERO


def decode_completion(tokens: npt.ArrayLike, order: Order) -> Array:
    """Completion tokens (..., width) -> integers (...,).

    A model may answer with a token that is not a bit. Such a token counts as wrong where tokens are compared. Here,
    where a number is needed, it counts as 0.
    """
    return from_bits(reorder((np.asarray(tokens) == ONE).astype(np.int64), order))


def render(tokens: Array, operator: str = "+") -> list[str]:
    """Token rows (N, T) -> N strings over ``. s + 0 1`` with the task's own operator sign."""
    symbols = np.array([".", "s", operator, "0", "1"])
    return ["".join(row) for row in symbols[tokens]]
