"""The column's total as a number: what the bits up to t add up to, less what the prefix spells. Its parity is the bit.

``3 + 5``, bit 2 after ``0 0``: (3 + 5 - 0) / 4 = 2 is even, so the bit is 0. Higher bits do not count. After a right
prefix the total is 0, 1, 2 or 3; a wrong one takes it beyond, and it counts as 0 or 3 there.
"""

import numpy as np
import torch

from .assembly import Step
from .blocks import Units, piecewise
from .circuits import BITS, less_prefix, prefix_number, sharpen, sum_of_lower
from .program import Program
from .stream import Stream


def parity(stream: Stream) -> list[Units]:
    """The parity of the total: -1 at 0 and 2, 1 at 1 and 3, linear in between. The last bit ends at 1."""
    total = less_prefix(stream, own=True)
    elsewhere = torch.ones(stream.size("position"), dtype=torch.float64)
    elsewhere[BITS] = 0.0
    last = total - 10 * elsewhere @ stream.read("position")  # below all knots but in the last bit
    stream.add("parity")
    write = stream.write("parity")

    def values(*numbers: float) -> torch.Tensor:
        return torch.tensor(numbers, dtype=torch.float64)[:, None]

    return [
        piecewise(total, (0.0, 1.0, 2.0, 3.0), values(-1, 1, -1, 1), write),
        piecewise(last, (1.0, 2.0, 3.0), values(0, 2, 0), write),
    ]


def local_remainder(rng: np.random.Generator) -> Program:
    """Steps of the algorithm; ``lower`` and ``prefix`` of the decoder hold both numbers. Either comes first."""
    bring = [
        Step("self_attention", lambda s, m: [prefix_number(s, s)]),
        Step("cross_attention", lambda s, m: [sum_of_lower(s, m, own=True)]),
    ]
    if rng.random() < 0.5:
        bring.reverse()
    return Program(
        [],
        [
            *bring,
            Step("feed_forward", lambda s, m: parity(s)),
            Step("feed_forward", lambda s, m: [sharpen(s)]),
        ],
    )
