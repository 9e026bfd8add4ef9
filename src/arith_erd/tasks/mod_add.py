"""Modular addition, the task of much work on grokking (Power et al., 2022; Nanda et al., 2023)."""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ..bundled import load_option
from ..checks import require_integer
from ..digits import Array, Order, to_digits
from .task import MAX_ROWS, Task

OPTIONS = load_option("task", "mod_add")


class ModAdd(Task):
    """``(a + b) mod m`` for operands below m, in as many digits as the operands have.

    ``3 + 4 = 2`` modulo 5 at three bits: prompt ``110+001``, completion ``010``.

    Args:
        bits, prompt_order, completion_order, base: as in `Task`; the table has only ``modulus ** 2`` rows.
        modulus: from 2 to ``base ** bits``, and at most 1023, so that the table has fewer than 2 ** 20 rows.
    """

    name = "mod_add"

    def __init__(
        self,
        bits: int = OPTIONS["bits"],
        prompt_order: Order = OPTIONS["prompt_order"],
        completion_order: Order = OPTIONS["completion_order"],
        modulus: int = OPTIONS["modulus"],
        *,
        base: int = OPTIONS["base"],
    ) -> None:
        super().__init__(bits, prompt_order, completion_order, base=base)
        require_integer("task.modulus", modulus, 2, min(base**bits, math.isqrt(MAX_ROWS - 1)))
        self.modulus = modulus

    @property
    def limit(self) -> int:
        return self.modulus

    def answer(self, a: npt.ArrayLike, b: npt.ArrayLike) -> Array:
        return np.add(a, b, dtype=np.int64) % self.modulus

    def variables(self) -> dict[str, Callable[..., npt.ArrayLike]]:
        """``sum`` before the reduction, ``wrap`` (1 if it reaches the modulus), and ``residue``, the answer.

        For ``3 + 4 = 2`` modulo 5: sum 7, wrap 1, residue 2.
        """
        return {
            "sum": lambda a, b: a + b,
            "wrap": lambda sum: sum // self.modulus,
            "residue": lambda sum, wrap: sum - self.modulus * wrap,
            "answer": lambda residue: to_digits(residue, self.width, self.base),
        }
