"""Algorithms that a network may run. Each is a causal model, and most also predict the bit after a wrong prefix.

Every model has the variable ``prefix``, the number that the answer's tokens spell. It is the right answer unless it is
set, and bit t depends only on the bits of ``prefix`` below t. Options that take a causal model also take the name of an
algorithm::

    python probe.py probe=mechanism probe.causal_model=local_remainder ...
    python train.py model=nanogpt loss=interchange model.loss.causal_model=prefix_carry \\
        "model.loss.variables={prefix: {site: answer}, carry: {site: dec.1, dims: [0, 15]}}"

For bit t let S be the sum of the columns below t, each at its place value: a mod 2^t + b mod 2^t in addition. Let p be
the number that the prefix spells below t. After a right prefix c = (S - p) / 2^t is the carry into bit t. After a wrong
prefix c can be a fraction: ``3 + 5`` at t = 2 has S = 4, so c is 1 after ``0 0``, and 1/4 after ``1 1``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np

from ..digits import Array, to_digits
from ..errors import UserError, bad_value, counted
from ..tasks import Add, Task
from .causal_model import CausalModel, Function

PREFIX = "prefix"
CLOSE_CALL = (0.4, 0.6)
"""Thresholds on both sides of 1/2. Models with the two disagree where rounding is a close call: a small error in c
decides it, so the answer does not tell algorithms apart."""


def require_binary(task: Task) -> None:
    """Raise a `UserError` unless the task has two binary operands and writes its answer lowest bit first."""
    if task.base != 2 or task.shape != (2**task.bits,) * 2:
        operands = f"{counted(task.num_operands, 'operand')} below {task.limit} in base {task.base}"
        raise UserError(f"task={task.name}: has {operands}; expected two below {2**task.bits} in base 2")
    if task.completion_order != "reverse":
        raise bad_value("task.completion_order", task.completion_order, "reverse, least significant bit first")


class ColumnSums:
    """The column sums of an addition or a long multiplication; a `UserError` for other tasks."""

    def __init__(self, task: Task) -> None:
        require_binary(task)
        self.task = task
        self.is_addition = isinstance(task, Add) and task.answer_length == task.width  # not with a scratchpad
        if not self.is_addition and "column_sum" not in self.causal_model.variables:
            raise UserError(f"task={task.name}: has no columns; expected an addition or a multiplication")

    def __call__(self, operands: Array) -> Array:
        """The sum (N, m) of each column without carries: a_t + b_t, or a_i * b_j summed over i + j = t."""
        if self.is_addition:
            return to_digits(operands, self.task.width).sum(axis=1)
        return self.causal_model.values(operands)["column_sum"]

    def answer(self, operands: Array) -> Array:
        """The right answer (N,) to operands (N, 2)."""
        return self.task.answer(*operands.T)

    @cached_property
    def causal_model(self) -> CausalModel:
        """The task's own causal model, with the variable ``carry``."""
        return CausalModel(self.task)

    @cached_property
    def max_total(self) -> Array:
        """The largest column sum plus carry (m,) at each bit: 3 in the middle of an addition, 1 at its end."""
        sums = self(self.causal_model.examples.operands) + self.causal_model.table["carry"]
        return np.asarray(sums.max(axis=0))


@dataclass(frozen=True)
class Algorithm:
    """An algorithm for binary addition. Unless its label is ``carries``, it is one for multiplication, too.

    `models.handcoded.write_network` makes a hand-coded network that runs the algorithm of this name.

    Attributes:
        description: what it does, as the predicate of a sentence.
        label: ``sum`` if it forms the answer as one number and reads the bits from it, ``carries`` if it forms the bits
            from carries, empty if it does neither.
        functions: makes the variables and the answer's bits from column sums and the threshold for rounding c.
        rounds: whether it rounds c. A half-integral c is then a tie.
        post_hoc: whether we wrote it after we had seen trained networks. No verdict may name such an algorithm.
    """

    name: str
    description: str
    label: Literal["sum", "carries", ""]
    functions: Callable[[ColumnSums, float], Mapping[str, Function]]
    rounds: bool = False
    post_hoc: bool = False

    def causal_model(self, task: Task, threshold: float = 0.5) -> CausalModel:
        """Its causal model, with ``prefix``. Numbers with a fraction above ``threshold`` are rounded up."""
        return _causal_model(self, task, threshold)


@lru_cache(maxsize=64)  # a profile asks for each many times, and a new model is checked on all examples
def _causal_model(algorithm: Algorithm, task: Task, threshold: float) -> CausalModel:
    columns = ColumnSums(task)
    if not columns.is_addition and algorithm.label == "carries":
        raise bad_value("task", task.name, f"add in base 2, for the causal model {algorithm.name}")
    return CausalModel(task, {PREFIX: columns.answer, **algorithm.functions(columns, threshold)})


def _erd(columns: ColumnSums, threshold: float) -> Mapping[str, Function]:
    return {"sum" if columns.is_addition else "product": columns.answer}


