"""Random output: a control that can only be memorised (paper, section 4.2)."""

import numpy as np
import numpy.typing as npt

from ..bundled import load_option
from ..checks import require_integer
from ..digits import Array, Order, num_digits
from .task import Task

OPTIONS = load_option("task", "random_output")


class RandomOutput(Task):
    """A fixed table of integers, drawn uniformly from the range of sums, [0, 2 * (base ** bits - 1)].

    Prompts and widths are as in addition. At three bits, ``3`` and ``5`` have the prompt ``110+101`` and a random
    four-bit completion.

    Args:
        bits, prompt_order, completion_order, base: as in `Task`.
        seed: seed of the table. All replicas of an experiment memorise the same table.
    """

    name = "random_output"

    def __init__(
        self,
        bits: int = OPTIONS["bits"],
        prompt_order: Order = OPTIONS["prompt_order"],
        completion_order: Order = OPTIONS["completion_order"],
        seed: int = OPTIONS["seed"],
        *,
        base: int = OPTIONS["base"],
    ) -> None:
        super().__init__(bits, prompt_order, completion_order, base=base)
        require_integer("task.seed", seed, 0)
        self.require_enumerable("a table of random answers")
        self.seed = seed
        self._table = np.random.default_rng(seed).integers(2 * self.limit - 1, size=self.size, dtype=np.int64)

    @property
    def width(self) -> int:
        return num_digits(2 * (self.limit - 1), self.base)

    def answer(self, a: npt.ArrayLike, b: npt.ArrayLike) -> Array:
        return self._table[np.asarray(a) * self.limit + np.asarray(b)]
