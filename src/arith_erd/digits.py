"""Conversions between integers, digits and tokens (paper, section 3 and table 2).

The worked example, at three bits and in the default reverse order (least significant bit first)::

    3 + 5 = 8      prompt      1 1 0 + 1 0 1     tokens  4 4 3 2 4 3 4
                   completion  0 0 0 1           tokens  3 3 3 4

Base 2 has the paper's five tokens. Base B has 3 + B: digit d is token ``ZERO + d``. In base 10 with two digits,
``47 + 85 = 132`` has the prompt ``74+58``, tokens ``10 7 2 8 11``, and the completion ``231``, tokens ``5 6 4``.

Arrays of digits are least significant first everywhere. Only token sequences have a choice of order.
"""

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.int64]
Order = Literal["reverse", "plain"]

PAD, START, OPERATOR, ZERO, ONE = range(5)
VOCAB_SIZE = 5  # in base 2
ORDERS: tuple[Order, ...] = get_args(Order)
DIGITS = "0123456789abcdef"
MAX_BASE = len(DIGITS)


def to_digits(values: npt.ArrayLike, width: int, base: int = 2) -> Array:
    """Integers (...,) -> digits (..., width), least significant first: 47 at width 3 in base 10 is ``7 4 0``."""
    return np.asarray(values, dtype=np.int64)[..., None] // base ** np.arange(width, dtype=np.int64) % base


def from_digits(digits: npt.ArrayLike, base: int = 2) -> Array:
    """Digits (..., width), least significant first -> integers (...,): the inverse of `to_digits`."""
    digits = np.asarray(digits, dtype=np.int64)
    return digits @ base ** np.arange(digits.shape[-1], dtype=np.int64)


def num_digits(largest: int, base: int = 2) -> int:
    """The number of digits of ``largest``: 6 for 45 in base 2, 2 in base 10."""
    return len(np.base_repr(largest, base))


def reorder(digits: Array, order: Order) -> Array:
    """Digits least significant first <-> digits as written in ``order``; its own inverse."""
    return digits if order == "reverse" else digits[..., ::-1]


def render(tokens: Array, operator: str = "+") -> list[str]:
    """Tokens (N, T) -> N strings over ``. s + 0 1 .. 9 a .. f``, with the task's own operator sign."""
    symbols = np.array([".", "s", operator, *DIGITS])
    return ["".join(row) for row in symbols[tokens]]


def decoder_tokens(prefixes: npt.ArrayLike, t: int, base: int = 2) -> Array:
    """The decoder's input (N, t + 1) after the prefixes of t digits that integers (N,) spell."""
    digits = to_digits(prefixes, t, base) + ZERO
    return np.hstack([np.full((len(digits), 1), START), digits])
