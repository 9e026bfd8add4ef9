"""Examples of a task as arrays, and the layout of their digits."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..checks import renamed, require_integer
from ..digits import Array


@dataclass(frozen=True)
class Layout:
    """The places of digits in a network's input (prompt, ``<start>``, prefix), which some position encodings need."""

    places: tuple[int, ...]  # (P + m,); -1 for tokens that are not digits
    padded: bool = False
    """Whether operands have several lengths, so that shorter examples contain padding."""


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
    """Written digits of each operand (N,); fewer than ``bits`` only if a task has several lengths."""

    def __repr__(self) -> str:
        """``Examples(64 of 3 digits in base 2: [0, 0] -> 0, ..)``."""
        first = [f"{self.operands[0].tolist()} -> {self.answer[0]}"] if len(self) else ["none"]
        shown = ", ".join(first + [".."] * (len(self) > 1))
        return f"Examples({len(self)} of {self.bits} digits in base {self.base}: {shown})"

    def __len__(self) -> int:
        return len(self.answer)

    def __getitem__(self, rows: npt.ArrayLike) -> "Examples":
        """The examples of one or several rows, or of a mask."""
        names = ("operands", "answer", "prompt", "completion", "length")
        chosen: Any = [rows] if isinstance(rows, int | np.integer) else rows
        taken: Any = {name: np.ascontiguousarray(getattr(self, name)[chosen]) for name in names}  # contiguous for torch
        return replace(self, **taken)

    @renamed("count", "n", since="1.1")
    def sample(self, n: int | None, seed: int | np.random.Generator = 0) -> "Examples":
        """Draw n examples in random order; if it is None or there are fewer, all in their own order."""
        if n is not None:
            require_integer("n", n, 1)
        if not isinstance(seed, np.random.Generator):
            require_integer("seed", seed, 0)
        if n is None or n >= len(self):
            return self
        # Not default_rng(seed): `RandomSplit` draws from that, and every sample would consist of held-out examples.
        rng = seed if isinstance(seed, np.random.Generator) else np.random.default_rng([seed, 3])
        return self[rng.permutation(len(self))[:n]]

    @property
    def a(self) -> Array:
        """The first operand (N,)."""
        return self.operands[:, 0]

    @property
    def b(self) -> Array:
        """The second operand (N,)."""
        return self.operands[:, 1]
