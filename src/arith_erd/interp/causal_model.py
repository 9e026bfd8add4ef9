"""Causal models: variables, the functions between them, and the answer after a variable is set.

A hypothesis about an algorithm is a graph. Its roots are the digits of the operands, its nodes are variables, and its
output is the answer. An *interchange* takes one variable from another run, the source, and everything else from the
base. ``3 + 5`` has xor 1 and carry 1 at bit 1, so its bit 1 is 0. The carry of ``1 + 4`` is 0; with it, bit 1 is 1.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

import numpy as np
import numpy.typing as npt

from ..checks import require_integer
from ..digits import Array, from_digits, to_digits
from ..errors import UserError, first_line, unknown_name, warn
from ..tasks import Examples, Task

Function = Callable[..., npt.ArrayLike]
Operands = Examples | npt.ArrayLike  # (N, k)
Values = dict[str, Array]  # (N,) or (N, width), by variable
NUM_CHECKED = 2**14  # combinations of operands on which a model must give the right answer
OPERANDS = "operands"


class CausalModel:
    """Variables of a task as functions of its operands and of each other.

    >>> from arith_erd.tasks import Add
    >>> adder = CausalModel(Add(bits=3), variables={
    ...     "xor": lambda a, b: a ^ b,
    ...     "carry": lambda a, b: (a + b) ^ a ^ b,
    ...     "sum": lambda xor, carry: xor ^ carry,
    ... })
    >>> adder.interchange([[3, 5]], [[1, 4]], "carry")
    array([[0, 1, 1, 0]])

    Values are integers: (N,), or (N, width) with a column for each digit t of the answer, lowest first. The arguments
    of a function are the names of other variables, the operands (``a``, ``b``), or all operands as ``operands`` (N, k).
    The digits of each operand are variables of every model: ``a_bit``, or ``a_digit`` in other bases than 2. If one of
    them is set, the operand and everything derived from it change too.

    Args:
        variables: name -> function, in any order; by default those of ``task.variables()``.
        output: the variable that holds the answer, as digits (N, width) or as integers (N,) modulo ``base**width``.
            By default it is ``answer``, else the last of ``variables`` that is always right.

    Attributes:
        variables: the operands' digits, then the given variables except one called ``answer``.
        parents: name -> names of the variables and operands from which it is computed.

    Raises:
        UserError: for an argument with an unknown name, variables that depend on each other in a cycle, values of
            another shape, or an output that is not the task's answer.
    """

    def __init__(self, task: Task, variables: Mapping[str, Function] | None = None, output: str | None = None) -> None:
        if not isinstance(task, Task):
            raise UserError(f"causal model: received {task!r}; expected a Task, such as Add(bits=5)")
        if task.answer_length != task.width:
            what = f"{task.answer_length} answer tokens for {task.width} {task.digit_noun}"
            raise UserError(f"task={task.name}: {what}; a causal model needs a token for each digit")
        model = f"causal model of {task.name}"
        functions = task.variables() if variables is None else variables
        named = isinstance(functions, Mapping) and functions and all(isinstance(name, str) for name in functions)
        if not (named and all(map(callable, functions.values()))):
            raise UserError(f"{model}: variables: received {variables!r}; expected a function for each name")
        self.task = task
        self.roots = tuple(f"{name}_{task.digit_word}" for name in task.operand_names)
        self.variables = (*self.roots, *(name for name in functions if name != "answer"))
        derived = {name: (root,) for name, root in zip(task.operand_names, self.roots, strict=True)}
        arguments = {name: _argument_names(name, function) for name, function in functions.items()}
        self.parents = arguments | derived | {OPERANDS: task.operand_names}
        names = [*self.roots, *derived, OPERANDS, *functions]
        if len(set(names)) < len(names):
            raise UserError(f"{model}: variables {', '.join(functions)}: expected names that differ from the operands'")
        if output and output not in functions:
            raise UserError(f"{model}: output={output}: expected one of {', '.join(functions)}")
        for name, parents in arguments.items():
            accepted = [other for other in names if other != name]
            if missing := [parent for parent in parents if parent not in names]:
                raise UserError(f"variable {name}: takes {', '.join(missing)}; expected some of {', '.join(accepted)}")
        try:
            order = tuple(TopologicalSorter(self.parents).static_order())
        except CycleError as error:
            raise UserError(f"{model}: variables form a cycle: {' <- '.join(error.args[1])}") from error
        self._functions = {name: functions[name] for name in order if name in functions}
        self.output = self._find_output([output or "answer"] if output or "answer" in functions else [*functions][::-1])

    def values(self, operands: Operands, fixed: Mapping[str, npt.ArrayLike] | None = None) -> Values:
        """Name -> value (N,) or (N, width) of every variable and of the output, for operands (N, k).

        ``fixed`` sets variables to values, (N,) or (N, width); variables that depend on them change too.
        """
        table = operands.operands if isinstance(operands, Examples) else np.asarray(operands)
        if table.ndim != 2 or table.shape[1] != self.task.num_operands or table.dtype.kind not in "iu":
            received = f"received {table.dtype} of shape {table.shape}"
            raise UserError(f"operands: {received}; expected examples, or integers (N, {self.task.num_operands})")
        table = table.astype(np.int64)
        fixed_values = {name: np.asarray(value) for name, value in (fixed or {}).items()}
        self.require_variables(fixed_values)
        self._require_settable(fixed_values, len(table))
        width, base = max(self.task.bits, self.task.width), self.task.base
        values: Values = {}
        names = zip(self.task.operand_names, self.roots, table.T, self.task.shape, strict=True)
        for name, root, column, limit in names:
            operand = _in_range(name, fixed_values.get(name, column), limit)
            values[root] = _in_range(root, fixed_values.get(root, to_digits(operand, width, base)), base)
            spelled = from_digits(values[root], base)  # digits that are set may spell 7 where the limit is 5
            values[name] = fixed_values.get(name, _in_range(name, spelled, base**self.task.bits))
        values[OPERANDS] = np.stack([values[name] for name in self.task.operand_names], axis=1)
        for name in self._functions:
            if name not in fixed_values:
                values[name] = self._evaluate(name, values)
                continue
            values[name] = fixed_values[name]
            own = self._evaluate(name, {other: value[:1] for other, value in values.items()})
            if own.ndim != values[name].ndim:
                accepted = f"expected {(len(table), *own.shape[1:])}"
                raise UserError(f"variable {name}: set to values of shape {values[name].shape}; {accepted}")
        return values

    def _require_settable(self, fixed: Values, count: int) -> None:
        width = max(self.task.bits, self.task.width)
        shapes: dict[str, tuple[tuple[int, ...], ...]] = dict.fromkeys(self.roots, ((count, width),))
        shapes |= dict.fromkeys(self.task.operand_names, ((count,),))
        for name, value in fixed.items():
            if value.shape not in (wanted := shapes.get(name, ((count,), (count, self.task.width)))):
                accepted = f"expected {' or '.join(map(str, wanted))}"
                raise UserError(f"variable {name}: set to values of shape {value.shape}; {accepted}")
            if value.dtype.kind not in "iub":
                raise UserError(f"variable {name}: set to values of type {value.dtype}; expected integers")

    def answers(self, values: Values) -> Array:
        """Digits (N, width) of the answers, lowest first, from `values`; a `UserError` for digits outside the base."""
        value, last = values[self.output], self.task.base - 1
        if value.ndim == 2 and len(outside := value[(value < 0) | (value > last)]):
            raise UserError(f"variable {self.output}: is {outside[0]}; expected a digit of the answer from 0 to {last}")
        return self._digits(value)

    def _digits(self, value: Array) -> Array:
        return to_digits(value, self.task.width, self.task.base) if value.ndim == 1 else value

    def _is_in_range(self, values: Values) -> bool:
        value = values[self.output]
        return value.ndim == 2 or bool(((value >= 0) & (value < self.task.base**self.task.width)).all())

    def interchange(self, base: Operands, source: Operands, variable: str, digit: int | None = None) -> Array:
        """Digits (N, width) of the answers to ``base`` with one variable taken from ``source``.

        If the variable has columns, only column ``digit`` is taken; None takes all of them. An answer out of range,
        such as a negative one, gives a warning and counts modulo ``base**width``.
        """
        self.require_variables([variable])
        value, before = self.values(source)[variable], self.values(base)
        if len(value) != len(before[variable]):
            numbers = f"{len(before[variable])} bases and {len(value)} sources"
            raise UserError(f"interchange: {numbers}; expected equally many")
        if digit is not None:
            require_integer("digit", digit, 0, (value.shape[1] if value.ndim == 2 else self.task.width) - 1)
        if digit is not None and value.ndim == 2:
            column, value = value[:, digit], before[variable].copy()
            value[:, digit] = column
        after = self.values(base, {variable: value})
        if self._is_in_range(before) and not self._is_in_range(after):
            limit = self.task.base**self.task.width
            outside = f"{self.output} is not always from 0 to {limit - 1}"
            warn(f"interchange of {variable}: {outside}; it counts modulo {limit}")
        try:
            return self.answers(after)
        except UserError as error:
            raise UserError(f"interchange of {variable}: {error}") from error

    def interchange_by_digit(self, base: Operands, source: Operands, variable: str) -> Array:
        """Digits (N, width): column t is digit t of the answer with only column t of the variable interchanged."""
        columns = [self.interchange(base, source, variable, t)[:, t] for t in range(self.task.width)]
        return np.stack(columns, axis=1)

    def co_parents(self, variable: str) -> tuple[str, ...]:
        """The variables that affect the answer together with this one, as ``xor`` does with ``carry``.

        They are the other parents of its children: ``sum`` is a child of ``carry``, and its other parent is ``xor``.
        Parents of later descendants count too, if they do not depend on it. An operand among them counts as its digits,
        unless the variable is computed from these.
        """
        descendants, parents_of_children, other_parents = {variable}, set[str](), set[str]()
        for name, parents in ((name, set(self.parents[name])) for name in self._functions):  # parents before children
            if shared := parents & descendants:
                descendants.add(name)
                (parents_of_children if variable in shared else other_parents).update(parents)
        co_parents = parents_of_children - {variable} | (other_parents - descendants)
        operands = co_parents & {OPERANDS, *self.task.operand_names}
        co_parents |= set().union(*map(self._ancestors, operands)) - self._ancestors(variable)
        return tuple(name for name in self.variables if name in co_parents)

    def _ancestors(self, variable: str) -> set[str]:
        parents = {*self.parents.get(variable, ())}
        return parents.union(*map(self._ancestors, parents))

    def __repr__(self) -> str:
        return f"CausalModel({self.task.name}: {', '.join(self.variables)} -> {self.output})"

    @cached_property
    def answer_variable(self) -> str:
        """The variable that is the whole answer as one number, such as ``sum`` or ``product``; "" without one."""
        answer = self.examples.answer
        return next((name for name in self.variables if np.array_equal(self.table[name], answer)), "")

    @cached_property
    def examples(self) -> Examples:
        """All combinations of operands; the first operand varies slowest. Raises a `UserError` if they are too many."""
        self.task.require_enumerable("a test of a causal model")
        return self.task.examples()

    @cached_property
    def table(self) -> Values:
        """The values of all variables on `examples`, and ``answer``, the digits of the answers."""
        values = self.values(self.examples)
        return values | {"answer": self.answers(values)}

    def require_variables(self, names: Iterable[str], key: str = "variable") -> None:
        """Raise a `UserError`, with a list of the model's variables, if it lacks one of the names."""
        known = (*self._functions, *self.roots, *self.task.operand_names)
        if missing := [name for name in names if name not in known]:
            accepted = f"some of {', '.join(self.variables)}"
            raise unknown_name(key, ", ".join(map(str, missing)), [*self.variables, *known], accepted)

    def _evaluate(self, name: str, values: Values) -> Array:
        arguments = [values[parent].view() for parent in self.parents[name]]
        for argument in arguments:
            argument.flags.writeable = False
        try:
            value = np.asarray(self._functions[name](*arguments))
        except Exception as error:
            raise UserError(f"variable {name}: {first_line(error)}") from error
        count = len(values[OPERANDS])
        if value.shape not in ((count,), (count, self.task.width)) or value.dtype.kind not in "iub":
            shapes = f"integers of shape ({count},) or ({count}, {self.task.width})"
            raise UserError(f"variable {name}: returned {value.dtype} of shape {value.shape}; expected {shapes}")
        return value.astype(np.int64)

    def _find_output(self, candidates: Sequence[str]) -> str:
        """The first candidate that equals the answer on all operands (a sample of a large task), or a `UserError`."""
        task = self.task
        examples = task.examples() if task.size <= NUM_CHECKED else task.sample(NUM_CHECKED)
        values, answer = self.values(examples), to_digits(examples.answer, task.width, task.base)
        right = [name for name in candidates if np.array_equal(self._digits(values[name]), answer)]
        # `_digits` drops the higher digits of numbers that are too large. Candidates that lose none come first.
        exact = [name for name in right if values[name].ndim == 2 or np.array_equal(values[name], examples.answer)]
        if right:
            return (exact or right)[0]
        name = candidates[0]
        first = int((self._digits(values[name]) != answer).any(axis=1).argmax())
        at = ", ".join(f"{n}={x}" for n, x in zip(task.operand_names, examples.operands[first], strict=True))
        received = f"{name} is {from_digits(self._digits(values[name])[first], task.base)} for {at}"
        accepted = f"the answer {examples.answer[first]}, or another output"
        raise UserError(f"causal model of {task.name}: its output {received}; expected {accepted}")


