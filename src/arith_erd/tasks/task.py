"""A task: a function of two n-bit integers, its token sequences, and the concepts that probes look for."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from .. import bits as bit
from ..bits import ORDERS, Array, Order
from ..errors import bad_value, require_integer

MIN_BITS, MAX_BITS = 2, 9


@dataclass(frozen=True)
class Examples:
    """N pairs of operands with their answers and tokens. The first axis of every array has length N."""

    bits: int
    a: Array  # (N,)
    b: Array  # (N,)
    answer: Array  # (N,)
    prompt: Array  # (N, 2 * bits + 1)
    completion: Array  # (N, width)

    def __len__(self) -> int:
        return len(self.a)


class Task(ABC):
    """A function of two ``bits``-wide integers, written out as tokens.

    A subclass defines ``name``, ``operator``, ``width`` and ``answer``, and may add concepts.

    Args:
        bits: width of each operand, 2 to 9; the table has ``4 ** bits`` rows.
        prompt_order: ``reverse`` (least significant bit first) or ``plain``.
        completion_order: likewise, for the answer.
    """

    name: ClassVar[str]
    operator: ClassVar[str]

    def __init__(self, bits: int = 7, prompt_order: Order = "reverse", completion_order: Order = "reverse") -> None:
        require_integer("task.bits", bits, MIN_BITS, MAX_BITS)
        for key, order in (("prompt_order", prompt_order), ("completion_order", completion_order)):
            if order not in ORDERS:
                raise bad_value(f"task.{key}", order, " or ".join(ORDERS))
        self.bits = bits
        self.prompt_order = prompt_order
        self.completion_order = completion_order

    @property
    @abstractmethod
    def width(self) -> int:
        """Tokens of the completion: enough bits for the largest answer."""

    @abstractmethod
    def answer(self, a: npt.ArrayLike, b: npt.ArrayLike) -> Array:
        """Operands (N,), (N,) in [0, 2 ** bits) -> answers (N,)."""

    @property
    def prompt_length(self) -> int:
        """Tokens of the prompt: two operands and the operator."""
        return 2 * self.bits + 1

    def examples(self, a: npt.ArrayLike | None = None, b: npt.ArrayLike | None = None) -> Examples:
        """The given pairs, or without arguments the whole table: all ``4 ** bits`` pairs, in the order of (a, b)."""
        if a is None or b is None:
            a, b = np.divmod(np.arange(4**self.bits, dtype=np.int64), 2**self.bits)
        a, b = np.asarray(a, dtype=np.int64), np.asarray(b, dtype=np.int64)
        answer = self.answer(a, b)
        return Examples(
            bits=self.bits,
            a=a,
            b=b,
            answer=answer,
            prompt=bit.encode_prompt(a, b, self.bits, self.prompt_order),
            completion=bit.encode_completion(answer, self.width, self.completion_order),
        )

    def decode(self, tokens: npt.ArrayLike) -> Array:
        """Completion tokens (..., width) -> the integers (...,) that they encode."""
        return bit.decode_completion(tokens, self.completion_order)

    def concepts(self, a: npt.ArrayLike, b: npt.ArrayLike) -> dict[str, Array]:
        """Quantities that a probe looks for in an embedding: name -> (N, k), k numbers for each example."""
        return {name: compute(np.asarray(a), np.asarray(b)) for name, compute in self._concepts().items()}

    def _concepts(self) -> dict[str, Callable[[Array, Array], Array]]:
        return {
            "value": lambda a, b: self.answer(a, b)[:, None],
            "completion_bits": lambda a, b: bit.to_bits(self.answer(a, b), self.width),
            "operand_bits": lambda a, b: np.hstack([bit.to_bits(a, self.bits), bit.to_bits(b, self.bits)]),
            "operand_values": lambda a, b: np.stack([a, b], axis=1),
        }

    def variables(self, a: npt.ArrayLike, b: npt.ArrayLike) -> dict[str, Array]:
        """What an algorithm may compute on its way to bit t of the answer: name -> (N, width), a column for each t.

        ``a_bit`` and ``b_bit`` are the operands' own bits t, 0 beyond their width. A task adds what it has more.
        """
        a, b = np.asarray(a), np.asarray(b)
        return {"a_bit": bit.to_bits(a, self.width), "b_bit": bit.to_bits(b, self.width)}

    @property
    def variable_names(self) -> tuple[str, ...]:
        """The keys of `variables`."""
        return tuple(self.variables([0], [0]))

    @property
    def concept_names(self) -> tuple[str, ...]:
        """The keys of `concepts`."""
        return tuple(self._concepts())
