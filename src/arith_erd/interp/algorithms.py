"""Algorithms for addition, as causal models that differ after a wrong prefix.

Each has the variable ``prefix``, the number that the answer's tokens spell. It is the right sum unless it is set, and
digit t of the answer depends only on the digits of ``prefix`` below t. ``loss=interchange`` trains a network to run
one of them::

    python train.py model=nanogpt loss=interchange model.loss.causal_model=arith_erd.interp.algorithms.PrefixCarry \\
        "model.loss.variables={prefix: {site: answer}, carry: {site: dec.1, dims: [0, 15]}}"
"""

import numpy as np

from ..digits import Array, to_digits
from ..errors import bad_value
from ..tasks import Add, Task
from .causal_model import CausalModel, Function


class PromptOnly(CausalModel):
    """The answer follows from the prompt, by carries or by the sum; the prefix changes nothing."""

    def __init__(self, task: Task) -> None:
        if type(task) is not Add or task.base != 2 or task.completion_order != "reverse":
            accepted = "add in base 2, the lowest bit of the answer first, for this causal model"
            raise bad_value("task", task.name, accepted)
        variables = {**task.variables(), "prefix": lambda a, b: a + b}
        super().__init__(task, variables | self.prefix_functions(task.width))

    def prefix_functions(self, width: int) -> dict[str, Function]:
        """The variables that depend on the prefix, and the answer computed from them."""
        return {}


class PrefixCarry(PromptOnly):
    """The carry into t is ``[x + y + (1 - r) >= 2]``, with the operands' bits x, y and the prefix's bit r at t - 1."""

    def prefix_functions(self, width: int) -> dict[str, Function]:
        def carry(operands: Array, prefix: Array) -> Array:
            column_sums = to_digits(operands, width, 2).sum(axis=1) + 1 - to_digits(prefix, width, 2)
            return np.pad(column_sums[:, :-1] >= 2, [(0, 0), (1, 0)])

        return {"carry": carry, "answer": lambda xor, carry: xor ^ carry}


class LocalRemainder(PromptOnly):
    """Bit t is the parity of ``total``: a_t + b_t + c, rounded and clipped to 0 to 3, in the last bit to 1.

    c is the sum of the bits below t minus the prefix, in units of 2^t. After a right prefix it is the carry.
    """

    def prefix_functions(self, width: int) -> dict[str, Function]:
        place = 2 ** np.arange(width, dtype=np.int64)

        def total(operands: Array, prefix: Array) -> Array:
            lower = (operands[:, :, None] % place).sum(axis=1) - prefix[:, None] % place
            column_sums = to_digits(operands, width, 2).sum(axis=1)
            return np.floor(column_sums + lower / place + 0.5).astype(np.int64).clip(0, [3] * (width - 1) + [1])

        return {"total": total, "answer": lambda total: total % 2}
