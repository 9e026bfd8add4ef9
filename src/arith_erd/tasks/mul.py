"""Multiplication (paper, section 3.1)."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from .. import bits
from ..bits import Array
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

    def column_sums(self, a: npt.ArrayLike, b: npt.ArrayLike) -> Array:
        """The running sum of each column of long multiplication (N, width), least significant first.

        Column t adds up a_i * b_j over i + j = t, and what the columns below carry into it; its remainder is digit t of
        the product. For ``3 x 5`` at three bits: ``1 1 1 1 0 0``; for ``7 x 7``: ``1 2 4 4 3 1``.
        """
        digits_a, digits_b = (bits.to_digits(np.asarray(x), self.bits, self.base) for x in (a, b))
        sums = np.zeros((len(digits_a), self.width), dtype=np.int64)
        for i in range(self.bits):
            sums[:, i : i + self.bits] += digits_a[:, i, None] * digits_b
        for t in range(1, self.width):
            sums[:, t] += sums[:, t - 1] // self.base
        return sums

    def regressable(self) -> dict[str, Callable[..., Array]]:
        return super().regressable() | {"column_sums": self.column_sums}

    def variables(self, a: npt.ArrayLike, b: npt.ArrayLike) -> dict[str, Array]:
        """The operands' bits, the columns of long multiplication, ``product``, and ``partial_product`` mod 2^(t+1).

        ``column_sum`` counts the pairs i + j = t with a_i = b_j = 1; ``column_carry`` is what the columns below t
        carry into it, which may exceed 1. Bit t of the product is the parity of their sum. For ``3 x 5 = 15`` at three
        bits: column_sum ``1 1 1 1 0 0``, column_carry ``0 0 0 0 0 0``.
        """
        a, b = np.asarray(a), np.asarray(b)
        product = self.answer(a, b)
        columns = np.zeros((len(a), self.width), dtype=np.int64)
        bits_a, bits_b = bits.to_bits(a, self.bits), bits.to_bits(b, self.bits)
        for i in range(self.bits):
            columns[:, i : i + self.bits] += bits_a[:, i, None] * bits_b
        below = np.cumsum(columns << np.arange(self.width), axis=1)[:, :-1]  # of the columns 0 .. t - 1, at t >= 1
        carries = np.pad(below >> np.arange(1, self.width), [(0, 0), (1, 0)])
        return super().variables(a, b) | {
            "column_sum": columns,
            "column_carry": carries,
            "product": np.repeat(product[:, None], self.width, axis=1),
            "partial_product": bits.partial(product, self.width),
        }
