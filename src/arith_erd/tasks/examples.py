"""Examples of a task as arrays, and where the digits stand in their tokens."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..bits import Array

POSITION_ENCODINGS = ("learned", "sinusoidal", "none", "rope", "abacus", "coupled")
"""Position encodings of `models.positions`; here, since configurations are checked without torch."""


@dataclass(frozen=True)
class Layout:
    """The digits' places in a prompt, ``<start>`` and an answer without its last token, as position encodings need."""

    places: tuple[int, ...]  # (P + m,); -1 for what is not a digit
    padded: bool = False
    """Whether operands have several lengths: unused tokens then stand for the digits that an example lacks."""


@dataclass(frozen=True, eq=False)
class Examples:
    """N combinations of operands with their answers and tokens. The first axis of every array has length N."""

    bits: int
    """Digits of each operand."""
    base: int
    limit: int
    """Operands are in [0, limit)."""
    operands: Array  # (N, k)
    answer: Array  # (N,)
    prompt: Array  # (N, P)
    completion: Array  # (N, m)
    length: Array
    """Digits that are written of each operand (N,); fewer than ``bits`` only if a task has several lengths."""

    def __len__(self) -> int:
        return len(self.answer)

    def __getitem__(self, rows: npt.ArrayLike) -> "Examples":
        """The examples of these rows, one or several, or of a mask."""
        names = ("operands", "answer", "prompt", "completion", "length")
        chosen: Any = [rows] if isinstance(rows, int | np.integer) else rows
        return replace(self, **{name: getattr(self, name)[chosen] for name in names})

    @property
    def a(self) -> Array:
        """The first operand (N,)."""
        return self.operands[:, 0]

    @property
    def b(self) -> Array:
        """The second operand (N,)."""
        return self.operands[:, 1]
