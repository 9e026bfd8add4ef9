"""Networks written by hand, whose algorithm is known. They calibrate the test for algorithms.

``reference("erd", seed=3).network`` is the paper's Transformer for seven-bit addition, 701,381 parameters, with weights
that are computed instead of trained. Each seed gives another network that runs the same algorithm. All of
them answer all 16,384 sums right.

Algorithms are in `by_bits` and `by_numbers`. They use `circuits` (functions of attention heads and hidden units),
`blocks` (their weights), `reading` (embeddings), `stream` (the layout of features) and `assembly` (the final weights).
"""

from collections.abc import Callable

import numpy as np

from ...errors import bad_value, require_integer
from ...seeds import MAX_SEED, Stream, derive
from ...tasks import Add, Task
from .by_bits import erd, erd_decoy, lookahead_carry, lookahead_carry_decoy, mixed, prefix_carry, prefix_carry_decoy
from .by_numbers import graded_carry, local_remainder, remainder
from .program import Program, Reference, compile_program

Algorithm = Callable[[np.random.Generator], Program]
REFERENCES: dict[str, Algorithm] = {a.__name__: a for a in (erd, prefix_carry, lookahead_carry, remainder, mixed)}
OTHERS: dict[str, Algorithm] = {a.__name__: a for a in (graded_carry, local_remainder)}
DECOYS: dict[str, Algorithm] = {a.__name__: a for a in (erd_decoy, prefix_carry_decoy, lookahead_carry_decoy)}


def reference(name: str, seed: int = 0) -> Reference:
    """A network that runs a known algorithm, and the directions of its features.

    Args:
        name: one of `REFERENCES`, `OTHERS` or `DECOYS`. Others are no candidates of `mechanism.verdict`, since
            they were written after trained networks had been looked at. A decoy runs the algorithm in its name, and
            stores a variable of another algorithm that no weight reads.
        seed: draws the variant.

    Raises:
        UserError: for another name, or a seed that is not an integer from 0 to 2147483647.
    """
    programs = REFERENCES | OTHERS | DECOYS
    if name not in programs:
        raise bad_value("reference", name, ", ".join(programs))
    require_integer("seed", seed, 0, MAX_SEED)
    rng = np.random.default_rng(derive(seed, f"{Stream.REFERENCE} {name}"))
    return compile_program(programs[name](rng), rng)


def written_for(task: Task) -> bool:
    """Whether the references perform this task: seven-bit addition, least significant bit first."""
    orders = {task.prompt_order, task.completion_order}
    return isinstance(task, Add) and (task.bits, task.base, task.operands) == (7, 2, 2) and orders == {"reverse"}


__all__ = ["DECOYS", "OTHERS", "REFERENCES", "Program", "Reference", "reference", "written_for"]
