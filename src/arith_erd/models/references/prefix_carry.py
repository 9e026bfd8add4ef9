"""Carries from the prefix, without a carry chain and without a number.

``3 + 5``, bit 2: the bits at 1 are 1 and 0 and answer bit 1 is 0, so a carry came into bit 1 and leaves it. The bits at
2 are 0 and 1, and with the carry the answer is 0.
"""

import numpy as np

from .assembly import Step
from .circuits import carry_from_prefix, for_prefix_carry, xor
from .program import Program


def prefix_carry(rng: np.random.Generator) -> Program:
    """Steps of the algorithm, with a head for each bit or for both.

    The feature ``carry`` of the decoder holds the carry into bit t.
    """
    together = bool(rng.random() < 0.5)
    return Program(
        [],
        [
            Step(
                "cross_attention",
                lambda s, m: for_prefix_carry(s, m, together),
            ),
            Step("feed_forward", lambda s, m: [carry_from_prefix(s)]),
            Step("feed_forward", lambda s, m: [xor(s, "answer")]),
        ],
    )
