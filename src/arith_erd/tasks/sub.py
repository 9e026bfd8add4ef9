"""Subtraction, without a sign."""

import numpy as np
import numpy.typing as npt

from ..bits import Array
from .task import Task


class Sub(Task):
    """``|a - b|`` in as many digits as the operands have.

    ``3 - 5`` at three bits: prompt ``110-101``, completion ``010``, which is 2.
    """

    name = "sub"
    operator = "-"

    @property
    def width(self) -> int:
        return self.bits

    def answer(self, a: npt.ArrayLike, b: npt.ArrayLike) -> Array:
        return np.abs(np.subtract(a, b, dtype=np.int64))
