"""Encode, regress, decode: the sum as one number, then its bits. The paper's hypothesis about its networks.

``3 + 5``: attention to each bit by its place value gives the number 8, and bit t of the answer is bit t of 8. The
seed decides whether the encoder adds and the decoder copies, or the decoder's attention adds.
"""

import numpy as np

from .assembly import Step
from .circuits import WIDTH, bits_of_value, copy_value, select, value
from .program import Program


def erd(rng: np.random.Generator) -> Program:
    """Steps of the algorithm; the feature ``value`` holds the sum in both stacks, or in the decoder alone."""
    decode = [
        Step("feed_forward", lambda s, m: [bits_of_value(s)]),
        Step("feed_forward", lambda s, m: select(s, "sum_bits", range(WIDTH))),
    ]
    if rng.random() < 0.3:
        return Program([], [Step("cross_attention", lambda s, m: [value(s, m)]), *decode])
    return Program(
        [Step("self_attention", lambda s, m: [value(s, m)])],
        [Step("cross_attention", lambda s, m: [copy_value(s, m)]), *decode],
    )
