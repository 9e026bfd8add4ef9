"""References: networks written by hand, whose algorithm is known. They calibrate the test for algorithms.

``reference("erd", seed=3).network`` is the paper's Transformer for seven-bit addition, 701,381 parameters, with weights
that are computed instead of trained. Each seed gives another network that runs the same algorithm. All of them answer
all 16,384 sums right.

`circuits` has attention heads and hidden units that compute features; `algorithms` combines them into programs;
`program` compiles a program into a network.
"""

import numpy as np

from ...errors import bad_value, require_integer
from ...seeds import MAX_SEED, RandomStream, derive
from ...tasks import Add, Task
from . import algorithms as made
from .program import Reference, compile_program

REFERENCES, OTHERS, DECOYS = (
    {algorithm.__name__: algorithm for algorithm in several}
    for several in (
        (made.erd, made.prefix_carry, made.lookahead_carry, made.remainder, made.mixed),
        (made.graded_carry, made.local_remainder),
        (made.erd_decoy, made.prefix_carry_decoy, made.lookahead_carry_decoy),
    )
)


def reference(name: str, seed: int = 0) -> Reference:
    """Write a network that runs a known algorithm; the seed draws the variant.

    `OTHERS` were written after we had seen trained networks, so `mechanism.signature.decide` does not name them. A
    decoy runs the algorithm in its name. It also stores a variable of another algorithm, which no weight reads.
    """
    programs = REFERENCES | OTHERS | DECOYS
    if name not in programs:
        raise bad_value("reference", name, ", ".join(programs))
    require_integer("seed", seed, 0, MAX_SEED)
    rng = np.random.default_rng(derive(seed, f"{RandomStream.REFERENCE} {name}"))
    return compile_program(programs[name](rng), rng)


def described() -> dict[str, str]:
    """Algorithm -> the first line of its docstring."""
    return {
        name: (program.__doc__ or "").partition("\n")[0] for name, program in (REFERENCES | OTHERS | DECOYS).items()
    }


def written_for(task: Task) -> bool:
    """Whether the references perform this task: seven-bit addition, least significant bit first."""
    orders = {task.prompt_order, task.completion_order}
    return isinstance(task, Add) and (task.bits, task.base, task.num_operands) == (7, 2, 2) and orders == {"reverse"}


__all__ = ["DECOYS", "OTHERS", "REFERENCES", "Reference", "described", "reference", "written_for"]
