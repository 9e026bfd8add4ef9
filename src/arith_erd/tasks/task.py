"""A task: a function of a few integers, written out as tokens, and concepts for probes."""

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from inspect import signature
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from ..bundled import load_option
from ..checks import renamed, require_integer
from ..digits import MAX_BASE, OPERATOR, ORDERS, PAD, ZERO, Array, Order, from_digits, reorder, to_digits
from ..errors import UserError, bad_value, excerpt
from .examples import Examples, Layout

POSITION_ENCODINGS = ("learned", "sinusoidal", "none", "rope", "abacus", "coupled")
"""Position encodings of `models.positions`; here, since configurations are checked without torch."""

OPTIONS = load_option("task", "add")  # defaults of tasks that have none of their own
MAX_ROWS = 2**20  # a table with this many rows or more is not listed
SAMPLE_SIZE = 4096  # number of examples drawn from such a table


class ClassName:
    """The default of ``Task.name``: the class's name in lower case."""

    def __get__(self, instance: object, owner: type) -> str:
        return owner.__name__.lower()


class Task(ABC):
    """A function of one or more integers, written out as tokens.

    >>> from arith_erd.digits import render
    >>> from arith_erd.tasks import Add
    >>> task = Add(bits=3)
    >>> examples = task.examples([3], [5])
    >>> render(examples.prompt), render(examples.completion)
    (['110+101'], ['0001'])
    >>> task.decode(examples.completion)
    array([8])
    >>> task.size, task.prompt_length, task.width, task.concept_names
    (64, 7, 4, ('value', 'completion_bits', 'operand_bits', 'operand_values', 'carries'))

    A subclass defines ``answer``, and ``width`` if answers have more digits than operands. It may set ``num_operands``
    (default 2), ``name`` (default: the class's name in lower case) and ``operator``, the sign between operands
    (default ``+``). It may add concepts.

    Args:
        bits: number of digits of each operand, at least 2 in base 2 and 1 in other bases; the product of all operands
            stays below 2 ** 62. A table of 2 ** 20 rows or more, such as two operands of 10 bits, is not listed:
            `examples` then returns a sample.
        prompt_order: ``reverse`` (least significant digit first) or ``plain``.
        completion_order: the same for the answer.
        base: base of the digits, 2 to 16.
        interleaved: write ``a0 b0 a1 b1 ..``, without an operator, instead of ``a0 a1 .. + b0 b1 ..``.
        min_bits: smallest number of digits if operands have several lengths, up to ``bits``; None: all have ``bits``.
    """

    name: ClassVar[str] = cast(str, ClassName())
    operator: ClassVar[str] = "+"
    num_operands: ClassVar[int] = 2

    def __init__(
        self,
        bits: int = OPTIONS["bits"],
        prompt_order: Order = OPTIONS["prompt_order"],
        completion_order: Order = OPTIONS["completion_order"],
        *,
        base: int = OPTIONS["base"],
        interleaved: bool = OPTIONS["interleaved"],
        min_bits: int | None = OPTIONS["min_bits"],
    ) -> None:
        require_integer("task.base", base, 2, MAX_BASE)
        max_bits = max(n for n in range(1, 32) if base ** (max(self.num_operands, 2) * n) <= 2**62)
        require_integer("task.bits", bits, 2 if base == 2 else 1, max_bits)
        for key, order in (("prompt_order", prompt_order), ("completion_order", completion_order)):
            if order not in ORDERS:
                raise bad_value(f"task.{key}", order, " or ".join(ORDERS))
        if not isinstance(interleaved, bool):
            raise bad_value("task.interleaved", interleaved, "true or false")
        if min_bits is not None:
            require_integer("task.min_bits", min_bits, 1, bits)
            if completion_order == "plain" or type(self).answer_names is not Task.answer_names:
                raise bad_value("task.min_bits", min_bits, "null, unless the answer begins with its lowest digit")
        self.bits = int(bits)
        self.base = int(base)
        self.interleaved = interleaved
        self.min_bits = None if min_bits is None else int(min_bits)
        self.prompt_order = prompt_order
        self.completion_order = completion_order

    def __repr__(self) -> str:
        """A text such as ``Add(bits=5)``: the bits, and other arguments that differ from their defaults."""
        arguments = self._arguments().items()
        shown = [f"{k}={x!r}" for k, (x, default) in arguments if k == "bits" or not np.array_equal(x, default)]
        return f"{type(self).__name__}({', '.join(shown)})"

    def same_as(self, other: "Task") -> bool:
        """Whether another task has the same class and arguments, so that it has the same examples."""
        ours, theirs = ([np.asarray(x, object) for x, _ in task._arguments().values()] for task in (self, other))
        return type(self) is type(other) and all(map(np.array_equal, ours, theirs))

    def _arguments(self) -> dict[str, tuple[Any, Any]]:
        """Arguments of the constructor: name -> value, from the attribute of this name, and default."""
        parameters = signature(type(self)).parameters.values()
        return {p.name: (getattr(self, p.name, p.default), p.default) for p in parameters if p.kind != p.VAR_KEYWORD}

    @property
    def width(self) -> int:
        """Number of digits of the result: as many as the largest answer needs; by default as many as an operand has."""
        return self.bits

    # With Any, mypy lets a subclass name its operands: `answer(self, a, b)`.
    @abstractmethod
    def answer(self, *operands: Any, **named: Any) -> Array:
        """Operands, each (N,) in [0, limit) -> non-negative answers (N,), integers or booleans.

        Causal probes set single digits, so with them operands may be any numbers of ``bits`` digits.
        """

    @property
    def limit(self) -> int:
        """Operands are in [0, limit): by default all numbers of ``bits`` digits."""
        return self.base**self.bits

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of values of each operand."""
        return (self.limit,) * self.num_operands

    @property
    def size(self) -> int:
        """Rows of the table."""
        return math.prod(self.shape)

    @property
    def digit_word(self) -> str:
        """The word for a digit in this base: ``bit`` or ``digit``."""
        return "bit" if self.base == 2 else "digit"

    @property
    def digit_noun(self) -> str:
        """``bits`` or ``digits``."""
        return f"{self.digit_word}s"

    @property
    def vocab_size(self) -> int:
        """Number of tokens in the vocabulary: 5 in base 2, 13 in base 10."""
        return ZERO + self.base

    @property
    def enumerable(self) -> bool:
        """Whether `examples` returns the whole table, and not a sample."""
        return self.min_bits is None and self.size < MAX_ROWS

    def require_enumerable(self, needed_by: str) -> None:
        """Raise a `UserError`, which names the caller, unless the task is `enumerable`."""
        if not self.enumerable:
            what = "operands of several lengths" if self.min_bits else f"{self.size:,} examples"
            accepted = f"{needed_by} needs one length, and fewer than {MAX_ROWS:,} examples"
            raise UserError(f"task={self.name}: {what}; {accepted}")

    def require_own_examples(self, examples: Examples, received_by: str) -> None:
        """Raise a `UserError` if the tokens of the examples are not those of this task."""
        rows = np.linspace(0, max(len(examples) - 1, 0), min(len(examples), 64), dtype=int)
        sample = examples[rows]  # enough to distinguish orders, moduli and tables
        expected = self.examples(*sample.operands.T, **({} if self.min_bits is None else {"length": sample.length}))
        tokens = [(expected.prompt, sample.prompt), (expected.completion, sample.completion)]
        if not all(np.array_equal(one, other) for one, other in tokens):
            accepted = f"those of {self!r}, or any tokens as tensors"
            raise UserError(f"{received_by}: received examples of another task; expected {accepted}")

    @property
    def prompt_length(self) -> int:
        """Number of tokens of the prompt, P: the operands, with an operator between each two."""
        return len(self.prompt_places)

    @property
    def answer_length(self) -> int:
        """Number of tokens of the answer, m."""
        return len(self.answer_names)

    @property
    def operand_names(self) -> tuple[str, ...]:
        """The names ``a``, ``b``, .., one for each operand."""
        return tuple(chr(ord("a") + i) for i in range(self.num_operands))

    @property
    def prompt_places(self) -> list[tuple[int, int]]:
        """Operand and digit of each token of the prompt, as numbers; (i, -1) for the i-th operator."""
        digits = [*reorder(np.arange(self.bits), self.prompt_order).tolist()]
        if self.interleaved:
            return [(operand, digit) for digit in digits for operand in range(self.num_operands)]
        places = [(operand, digit) for operand in range(self.num_operands) for digit in (-1, *digits)]
        return places[1:]

    @property
    def prompt_names(self) -> list[str]:
        """Names of the prompt's tokens: ``a0 a1 + b0 b1`` for two digits in reverse order, ``a1 a0 + b1 b0`` in plain.

        Index 0 is the lowest digit. Names are unique: with three operands the operators are ``+1`` and ``+2``.
        """
        names = self.operand_names
        numbered = self.num_operands > 2
        operators = [f"{self.operator}{i}" if numbered else self.operator for i in range(self.num_operands)]
        return [operators[i] if digit < 0 else f"{names[i]}{digit}" for i, digit in self.prompt_places]

    @property
    def answer_names(self) -> list[str]:
        """Names of the answer's tokens: ``r0 r1 r2`` in reverse order. Decoder position t predicts the t-th token."""
        return [f"r{i}" for i in reorder(np.arange(self.width), self.completion_order)]

    @property
    def answer_positions(self) -> list[int]:
        """The answer position of each digit of the result, lowest first; a `UserError` if tokens have no names."""
        self.require_token_names()
        names = self.answer_names
        return [names.index(f"r{i}") for i in range(self.width)]

    @property
    def answer_digits(self) -> list[int]:
        """The digit of the result at each answer position, 0 for the lowest; -1 for other tokens."""
        positions = self.answer_positions
        return [positions.index(t) if t in positions else -1 for t in range(self.answer_length)]

    @property
    def layout(self) -> Layout:
        """The places of digits, which some position encodings need."""
        in_answer = [int(name[1:]) if name[1:].isdigit() else -1 for name in self.answer_names]
        places = (*(digit for _, digit in self.prompt_places), -1, *in_answer[:-1])
        return Layout(places, self.min_bits is not None)

    def require_token_names(self) -> None:
        """Raise a `UserError` unless all tokens have distinct names."""
        names = ("completion", "answer_names", "examples", "prompt_names")
        classes = type(self).__mro__  # a base class cannot name the tokens that a subclass writes
        written, answer, table, prompt = (next(i for i, c in enumerate(classes) if name in vars(c)) for name in names)
        if written < answer or table < min(answer, prompt):
            wanted = "its class to define answer_names, and prompt_names if it changes the prompt"
            raise UserError(f"task={self.name}: has tokens without names; expected {wanted}")
        tokens = [*self.prompt_names, *self.answer_names]
        if clash := [name for name in tokens if tokens.count(name) > 1]:
            raise UserError(f"task={self.name}: {clash[0]} names two tokens; expected a distinct name for each token")

    def examples(self, *operands: npt.ArrayLike, length: npt.ArrayLike | None = None) -> Examples:
        """The examples with these operands, each (N,) or a number; without operands the whole table.

        The table has ``size`` rows; the first operand varies slowest. If it is not `enumerable`, we draw `SAMPLE_SIZE`
        examples from it.

        Args:
            length: written digits of each operand, (N,) or a number, at least ``min_bits``; by default ``bits``.

        Raises:
            UserError: for operands out of range, lengths too short for them, answers beyond ``width`` digits, or fewer
                or more names than tokens.
        """
        if not operands and not self.enumerable:
            return self.sample(SAMPLE_SIZE)
        table = self._operand_table(operands or tuple(np.indices(self.shape).reshape(self.num_operands, -1)))
        answer = self._checked_answer(table)
        operand, digit = np.array(self.prompt_places).T
        tokens = to_digits(table, self.bits, self.base) + ZERO  # (N, k, bits)
        tokens = np.concatenate([tokens, np.full((*table.shape, 1), OPERATOR)], axis=2)
        prompt, completion = tokens[:, operand, digit], np.array(self.completion(table, answer))
        for attribute, written in (("prompt_names", prompt), ("answer_names", completion)):
            if (names := len(getattr(self, attribute))) != written.shape[1]:
                unnamed = f"{names} {attribute} for {written.shape[1]} tokens"
                raise UserError(f"task={self.name}: {unnamed}; expected one for each")
        shortest = self.min_bits or self.bits
        lengths = np.broadcast_to(self.bits if length is None else length, len(table))
        fits = lengths.dtype.kind in "iu" and ((shortest <= lengths) & (lengths <= self.bits)).all()
        if not fits or (table >= self.base ** lengths[:, None].astype(np.int64)).any():
            accepted = f"{shortest} to {self.bits}, enough for the operands"
            raise bad_value("length", excerpt(str(lengths.tolist())), accepted)
        if self.min_bits is not None:
            prompt[digit >= lengths[:, None]] = PAD
            widths = np.array([self._answer_width(n) for n in range(self.bits + 1)])
            completion[np.arange(self.width) >= widths[lengths][:, None]] = PAD
        return Examples(self.bits, self.base, self.limit, table, answer, prompt, completion, lengths)

    def _operand_table(self, operands: Sequence[npt.ArrayLike]) -> Array:
        """Operands, each (N,) or a number -> (N, k)."""
        vectors = [np.atleast_1d(x) for x in operands]
        shapes = [x.shape for x in vectors]
        if len(shapes) != self.num_operands or len({*shapes} - {(1,)}) > 1 or any(len(shape) > 1 for shape in shapes):
            accepted = f"{self.num_operands} vectors of equal length"
            raise UserError(f"{self.name}: received operands of shapes {str(shapes)[1:-1]}; expected {accepted}")
        for name, x, limit in zip(self.operand_names, vectors, self.shape, strict=True):
            if x.size and (x.dtype.kind not in "iub" or x.min() < 0 or x.max() >= limit):
                raise bad_value(name, excerpt(str(x.tolist())), f"integers from 0 to {limit - 1}")
        return np.stack(np.broadcast_arrays(*vectors), axis=1).astype(np.int64)

    def _checked_answer(self, table: Array) -> Array:
        """The answers (N,) to operands (N, k)."""
        answer = np.asarray(self.answer(*table.T))
        if answer.shape != (len(table),):
            accepted = f"a vector of the {len(table)} answers"
            raise UserError(f"task={self.name}: answer returned an array of shape {answer.shape}; expected {accepted}")
        answer = answer.astype(np.int64) if answer.dtype.kind == "b" else answer
        if answer.dtype.kind not in "iu" or ((answer < 0) | (answer >= self.base**self.width)).any():
            accepted = f"integers from 0 to {self.base**self.width - 1}, as width={self.width} {self.digit_noun} hold"
            received = f"answers from {answer.min()} to {answer.max()}"
            raise UserError(f"task={self.name}: {received}; expected {accepted}; its class may define another width")
        return answer

    def as_examples(self, *operands: npt.ArrayLike | Examples) -> Examples:
        """Convert operands, each (N,), to examples; examples are returned unchanged."""
        args: Any = operands
        if not any(isinstance(x, Examples) for x in args):
            return self.examples(*args)
        if len(args) > 1:
            raise UserError(f"task={self.name}: received examples and more; expected examples alone, or operands")
        return cast(Examples, args[0])

    def _answer_width(self, bits: int) -> int:
        """Number of digits of the answer to operands of ``bits`` digits."""
        shorter = copy(self)
        shorter.bits = bits
        return shorter.width

    def completion(self, operands: Array, answer: Array) -> Array:
        """Operands (N, k) and answers (N,) -> answer tokens (N, m), as named by `answer_names`."""
        return self.to_tokens(to_digits(answer, self.width, self.base))

    def to_tokens(self, digits: Array) -> Array:
        """Digits (N, k), lowest first -> tokens in the order of the answer."""
        return reorder(digits, self.completion_order) + ZERO

    @renamed("count", "n", since="1.1")
    def sample(self, n: int, seed: int = 0) -> Examples:
        """Draw n distinct examples, as many of each length, shortest first; at least one of each, at most all."""
        require_integer("n", n, 1)
        require_integer("seed", seed, 0)
        lengths = range(self.min_bits or self.bits, self.bits + 1)
        draw, parts = random.Random(int(seed)), []
        for length in lengths:
            shape = (min(self.limit, self.base**length),) * self.num_operands
            rows = draw.sample(range(math.prod(shape)), min(math.prod(shape), max(1, n // len(lengths))))
            parts.append([np.full(len(rows), length), *np.unravel_index(rows, shape)])
        written, *columns = np.concatenate(parts, axis=1)
        return self.examples(*columns, length=written)

    def slices(self, examples: Examples) -> dict[str, Array]:
        """Kinds of examples to measure separately if examples are drawn: name -> kind of each example (N,)."""
        return {"length": examples.length}

    def decode(self, tokens: npt.ArrayLike) -> Array:
        """Completion tokens (..., m) -> the integers (...,) that they encode; tokens that are not digits count as 0."""
        digits = np.asarray(tokens, dtype=np.int64)[..., self.answer_positions] - ZERO  # the lowest first
        return from_digits(np.where((digits >= 0) & (digits < self.base), digits, 0), self.base)

    def concepts(self, *operands: npt.ArrayLike | Examples) -> dict[str, Array]:
        """Quantities that a probe seeks in an embedding: name -> (N, k), k numbers for each example.

        The arguments are operands, each (N,), or examples; by default all `examples`. In addition ``carries[:, i]``
        is the carry out of digit i, which causal models call ``carry[:, i + 1]``.
        """
        return self._concepts(self.as_examples(*operands))

    def _concepts(self, examples: Examples) -> dict[str, Array]:
        return {
            "value": examples.answer[:, None],
            f"completion_{self.digit_noun}": to_digits(examples.answer, self.width, self.base),
            f"operand_{self.digit_noun}": self.operand_digits(examples.operands),
            "operand_values": examples.operands,
        }

    def operand_digits(self, operands: npt.ArrayLike) -> Array:
        """Operands (N, k) -> their digits (N, k * bits), beginning with the first operand."""
        digits = to_digits(operands, self.bits, self.base)  # (N, k, bits)
        return digits.reshape(len(digits), -1)

    def variables(self) -> dict[str, Callable[..., npt.ArrayLike]]:
        """Variables between operands and answer: the graph of `interp.causal_model.CausalModel`.

        Each name maps to a function, whose arguments name operands and other variables. Values are integers: (N,), or
        (N, width) with a column for each digit t of the answer, lowest first. ``answer`` is the output, and by default
        the only variable.
        """
        return {"answer": lambda operands: to_digits(self.answer(*operands.T), self.width, self.base)}

    @property
    def concept_names(self) -> tuple[str, ...]:
        """The keys of `concepts`."""
        return tuple(self.concepts(*[0] * self.num_operands))
