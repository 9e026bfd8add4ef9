"""A task: a function of a few integers, its token sequences, and the concepts that probes look for."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from .. import bits as bit
from ..bits import MAX_BASE, ORDERS, ZERO, Array, Order, reorder
from ..errors import UserError, bad_value, require_integer

ROWS = 2**20  # every table has fewer


@dataclass(frozen=True)
class Examples:
    """N combinations of operands with their answers and tokens. The first axis of every array has length N."""

    bits: int
    """Digits of each operand."""
    base: int
    limit: int
    """Operands are in [0, limit)."""
    operands: Array  # (N, k)
    answer: Array  # (N,)
    prompt: Array  # (N, k * bits + k - 1)
    completion: Array  # (N, width)

    def __len__(self) -> int:
        return len(self.answer)

    @property
    def a(self) -> Array:
        """The first operand (N,)."""
        return self.operands[:, 0]

    @property
    def b(self) -> Array:
        """The second operand (N,)."""
        return self.operands[:, 1]


class Task(ABC):
    """A function of one or more integers, written out as tokens.

    >>> from arith_erd.tasks import Add
    >>> task = Add(bits=3)
    >>> examples = task.examples([3], [5])
    >>> bit.render(examples.prompt), bit.render(examples.completion)
    (['110+101'], ['0001'])
    >>> task.decode(examples.completion)
    array([8])
    >>> task.size, task.prompt_length, task.width, task.concept_names
    (64, 7, 4, ('value', 'completion_bits', 'operand_bits', 'operand_values', 'carries'))

    A subclass defines ``name``, ``operator``, ``width`` and ``answer``, sets ``operands`` unless it takes two, and may
    add concepts.

    Args:
        bits: digits of each operand, which are bits in base 2. At least 2 in base 2, 1 in others; the table must have
            fewer than 2 ** 20 rows, so at most 9 for two binary operands.
        prompt_order: ``reverse`` (least significant digit first) or ``plain``.
        completion_order: likewise, for the answer.
        base: of the digits, 2 to 16.

    Raises:
        UserError: for an option out of its range.
    """

    name: ClassVar[str]
    operator: ClassVar[str]
    operands: ClassVar[int] = 2

    def __init__(
        self, bits: int = 7, prompt_order: Order = "reverse", completion_order: Order = "reverse", *, base: int = 2
    ) -> None:
        require_integer("task.base", base, 2, MAX_BASE)
        require_integer("task.bits", bits, *self._widths(base))
        for key, order in (("prompt_order", prompt_order), ("completion_order", completion_order)):
            if order not in ORDERS:
                raise bad_value(f"task.{key}", order, " or ".join(ORDERS))
        self.bits = bits
        self.base = base
        self.prompt_order = prompt_order
        self.completion_order = completion_order

    @classmethod
    def _widths(cls, base: int) -> tuple[int, int]:
        """The fewest and most digits that an operand may have."""
        most = max((n for n in range(1, 21) if base ** (cls.operands * n) < ROWS), default=1)
        return 2 if base == 2 else 1, most

    @property
    @abstractmethod
    def width(self) -> int:
        """Tokens of the completion: enough digits for the largest answer."""

    # With Any, mypy lets a subclass name its operands: `answer(self, a, b)`.
    @abstractmethod
    def answer(self, *operands: Any, **named: Any) -> Array:
        """Operands, each (N,) in [0, limit) -> answers (N,), none of them negative."""

    @property
    def limit(self) -> int:
        """Operands are in [0, limit): all that can be written, unless a task takes fewer."""
        return self.base**self.bits

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the table: how many values each operand has."""
        return (self.limit,) * self.operands

    @property
    def size(self) -> int:
        """Rows of the table."""
        return math.prod(self.shape)

    @property
    def digits(self) -> str:
        """The word for digits in this base: ``bits`` or ``digits``."""
        return "bits" if self.base == 2 else "digits"

    @property
    def vocab_size(self) -> int:
        """Tokens that a network must know: 5 in base 2, 13 in base 10."""
        return ZERO + self.base

    @property
    def prompt_length(self) -> int:
        """Tokens of the prompt: the operands, and an operator between each two."""
        return self.operands * self.bits + self.operands - 1

    @property
    def operand_names(self) -> tuple[str, ...]:
        """``a``, ``b``, ``c``, as many as there are operands."""
        return tuple(chr(ord("a") + i) for i in range(self.operands))

    @property
    def prompt_names(self) -> list[str]:
        """Of the prompt's tokens: ``a0 a1 + b0 b1`` for two digits in reverse order, ``a1 a0 + b1 b0`` in plain order.

        Index 0 is the lowest digit. Names are unique: with three operands the operators are ``+1`` and ``+2``.
        """
        places = [str(i) for i in reorder(np.arange(self.bits), self.prompt_order)]
        names: list[str] = []
        for i, operand in enumerate(self.operand_names):
            if i:
                names.append(self.operator if self.operands == 2 else f"{self.operator}{i}")
            names += [f"{operand}{place}" for place in places]
        return names

    @property
    def answer_names(self) -> list[str]:
        """Of the answer's tokens: ``r0 r1 r2`` in reverse order. Position t of the decoder predicts the t-th."""
        return [f"r{i}" for i in reorder(np.arange(self.width), self.completion_order)]

    def examples(self, *operands: npt.ArrayLike) -> Examples:
        """The given operands, each (N,), or the whole table: all ``size`` rows, the first operand slowest.

        Raises:
            ValueError: for another number of operands than the task has.
            UserError: if the task's answers are no integers that ``width`` digits hold.
        """
        columns = operands or tuple(np.indices(self.shape).reshape(self.operands, -1))
        if len(columns) != self.operands:
            raise ValueError(f"{self.name} takes {self.operands} operands, received {len(columns)}")
        table = np.stack([np.asarray(x, dtype=np.int64) for x in columns], axis=1)
        answer = np.asarray(self.answer(*table.T))
        if answer.dtype.kind not in "iu" or ((answer < 0) | (answer >= self.base**self.width)).any():
            accepted = f"integers from 0 to {self.base**self.width - 1}, which {self.width} {self.digits} hold"
            raise UserError(f"task={self.name}: answers from {answer.min()} to {answer.max()}; expected {accepted}")
        return Examples(
            bits=self.bits,
            base=self.base,
            limit=self.limit,
            operands=table,
            answer=answer,
            prompt=bit.encode_prompt(table, self.bits, self.prompt_order, self.base),
            completion=bit.encode_completion(answer, self.width, self.completion_order, self.base),
        )

    def decode(self, tokens: npt.ArrayLike) -> Array:
        """Completion tokens (..., width) -> the integers (...,) that they encode."""
        return bit.decode_completion(tokens, self.completion_order, self.base)

    def concepts(self, *operands: npt.ArrayLike | Examples) -> dict[str, Array]:
        """Quantities that a probe looks for in an embedding: name -> (N, k), k numbers for each example.

        Of operands, each (N,), or of examples.
        """
        examples = operands[0] if operands else None
        columns = [*examples.operands.T] if isinstance(examples, Examples) else [np.asarray(x) for x in operands]
        return {name: compute(*columns) for name, compute in self._concepts().items()}

    def _concepts(self) -> dict[str, Callable[..., Array]]:
        return {
            "value": lambda *x: self.answer(*x)[:, None],
            f"completion_{self.digits}": lambda *x: bit.to_digits(self.answer(*x), self.width, self.base),
            f"operand_{self.digits}": lambda *x: self.operand_digits(np.stack(x, axis=1)),
            "operand_values": lambda *x: np.stack(x, axis=1),
        }

    def regressable(self) -> dict[str, Callable[..., Array]]:
        """Targets of a linear head in a loss: name -> function of the operands that returns (N, k).

        All concepts; a task may add to them.
        """
        return self._concepts()

    def operand_digits(self, operands: npt.ArrayLike) -> Array:
        """Operands (N, k) -> their digits (N, k * bits), those of the first operand first."""
        digits = bit.to_digits(operands, self.bits, self.base)  # (N, k, bits)
        return digits.reshape(len(digits), -1)

    def variables(self) -> dict[str, Callable[..., npt.ArrayLike]]:
        """Variables between operands and answer: the graph of `interp.causal_model.CausalModel`.

        Name -> function of the operands and of other variables, which its arguments name. A value is an integer for
        each example, (N,), or one for each digit t of the answer, (N, width), the lowest first. ``answer`` is the
        output. A task adds what lies between; by default nothing does.
        """
        return {"answer": lambda operands: bit.to_digits(self.answer(*operands.T), self.width, self.base)}

    @property
    def concept_names(self) -> tuple[str, ...]:
        """The keys of `concepts`."""
        return tuple(self._concepts())
