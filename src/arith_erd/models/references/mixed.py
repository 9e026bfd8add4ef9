"""Two algorithms in one network: one for the low bits of the answer, another for the high ones.

The seed draws the two algorithms, one by value and one by carries from the prefix or from lookahead, and the border.
"""

import numpy as np

from .assembly import Step
from .circuits import (
    WIDTH,
    bits_of_value,
    carry_from_prefix,
    copy_value,
    for_lookahead,
    for_prefix_carry,
    partner,
    select,
    settled,
    value,
    xor,
)
from .program import Program


def mixed(rng: np.random.Generator) -> Program:
    """Steps of a value machine and a carry machine; each answers at its own positions."""
    border = int(rng.integers(3, 6))
    by_value, by_carry = range(border), range(border, WIDTH)
    if rng.random() < 0.5:
        by_value, by_carry = range(border, WIDTH), range(border)
    encode = [Step("self_attention", lambda s, m: [value(s, m)])]
    decode = [Step("feed_forward", lambda s, m: [bits_of_value(s)])]
    if rng.random() < 0.5:
        encode = [
            Step("self_attention", lambda s, m: [value(s, m), partner(s, m)]),
            Step("feed_forward", lambda s, m: [settled(s)]),
        ]
        fetched = Step(
            "cross_attention",
            lambda s, m: [copy_value(s, m), *for_lookahead(s, m)],
        )
    else:
        fetched = Step(
            "cross_attention",
            lambda s, m: [copy_value(s, m), *for_prefix_carry(s, m)],
        )
        decode.append(Step("feed_forward", lambda s, m: [carry_from_prefix(s)]))
    decode += [
        Step("feed_forward", lambda s, m: [xor(s, "xor")]),
        Step("feed_forward", lambda s, m: [*select(s, "sum_bits", by_value), *select(s, "xor", by_carry)]),
    ]
    return Program(encode, [fetched, *decode])
