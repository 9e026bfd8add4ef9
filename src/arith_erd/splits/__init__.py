"""The splits. The files in ``conf/split/`` name them in ``_target_``.

A split is called with examples, and returns a mask (N,), True where held out. Call it on the whole table, or on all
drawn examples: on a part it can give other answers. The paper's splits are in its sections 3.2 and 4.4.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from ..bundled import load_option
from ..checks import require_fraction, require_integer
from ..digits import to_digits
from ..errors import UserError, bad_value
from ..tasks import Examples

RANDOM, LENGTH = load_option("split", "random"), load_option("split", "length")


@runtime_checkable
class Split(Protocol):
    """Any object of a class with this ``__call__``; no base class is needed.

    >>> from arith_erd.tasks import Add
    >>> split, examples = ValueSplit(), Add(bits=3).examples()
    >>> held_out = split(examples)
    >>> held_out.sum(), len(held_out), isinstance(split, Split)
    (np.int64(16), 64, True)
    """

    def __call__(self, examples: Examples, /) -> npt.NDArray[np.bool_]: ...


@dataclass(frozen=True)
class RandomSplit:
    """Hold out a random ``fraction`` of the table.

    Args:
        fraction: share of the examples, strictly between 0 and 1. Each side keeps at least one example.
        seed: seed of the split. All replicas of an experiment share it.
    """

    fraction: float = RANDOM["fraction"]
    seed: int = RANDOM["seed"]

    def __post_init__(self) -> None:
        require_fraction("split.fraction", self.fraction)
        require_integer("split.seed", self.seed, 0)

    def __call__(self, examples: Examples) -> npt.NDArray[np.bool_]:
        held_out = min(max(round(len(examples) * self.fraction), 1), len(examples) - 1)
        return _mask(np.random.default_rng(self.seed).permutation(len(examples))[:held_out], len(examples))


@dataclass(frozen=True)
class TokenSplit:
    """Hold out the quarter of the table whose prompts are nearest to a centroid in Hamming distance; only in base 2.

    The bits of the centroid alternate through ``a``, ``b`` and any further operands. They start with 1, least
    significant bit first: at seven bits ``1010101 + 0101010``, that is 85 + 42. The paper does not say how to break
    ties: 3473 pairs lie within distance 5, and 623 of the 3003 pairs at distance 6 complete the 4096. Like the
    authors' code, we take these in lexicographic order of the prompt with reversed bits, whatever bit order the model
    sees.
    """

    def __call__(self, examples: Examples) -> npt.NDArray[np.bool_]:
        _require_one_length("vs_t", examples)
        if examples.base != 2:
            raise UserError(f"task.base={examples.base}: split=vs_t needs bits; expected task.base=2")
        operand_bits = to_digits(examples.operands, examples.bits).reshape(len(examples), -1)  # (N, k * bits)
        centroid = (np.arange(operand_bits.shape[1]) + 1) % 2
        distance = (operand_bits != centroid).sum(axis=1)
        keys = (*operand_bits.T[::-1], distance)  # np.lexsort: the last key decides first
        return _mask(np.lexsort(keys)[: len(examples) // 4], len(examples))


def _require_one_length(split: str, examples: Examples) -> None:
    if (examples.length < examples.bits).any():
        raise bad_value("split", split, "random or length, for operands of several lengths")


def _mask(rows: npt.NDArray[np.intp], num_examples: int) -> npt.NDArray[np.bool_]:
    """A mask (num_examples,) that is True in ``rows``."""
    return np.isin(np.arange(num_examples), rows)


@dataclass(frozen=True)
class ValueSplit:
    """Hold out the examples whose operands all lie in the middle half of their range.

    For two operands this is the central square of the (A, B) plane, a quarter of the table: at seven bits
    ``32 <= A, B < 96``. For k operands it is 1 / 2^k of the table.
    """

    def __call__(self, examples: Examples) -> npt.NDArray[np.bool_]:
        _require_one_length("vs_v", examples)
        low, high = examples.limit // 4, 3 * examples.limit // 4
        inside = (low <= examples.operands) & (examples.operands < high)  # (N, k)
        return np.logical_and.reduce(inside, axis=1)


@dataclass(frozen=True)
class LengthSplit:
    """Hold out the examples whose operands have more than ``trained`` digits, and a random ``fraction`` of the others.

    The task must have operands of several lengths (``task.min_bits``). ``slices.csv`` has the accuracy of each length.

    Args:
        trained: digits of the longest training operands, below ``task.bits``.
        fraction: share of the shorter examples that is also held out, from 0 to below 1.
        seed: seed of the choice.
    """

    trained: int
    fraction: float = LENGTH["fraction"]
    seed: int = LENGTH["seed"]

    def __post_init__(self) -> None:
        require_integer("split.trained", self.trained, 1)
        require_fraction("split.fraction", self.fraction, zero=True)
        require_integer("split.seed", self.seed, 0)

    def __call__(self, examples: Examples) -> npt.NDArray[np.bool_]:
        if self.trained >= examples.bits:
            raise bad_value("split.trained", self.trained, f"fewer digits than task.bits={examples.bits}")
        random = np.random.default_rng(self.seed).random(len(examples)) < self.fraction
        return (examples.length > self.trained) | random
