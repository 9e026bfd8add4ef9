"""Algorithms for addition that differ in what they do after a wrong prefix, as causal models.

Each has the variable ``prefix``: the number that the answer's tokens spell as far as they are read. It is the right sum
unless it is set, and digit t depends on its digits below t only. ``loss=interchange`` trains a network to run one::

    python train.py model=nanogpt loss=interchange model.loss.causal_model=arith_erd.interp.algorithms.prefix_carry \\
        "model.loss.variables={prefix: {site: answer}, carry: {site: dec.1, dims: [0, 15]}}"
"""

import numpy as np

from ..bits import Array, to_digits
from ..errors import bad_value
from ..tasks import Add, Task
from .causal_model import CausalModel, Function


def prompt_only(task: Task) -> CausalModel:
    """The task's own variables; the prefix changes nothing, whether a network uses carries or the sum."""
    return _with_prefix(task, {})


def prefix_carry(task: Task) -> CausalModel:
    """The carry into t is ``[x + y + (1 - r) >= 2]``, of the operands' bits and the prefix at t - 1."""
    width = task.width

    def carry(operands: Array, prefix: Array) -> Array:
        below = to_digits(operands, width, 2).sum(axis=1) + 1 - to_digits(prefix, width, 2)
        return np.pad(below[:, :-1] >= 2, [(0, 0), (1, 0)])

    return _with_prefix(task, {"carry": carry, "answer": lambda xor, carry: xor ^ carry})


def local_remainder(task: Task) -> CausalModel:
    """``total`` at t is a_t + b_t + c, rounded: c is what the prefix misses of the lower bits' sum, in units of 2^t.

    With a right prefix c is the carry. The answer is the parity of the total, held between 0 and 3, in the last bit 1.
    """
    width = task.width
    place = 2 ** np.arange(width, dtype=np.int64)

    def total(operands: Array, prefix: Array) -> Array:
        lower = (operands[:, :, None] % place).sum(axis=1) - prefix[:, None] % place
        both = to_digits(operands, width, 2).sum(axis=1)
        return np.floor(both + lower / place + 0.5).astype(np.int64).clip(0, [3] * (width - 1) + [1])

    return _with_prefix(task, {"total": total, "answer": lambda total: total % 2})


def _with_prefix(task: Task, changed: dict[str, Function]) -> CausalModel:
    if type(task) is not Add or task.base != 2 or task.completion_order != "reverse":
        raise bad_value("task", task.name, "add in base 2, the lowest bit of the answer first, for this causal model")
    return CausalModel(task, {**task.variables(), "prefix": lambda a, b: a + b, **changed})
