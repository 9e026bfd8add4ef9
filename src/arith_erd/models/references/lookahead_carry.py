"""Carries from the operands: the nearest lower position whose two bits are equal decides each carry.

``3 + 5``, bit 2: the bits at 1 are 1 and 0 and propagate a carry; the bits at 0 are 1 and 1 and generate one. The bits
at 2 are 0 and 1, and with the carry the answer is 0. The seed decides whether the encoder or the decoder looks for that
position.
"""

import numpy as np

from .assembly import Step
from .circuits import BITS, OPERATOR, A, B, carry_by_lookahead, fetch, for_lookahead, partner, settled, xor
from .program import Program


def lookahead_carry(rng: np.random.Generator) -> Program:
    """Steps of the algorithm; the feature ``carry`` holds the carry into bit t, at ``a_t`` or in the decoder."""
    find = [Step("self_attention", lambda s, m: [partner(s, m)]), Step("feed_forward", lambda s, m: [settled(s)])]
    answer = Step("feed_forward", lambda s, m: [xor(s, "answer")])
    if rng.random() < 0.5:
        together = bool(rng.random() < 0.5)
        bring = Step(
            "cross_attention",
            lambda s, m: for_lookahead(s, m, together),
        )
        return Program(find, [bring, answer])
    classes = [*A, *[BITS] * (1 + len(B))]  # the operator asks for the carry out of the last bit
    places = [[t] for t in (*A, OPERATOR)]
    moves = {"bit": "a", "partner": "b", "carry": "carry"}
    return Program(
        [*find, Step("self_attention", lambda s, m: [carry_by_lookahead(s, m, classes)])],
        [Step("cross_attention", lambda s, m: [fetch(s, m, places, moves)]), answer],
    )
