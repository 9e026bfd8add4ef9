"""Addition (paper, section 3.1)."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from .. import bits
from ..bits import Array
from .task import Task


class Add(Task):
    """``a + b``, with one digit more than the operands.

    ``3 + 5 = 8`` at three bits: prompt ``110+101``, completion ``0001``, carries out of bits 0, 1, 2: ``1 1 1``.
    In base 10 with two digits, ``47 + 85 = 132``: prompt ``74+58``, completion ``231``, carries ``1 1``.
    """

    name = "add"
    operator = "+"

    @property
    def width(self) -> int:
        return bits.digits_of(self.operands * (self.limit - 1), self.base)

    def answer(self, *operands: npt.ArrayLike) -> Array:
        return np.sum(np.broadcast_arrays(*operands), axis=0, dtype=np.int64)

    def carries(self, *operands: npt.ArrayLike) -> Array:
        """Carry out of each digit (N, bits), least significant first. The last one is the sum above those digits."""
        above = self.base ** np.arange(1, self.bits + 1, dtype=np.int64)
        return self.answer(*(np.asarray(x)[:, None] % above for x in operands)) // above

    def variables(self, a: npt.ArrayLike, b: npt.ArrayLike) -> dict[str, Array]:
        """Beside the operands' bits, ``xor`` of those, ``carry`` into bit t, ``sum`` and ``partial_sum`` mod 2^(t+1).

        For ``3 + 5 = 8`` at three bits: a_bit ``1 1 0 0``, b_bit ``1 0 1 0``, xor ``0 1 1 0``, carry ``0 1 1 1``,
        sum ``8 8 8 8``, partial_sum ``0 0 0 8``. Bit t of the sum is xor ^ carry.
        """
        a, b = np.asarray(a), np.asarray(b)
        total = self.answer(a, b)
        return super().variables(a, b) | {
            "xor": bits.to_bits(a ^ b, self.width),
            "carry": bits.to_bits(a ^ b ^ total, self.width),
            "sum": np.repeat(total[:, None], self.width, axis=1),
            "partial_sum": bits.partial(total, self.width),
        }

    def _concepts(self) -> dict[str, Callable[..., Array]]:
        return super()._concepts() | {"carries": self.carries}
