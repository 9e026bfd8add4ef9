"""Multiplication (paper, section 3.1)."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ..digits import Array, from_digits, to_digits
from .task import Task


class Mul(Task):
    """``a * b``, with twice as many digits as an operand.

    ``3 x 5 = 15`` at three bits: prompt ``110x101``, completion ``111100``. In base 10 with two
    digits, ``47 x 85 = 3995``: prompt ``74x58``, completion ``5993``.
    """

    name = "mul"
    operator = "x"

    @property
    def width(self) -> int:
        return 2 * self.bits

    def answer(self, a: npt.ArrayLike, b: npt.ArrayLike) -> Array:
        return np.multiply(a, b, dtype=np.int64)

    def variables(self) -> dict[str, Callable[..., npt.ArrayLike]]:
        """The columns of long multiplication, and ``product``.

        ``column_sum`` is the sum of a_i * b_j over i + j = t. ``carry`` is the carry from the columns below t, which
        may exceed one digit. ``running_sum`` is the sum of both; its remainder is digit t of the product.
        ``product_mod`` is the product mod 2^(t+1). At three bits, ``3 x 5`` has the running sums ``1 1 1 1 0 0``, and
        ``7 x 7`` has ``1 2 4 4 3 1``.
        """
        base, width = self.base, self.width
        place = base ** np.arange(width, dtype=np.int64)

        def column_sums(operands: Array) -> Array:
            first, second = to_digits(operands.T, self.bits, base)
            columns = np.zeros((len(operands), width), dtype=np.int64)
            for i in range(self.bits):
                columns[:, i : i + self.bits] += first[:, i, None] * second
            return columns

        def carries(column_sum: Array) -> Array:
            carry = np.zeros_like(column_sum)
            for t in range(1, width):
                carry[:, t] = (column_sum[:, t - 1] + carry[:, t - 1]) // base
            return carry

        return {
            "column_sum": column_sums,
            "carry": carries,
            "running_sum": lambda column_sum, carry: column_sum + carry,
            "product": lambda running_sum: from_digits(running_sum % base, base),
            "product_mod": lambda product: product[:, None] % (place * base),
            "answer": lambda product_mod: product_mod // place,
        }