def distinguishable_variables(
    causal_model: CausalModel,
    among: Sequence[str] | None = None,
    digits: Sequence[int | None] | None = None,
    n: int = 256,
) -> list[str]:
    """The variables whose interchange changes some answer, one from each group with the same predictions.

    At digit t, for example, ``sum`` and ``sum_mod`` always predict the same. A group is represented by the variable
    that equals the whole answer, such as ``sum``, or else by its first one.

    Args:
        among: variables of the model; None for all.
        digits: digits of the answer to compare, each with only its column interchanged; None in this list compares
            all digits, with all columns interchanged. By default each digit.
        n: number of random pairs on which predictions are compared.
    """
    rng = np.random.default_rng(0)
    base, source = (causal_model.examples.operands[rng.integers(causal_model.task.size, size=n)] for _ in range(2))
    scored_digits = range(causal_model.task.width) if digits is None else digits

    def predict(source: Array, name: str) -> Array:
        answers = {t: causal_model.interchange(base, source, name, t) for t in scored_digits}
        return np.concatenate([x[:, slice(None) if t is None else [t]] for t, x in answers.items()], axis=1)

    seen, names = [predict(base, causal_model.roots[0])], set()  # the right answers
    candidates = causal_model.variables if among is None else among
    for name in sorted(candidates, key=lambda name: name != causal_model.answer_variable):
        predicted = predict(source, name)
        if not any(np.array_equal(predicted, other) for other in seen):
            names.add(name)
            seen.append(predicted)
    return [name for name in candidates if name in names]


def require_distinguishable(
    causal_model: CausalModel, names: Sequence[str], key: str, digits: Sequence[int | None] | None = None
) -> None:
    """Raise a `UserError` for an unknown variable, one that changes no answer, or two with the same predictions."""
    causal_model.require_variables(names, key)
    distinct = distinguishable_variables(causal_model, names, digits, n=4096)
    if missing := [name for name in names if name not in distinct]:
        alone = distinguishable_variables(causal_model, missing[:1], digits, n=4096)
        reason = "it predicts the same as another variable" if alone else "its interchange changes no answer here"
        accepted = ", ".join(distinguishable_variables(causal_model))
        raise UserError(f"{key}={missing[0]}: {reason}; expected some of {accepted}")


def _in_range(name: str, value: Array, limit: int) -> Array:
    for extreme in (value.min(initial=0), value.max(initial=0)):
        require_integer(name, int(extreme), 0, limit - 1)
    return value


def _argument_names(name: str, function: Function) -> tuple[str, ...]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # some functions written in C have no signature
        raise UserError(f"variable {name}: {function!r} has no signature; expected a function of variables") from None
    return tuple(p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD)
