"""Causal models: the answer that each predicts if one of its variables comes from another pair.

A model computes bit t of the answer from a few variables (`Task.variables`). Take one of them from the pair
(a', b') and the rest from (a, b), and the model predicts a bit. ``3 + 5`` has xor 1 and carry 1 at t = 1, so its bit is
0. With the carry of ``1 + 2``, which is 0, the model predicts 1.
"""

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from ..bits import ZERO, Array, from_bits, reorder, to_bits
from ..errors import UserError, bad_value
from ..tasks import Task

Values = Mapping[str, Array]  # one pair per row: the task's variables, and "answer", bit by bit, (N, width)


def _answer(base: Values, source: Values) -> Array:
    return source["answer"]


MODELS: dict[str, Callable[[Values, Values], Array]] = {
    "sum": _answer,
    "partial_sum": _answer,
    "carry": lambda base, source: base["xor"] ^ source["carry"],
    "xor": lambda base, source: source["xor"] ^ base["carry"],
    "product": _answer,
    "partial_product": _answer,
    "column_sum": lambda base, source: (source["column_sum"] + base["column_carry"]) & 1,
    "column_carry": lambda base, source: (base["column_sum"] + source["column_carry"]) & 1,
}
OPERANDS = ("a_bit", "b_bit")
WHOLE = ("sum", "product")  # numbers that determine the whole answer
PARTIAL = ("partial_sum", "partial_product")  # at one position they predict the same bit as the whole number


def require_binary(task: Task) -> None:
    """Refuse tasks without two binary operands, or whose answer is not written least significant bit first.

    Raises:
        UserError: since the causal models predict bit t at position t of the answer.
    """
    if task.base != 2 or task.shape != (2**task.bits,) * 2:
        of = f"{task.operands} operand(s) below {task.limit} in base {task.base}"
        raise UserError(f"task={task.name}: has {of}; causal models need two operands in base 2, of any value")
    if task.completion_order != "reverse":
        expected = "reverse: the causal models need answers written least significant bit first"
        raise bad_value("task.completion_order", task.completion_order, expected)


def require_variables(task: Task, names: tuple[str, ...] | list[str], key: str = "probe.variable") -> None:
    """Refuse variables that a task lacks.

    Raises:
        UserError: naming them, and those it has.
    """
    if missing := [name for name in names if name not in task.variable_names]:
        known = ", ".join(task.variable_names)
        raise UserError(f"{key}={', '.join(missing)}: expected variables of task {task.name}: {known}")


class CausalTask:
    """All pairs of a task with their variables, and the predictions of causal models for pairs of pairs.

    Args:
        task: its answer written least significant bit first.

    Attributes:
        a, b: the operands (N,), ``a`` slowest, as in ``task.examples()``.
        values: variables (N, width), with ``answer``, the bits of the answer.
        models: names of the variables whose exchange has a predicted outcome.
        value: the variable that is the answer as a number, ``sum`` or ``product``; "" if there is none.

    Raises:
        UserError: if the answer is written in plain order.
    """

    def __init__(self, task: Task) -> None:
        require_binary(task)
        self.task = task
        self.examples = task.examples()
        self.a, self.b = self.examples.a, self.examples.b
        self.values = task.variables(self.a, self.b) | {"answer": to_bits(self.examples.answer, task.width)}
        self.models = tuple(name for name in task.variable_names if name in MODELS or name in OPERANDS)
        self.value = next((name for name in self.models if name in WHOLE), "")

    def predict(self, model: str, base: npt.ArrayLike, source: npt.ArrayLike) -> Array:
        """Bits of the answer (M, width) to the pairs ``base`` (M,) with one variable of the pairs ``source`` (M,).

        Column t is bit t of the answer with the variable exchanged at t alone. An exchanged bit of an operand may
        change later bits of the answer too; they do not appear here.

        Args:
            model: a variable, or ``none`` for the answer of the base itself.
        """
        base, source = np.asarray(base), np.asarray(source)
        if model == "none":
            return self.values["answer"][base]
        if model in OPERANDS:
            return np.stack([self._exchange_bit(model, base, source, t) for t in range(self.task.width)], axis=1)
        of_base, of_source = ({name: v[pairs] for name, v in self.values.items()} for pairs in (base, source))
        return MODELS[model](of_base, of_source)

    def exchange_token(self, place: int, base: npt.ArrayLike, source: npt.ArrayLike) -> Array:
        """Bits of the answer (M, width) to ``base`` with the token at ``place`` of the prompt taken from ``source``."""
        base, source = np.asarray(base), np.asarray(source)
        prompt = self.examples.prompt[base].copy()
        prompt[:, place] = self.examples.prompt[source, place]
        return self.values["answer"][self._pairs_of(prompt)]

    def _pairs_of(self, prompt: Array) -> Array:
        """Prompt tokens (M, P) -> indices of the pairs (M,)."""
        n = self.task.bits
        a, b = (from_bits(reorder(part - ZERO, self.task.prompt_order)) for part in (prompt[:, :n], prompt[:, n + 1 :]))
        return (a << n) + b

    def _exchange_bit(self, operand: str, base: Array, source: Array, t: int) -> Array:
        """Bit t of the answers (M,) once bit t of an operand comes from the source."""
        if t >= self.task.bits:
            return self.values["answer"][base, t]
        mask = np.int64(1) << t
        a, b = self.a[base], self.b[base]
        if operand == "a_bit":
            a = a & ~mask | self.a[source] & mask
        else:
            b = b & ~mask | self.b[source] & mask
        return self.values["answer"][(a << self.task.bits) + b, t]
