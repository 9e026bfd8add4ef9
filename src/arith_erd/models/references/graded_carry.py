"""The carry from a number: do the bits below t, less what the prefix spells, add up to more than half of 2^t?

``3 + 5``, bit 2 after ``0 0``: (3 + 1 - 0) / 4 = 1, so a carry comes in. The bits at 2 are 0 and 1, and with the carry
the answer is 0.
"""

import numpy as np
import torch

from .assembly import Step
from .blocks import Units, piecewise
from .circuits import fetch_bits, less_prefix, prefix_number, sum_of_lower, xor
from .program import Program
from .stream import Stream


def carry_from_number(stream: Stream) -> Units:
    """The carry into bit t: -1 up to 1/4, 1 from 3/4 on."""
    stream.add("carry")
    values = torch.tensor([[-1.0], [1.0]], dtype=torch.float64)
    return piecewise(less_prefix(stream, own=False), (0.25, 0.75), values, stream.write("carry"))


def graded_carry(rng: np.random.Generator) -> Program:
    """Steps of the algorithm, with a head for each bit or for both; ``carry`` holds the carry into bit t."""
    together = bool(rng.random() < 0.5)
    bring = [
        Step("self_attention", lambda s, m: [prefix_number(s, s)]),
        Step("cross_attention", lambda s, m: [sum_of_lower(s, m, own=False), *fetch_bits(s, m, 0, "", together)]),
    ]
    if rng.random() < 0.5:
        bring.reverse()
    return Program(
        [],
        [
            *bring,
            Step("feed_forward", lambda s, m: [carry_from_number(s)]),
            Step("feed_forward", lambda s, m: [xor(s, "answer")]),
        ],
    )