def _lookahead_carry(columns: ColumnSums, threshold: float) -> Mapping[str, Function]:
    variables = columns.task.variables()
    names = ("xor", "generate", "propagate", "carry")
    return {name: variables[name] for name in names} | {"answer": lambda xor, carry: xor ^ carry}


def _prefix_carry(columns: ColumnSums, threshold: float) -> Mapping[str, Function]:
    """The carry into t is ``[x + y + (1 - r) >= 2]``, with the operands' bits x, y and the prefix's bit r at t - 1."""

    def carry(operands: Array, prefix: Array) -> Array:
        totals = columns(operands) + 1 - to_digits(prefix, columns.task.width)
        return np.pad(totals[:, :-1] >= 2, [(0, 0), (1, 0)])

    return {"xor": lambda operands: columns(operands) % 2, "carry": carry, "answer": lambda xor, carry: xor ^ carry}


def _remainder(columns: ColumnSums, threshold: float) -> Mapping[str, Function]:
    """Bit t is the parity of ``(sum - p) / 2^t``, rounded. The sum is over all columns."""
    place = 2 ** np.arange(columns.task.width, dtype=np.int64)

    def parity(whole: Array, prefix: Array) -> Array:
        rest = (whole[:, None] - prefix[:, None] % place) / place
        return np.floor(rest + 1 - threshold).astype(np.int64) % 2

    by_sum: Function = lambda sum, prefix: parity(sum, prefix)  # noqa: E731
    by_product: Function = lambda product, prefix: parity(product, prefix)  # noqa: E731
    return {**_erd(columns, threshold), "answer": by_sum if columns.is_addition else by_product}


def _graded_carry(columns: ColumnSums, threshold: float) -> Mapping[str, Function]:
    """The carry into t is 1 where c exceeds the threshold."""
    return {
        "column_sum": columns,
        "carry": lambda column_sum, prefix: carry_from_prefix(column_sum, prefix) > threshold,
        "answer": lambda column_sum, carry: column_sum % 2 ^ carry,
    }


def _local_remainder(columns: ColumnSums, threshold: float) -> Mapping[str, Function]:
    """Bit t is the parity of ``total``: the column sum plus rounded c, clipped to its range after right prefixes."""
    round_up = 1 - threshold
    return {
        "column_sum": columns,
        "carry": lambda column_sum, prefix: np.floor(carry_from_prefix(column_sum, prefix) + round_up).astype(int),
        "total": lambda column_sum, carry: (column_sum + carry).clip(0, columns.max_total),
        "answer": lambda total: total % 2,
    }


def carry_from_prefix(column_sum: Array, prefix: Array) -> "np.ndarray[tuple[int, ...], np.dtype[np.float64]]":
    """c (N, m): the carry into each bit, from column sums (N, m) and the number (N,) that the prefix spells."""
    place = 2 ** np.arange(column_sum.shape[1], dtype=np.int64)
    lower = np.cumsum(column_sum * place, axis=1) - column_sum * place
    return (lower - prefix[:, None] % place) / place


ALGORITHMS = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm("erd", "forms the whole sum as one number and reads the bits off it", "sum", _erd),
        Algorithm(
            "lookahead_carry",
            "works out each carry from the bits of the two numbers alone",
            "carries",
            _lookahead_carry,
        ),
        Algorithm(
            "prefix_carry",
            "works out each carry from the last bit that it wrote and the two bits added there",
            "carries",
            _prefix_carry,
        ),
        Algorithm(
            "remainder",
            "forms the whole sum as one number, subtracts what it has written, and reads the next bit off it",
            "sum",
            _remainder,
            rounds=True,
        ),
        Algorithm(
            "graded_carry",
            "sums both numbers below each bit, subtracts what it has written, and carries if much remains",
            "carries",
            _graded_carry,
            rounds=True,
            post_hoc=True,
        ),
        Algorithm(
            "local_remainder",
            "sums both numbers up to each bit, subtracts what it has written, and rounds the rest",
            "",
            _local_remainder,
            rounds=True,
            post_hoc=True,
        ),
    )
}
POST_HOC = tuple(name for name, algorithm in ALGORITHMS.items() if algorithm.post_hoc)


def algorithms_for(task: Task) -> dict[str, Algorithm]:
    """The algorithms, by name, that a task of `ColumnSums` has a causal model of."""
    is_addition = ColumnSums(task).is_addition
    return {name: x for name, x in ALGORITHMS.items() if is_addition or x.label != "carries"}


def describe_program(program: Callable[..., object]) -> str:
    """What a hand-coded network does: the description of its algorithm, or else the first line of its docstring."""
    algorithm = ALGORITHMS.get(program.__name__)
    return f"{algorithm.description.capitalize()}." if algorithm else (program.__doc__ or "").partition("\n")[0]


def algorithm_label(name: str) -> str:
    """The label of the algorithm that a hand-coded network or its decoy runs; empty for other names."""
    algorithm = ALGORITHMS.get(name.removesuffix("_decoy"))
    return algorithm.label if algorithm else ""
