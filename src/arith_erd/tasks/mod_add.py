"""Modular addition, the task of much work on grokking (Power et al., 2022; Nanda et al., 2023)."""

import numpy as np
import numpy.typing as npt

from ..bits import Array, Order
from ..errors import require_integer
from .task import Task


class ModAdd(Task):
    """``(a + b) mod m`` for operands below m, in as many digits as the operands have.

    ``3 + 4 = 2`` modulo 5 at three bits: prompt ``110+001``, completion ``010``.

    Args:
        bits, prompt_order, completion_order, base: as of `Task`. The table has ``modulus ** 2`` rows.
        modulus: from 2 to ``base ** bits``.
    """

    name = "mod_add"
    operator = "+"

    def __init__(
        self,
        bits: int = 7,
        prompt_order: Order = "reverse",
        completion_order: Order = "reverse",
        modulus: int = 97,
        *,
        base: int = 2,
    ) -> None:
        super().__init__(bits, prompt_order, completion_order, base=base)
        require_integer("task.modulus", modulus, 2, base**bits)
        self.modulus = modulus

    @property
    def limit(self) -> int:
        return self.modulus

    @property
    def width(self) -> int:
        return self.bits

    def answer(self, a: npt.ArrayLike, b: npt.ArrayLike) -> Array:
        return np.add(a, b, dtype=np.int64) % self.modulus
