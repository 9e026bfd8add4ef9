"""Addition of two numbers (paper, section 3.1), and of three; subtraction."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ..digits import Array, from_digits, num_digits, reorder, to_digits
from .examples import Examples
from .task import Task


class Add(Task):
    """``a + b``, with one digit more than the operands.

    ``3 + 5 = 8`` at three bits: prompt ``110+101``, completion ``0001``, carries out of bits 0, 1, 2: ``1 1 1``.
    In base 10 with two digits, ``47 + 85 = 132``: prompt ``74+58``, completion ``231``, carries ``1 1``.
    """

    name = "add"

    @property
    def width(self) -> int:
        return num_digits(self.num_operands * (self.limit - 1), self.base)

    def answer(self, *operands: npt.ArrayLike) -> Array:
        return np.sum(np.broadcast_arrays(*operands), axis=0, dtype=np.int64)

    def carries(self, *operands: npt.ArrayLike) -> Array:
        """The carry out of each digit (N, bits), lowest first. The last carry is the sum above those digits."""
        above = self.base ** np.arange(1, self.bits + 1, dtype=np.int64)
        return self.answer(*(np.asarray(x)[:, None] % above for x in operands)) // above

    def variables(self) -> dict[str, Callable[..., npt.ArrayLike]]:
        """The digits' own sum (``xor``, in other bases ``digit_sum``), ``carry``, ``sum``, and variables of the sum.

        For ``3 + 5 = 8`` at three bits: xor ``0 1 1 0``, carry into bit t ``0 1 1 1``, sum ``8``, sum_mod ``0 0 0 8``
        (mod 2^(t+1)), and the same prefix_remainder (sum_mod minus the lower bits of the answer). For two operands
        ``generate`` and ``propagate`` say whether the digits at t - 1 do this to a carry, ``0 1 0 0`` and ``0 0 1 1``.
        """
        base, width = self.base, self.width
        place = base ** np.arange(width, dtype=np.int64)
        digit_sum = "xor" if base == 2 else "digit_sum"

        def digit_sums(operands: Array) -> Array:
            """The sums (N, width) of the digits at t, before reduction to a digit."""
            return to_digits(operands, width, base).sum(axis=1)

        def below(operands: Array) -> Array:
            """The sums at t - 1; 0 at t = 0."""
            return np.pad(digit_sums(operands)[:, :-1], [(0, 0), (1, 0)])

        def carries(generate: Array, propagate: Array) -> Array:
            carry = np.zeros_like(generate)
            for t in range(1, width):
                carry[:, t] = generate[:, t] | propagate[:, t] & carry[:, t - 1]
            return carry

        carry_lookahead: dict[str, Callable[..., npt.ArrayLike]] = {
            "generate": lambda operands: below(operands) >= base,
            "propagate": lambda operands: below(operands) == base - 1,
            "carry": carries,
        }
        carry_of_sum = {"carry": lambda operands: (operands[:, :, None] % place).sum(axis=1) // place}
        return {
            digit_sum: lambda operands: digit_sums(operands) % base,
            **(carry_lookahead if self.num_operands == 2 else carry_of_sum),
            "sum": (lambda xor, carry: from_digits((xor + carry) % base, base))
            if base == 2
            else (lambda digit_sum, carry: from_digits((digit_sum + carry) % base, base)),
            "sum_mod": lambda sum: sum[:, None] % (place * base),
            "prefix_remainder": lambda sum_mod: sum_mod - sum_mod % place,
            "answer": lambda prefix_remainder: prefix_remainder // place,
        }

    def _concepts(self, examples: Examples) -> dict[str, Array]:
        return super()._concepts(examples) | {"carries": self.carries(*examples.operands.T)}

    def slices(self, examples: Examples) -> dict[str, Array]:
        """Adds ``longest_carry``, the length of the longest run of digits that carry."""
        longest = run = np.zeros(len(examples), dtype=np.int64)
        for carry in self.carries(*examples.operands.T).T:
            run = (run + 1) * (carry > 0)
            longest = np.maximum(longest, run)
        return super().slices(examples) | {"longest_carry": longest}


class Add3(Add):
    """``a + b + c``, where a carry can be 0, 1 or 2.

    ``3 + 5 + 7 = 15`` at three bits: prompt ``110+101+111``, completion ``11110`` (``7 + 7 + 7`` needs five bits),
    carries out of bits 0, 1, 2: ``1 1 1``. For ``7 + 7 + 7 = 21`` the carries are ``1 2 2``.
    """

    name = "add3"
    num_operands = 3


class AddScratchpad(Add):
    """``a + b`` with the carries written before the sum, as a scratchpad (Nye et al. 2021).

    ``3 + 5 = 8`` at three bits: prompt ``110+101``; completion ``111``, the carries out of bits 0, 1, 2, then ``0001``.
    The carries are named ``c1 c2 c3`` after the bits that they enter.
    """

    name = "add_scratchpad"

    @property
    def answer_names(self) -> list[str]:
        return [f"c{i}" for i in reorder(np.arange(1, self.bits + 1), self.completion_order)] + super().answer_names

    def completion(self, operands: Array, answer: Array) -> Array:
        return np.concatenate([self.to_tokens(self.carries(*operands.T)), super().completion(operands, answer)], axis=1)


class Sub(Task):
    """``|a - b|`` in as many digits as the operands have.

    ``3 - 5`` at three bits: prompt ``110-101``, completion ``010``, which is 2.
    """

    name = "sub"
    operator = "-"

    def answer(self, a: npt.ArrayLike, b: npt.ArrayLike) -> Array:
        return np.abs(np.subtract(a, b, dtype=np.int64))
