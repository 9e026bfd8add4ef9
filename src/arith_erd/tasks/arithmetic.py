"""The tasks: sums, differences, products (paper, section 3.1), sums modulo m, and a random table (section 4.2)."""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ..bundled import load_option
from ..checks import require_integer
from ..digits import Array, Order, from_digits, num_digits, reorder, to_digits
from .examples import Examples
from .task import MAX_ROWS, Task

MOD_ADD, RANDOM_OUTPUT = load_option("task", "mod_add"), load_option("task", "random_output")


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


class ModAdd(Task):
    """``(a + b) mod m`` for operands below m, in as many digits as the operands have.

    ``3 + 4 = 2`` modulo 5 at three bits: prompt ``110+001``, completion ``010``. Much work on grokking uses this task
    (Power et al. 2022; Nanda et al. 2023).

    Args:
        bits, prompt_order, completion_order, base: as in `Task`; the table has only ``modulus ** 2`` rows.
        modulus: from 2 to ``base ** bits``, and at most 1023, so that the table has fewer than 2 ** 20 rows.
    """

    name = "mod_add"

    def __init__(
        self,
        bits: int = MOD_ADD["bits"],
        prompt_order: Order = MOD_ADD["prompt_order"],
        completion_order: Order = MOD_ADD["completion_order"],
        modulus: int = MOD_ADD["modulus"],
        *,
        base: int = MOD_ADD["base"],
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


class RandomOutput(Task):
    """A fixed table of integers, drawn uniformly from the range of sums, [0, 2 * (base ** bits - 1)].

    It can only be memorised, so it is a control. Prompts and widths are as in addition. At three bits, ``3`` and ``5``
    have the prompt ``110+101`` and a random four-bit completion.

    Args:
        bits, prompt_order, completion_order, base: as in `Task`.
        seed: seed of the table. All replicas of an experiment memorise the same table.
    """

    name = "random_output"

    def __init__(
        self,
        bits: int = RANDOM_OUTPUT["bits"],
        prompt_order: Order = RANDOM_OUTPUT["prompt_order"],
        completion_order: Order = RANDOM_OUTPUT["completion_order"],
        seed: int = RANDOM_OUTPUT["seed"],
        *,
        base: int = RANDOM_OUTPUT["base"],
    ) -> None:
        super().__init__(bits, prompt_order, completion_order, base=base)
        require_integer("task.seed", seed, 0)
        self.require_enumerable("a table of random answers")
        self.seed = seed
        self._table = np.random.default_rng(seed).integers(2 * self.limit - 1, size=self.size, dtype=np.int64)

    @property
    def width(self) -> int:
        return num_digits(2 * (self.limit - 1), self.base)

    def answer(self, a: npt.ArrayLike, b: npt.ArrayLike) -> Array:
        return self._table[np.asarray(a) * self.limit + np.asarray(b)]
