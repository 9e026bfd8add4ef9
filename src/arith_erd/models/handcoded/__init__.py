"""Hand-coded networks, whose algorithm is known. They calibrate the test for algorithms.

``write_network("erd", seed=3).network`` is the paper's Transformer for seven-bit addition, 701,381 parameters. Its
weights are computed instead of trained. Each seed gives another network that runs the same algorithm. All of them
answer all 16,384 sums right.

`components` has attention heads and hidden units that compute features of a `stream`; `programs` combines them into
algorithms; `compiler` compiles a program into a network.
"""

import numpy as np

from ...checks import require_integer
from ...errors import unknown_name
from ...seeds import MAX_SEED, RandomStream, derive_seed
from ...tasks import Add, Task
from . import programs
from .compiler import HandcodedNetwork, compile_program

PROGRAMS = {
    program.__name__: program
    for program in (
        *(programs.erd, programs.prefix_carry, programs.lookahead_carry, programs.remainder, programs.mixed),
        *(programs.graded_carry, programs.local_remainder),
        *(programs.erd_decoy, programs.prefix_carry_decoy, programs.lookahead_carry_decoy),
    )
}


def write_network(name: str, seed: int = 0) -> HandcodedNetwork:
    """Write a network that runs a known algorithm; the seed draws the variant.

    A decoy runs the algorithm in its name. It also stores a variable of another algorithm, which no weight reads. What
    the algorithms compute: `interp.algorithms`.
    """
    if name not in PROGRAMS:
        raise unknown_name("handcoded", name, PROGRAMS)
    require_integer("seed", seed, 0, MAX_SEED)
    rng = np.random.default_rng(derive_seed(seed, f"{RandomStream.HANDCODED} {name}"))
    return compile_program(PROGRAMS[name](rng), rng)


def is_handcoded_task(task: Task) -> bool:
    """Whether the hand-coded networks perform this task: seven-bit addition, least significant bit first."""
    names = (task.prompt_names, task.answer_names)
    return isinstance(task, Add) and task.base == 2 and names == (Add().prompt_names, Add().answer_names)
