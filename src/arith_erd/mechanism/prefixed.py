"""Examples with any prefix, and the number c of the hypothesis that position t gets its own carry by subtraction.

It subtracts the prefix from the operand bits below t. After a right prefix c is the carry into bit t. The rules that
round it are those of `interp.algorithms`.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..digits import Array, from_digits
from ..interp.algorithms import PREFIX, ColumnSums
from ..interp.causal_model import CausalModel


@dataclass(frozen=True)
class PrefixedExamples:
    """N pairs of operands, each with a prefix of t bits as a number: arrays (N,)."""

    column_sums: ColumnSums
    t: int
    a: Array
    b: Array
    prefix: Array

    @property
    def operands(self) -> Array:
        return np.stack([self.a, self.b], axis=1)

    @cached_property
    def _sums(self) -> Array:
        return self.column_sums(self.operands)

    @property
    def lower_sum(self) -> Array:
        """The sum (N,) of the columns below t, each at its place value."""
        return from_digits(self._sums[:, : self.t])

    @property
    def column_sum(self) -> Array:
        """The sum (N,) of column t without a carry."""
        return self._sums[:, self.t]

    @property
    def c(self) -> "np.ndarray[Any, np.dtype[np.float64]]":
        """``(lower_sum - prefix) / 2^t`` (N,): the carry into bit t if the prefix is right."""
        return (self.lower_sum - self.prefix) / 2.0**self.t

    @property
    def fraction(self) -> Array:
        """The fraction of c (N,), in units of 2^-t."""
        return (self.lower_sum - self.prefix) % 2**self.t

    def predict_by(self, model: CausalModel) -> Array:
        """Bit t (N,) of the answers that a causal model gives if its variable ``prefix`` is set."""
        return model.answers(model.values(self.operands, {PREFIX: self.prefix}))[:, self.t]
