"""References: networks written by hand, whose algorithm is known. They calibrate the test for algorithms.

``reference("erd", seed=3).network`` is the paper's Transformer for seven-bit addition, 701,381 parameters, with weights
that are computed instead of trained. Each seed gives another network that runs the same algorithm. All of them answer
all 16,384 sums right.

`components` has attention heads and hidden units that compute features; `algorithms` combines them into programs;
`program` compiles a program into a network.
"""

import numpy as np

from ...errors import require_integer, unknown_name
from ...seeds import MAX_SEED, RandomStream, derive_seed
from ...tasks import Add, Task
from . import algorithms
from .program import Reference, compile_program

REFERENCES, POST_HOC, DECOYS = (
    {program.__name__: program for program in programs}
    for programs in (
        (algorithms.erd, algorithms.prefix_carry, algorithms.lookahead_carry, algorithms.remainder, algorithms.mixed),
        (algorithms.graded_carry, algorithms.local_remainder),
        (algorithms.erd_decoy, algorithms.prefix_carry_decoy, algorithms.lookahead_carry_decoy),
    )
)
PROGRAMS = REFERENCES | POST_HOC | DECOYS


def reference(name: str, seed: int = 0) -> Reference:
    """Write a network that runs a known algorithm; the seed draws the variant.

    `POST_HOC` were written after we had seen trained networks, so `mechanism.signature.classify` does not name them. A
    decoy runs the algorithm in its name. It also stores a variable of another algorithm, which no weight reads.
    """
    if name not in PROGRAMS:
        raise unknown_name("reference", name, PROGRAMS)
    require_integer("seed", seed, 0, MAX_SEED)
    rng = np.random.default_rng(derive_seed(seed, f"{RandomStream.REFERENCE} {name}"))
    return compile_program(PROGRAMS[name](rng), rng)


def describe_references() -> dict[str, str]:
    """Algorithm -> the first line of its docstring."""
    return {name: (program.__doc__ or "").partition("\n")[0] for name, program in PROGRAMS.items()}


def is_reference_task(task: Task) -> bool:
    """Whether the references perform this task: seven-bit addition, least significant bit first."""
    orders = {task.prompt_order, task.completion_order}
    return isinstance(task, Add) and (task.bits, task.base, task.num_operands) == (7, 2, 2) and orders == {"reverse"}
