"""Networks that store a variable and never use it. Decoding it proves nothing.

Each runs one algorithm. Beside it, it computes a variable of another, by the same steps and at the same scale; no later
weight reads that variable.
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


def prefix_carry_decoy(rng: np.random.Generator) -> Program:
    """Carries from the prefix. The sum as a number is stored, and no weight reads it."""
    return Program(
        [Step("self_attention", lambda s, m: [value(s, m)])],
        [
            Step("cross_attention", lambda s, m: [
                *for_prefix_carry(s, m), copy_value(s, m)]),
            Step("feed_forward", lambda s, m: [carry_from_prefix(s)]),
            Step("feed_forward", lambda s, m: [xor(s, "answer")]),
        ],
    )  # fmt: skip


def lookahead_carry_decoy(rng: np.random.Generator) -> Program:
    """Carries from the operands. The sum as a number is stored, and no weight reads it."""
    return Program(
        [
            Step("self_attention", lambda s, m: [partner(s, m), value(s, m)]),
            Step("feed_forward", lambda s, m: [settled(s)]),
        ],
        [
            Step("cross_attention", lambda s, m: [
                *for_lookahead(s, m), copy_value(s, m)]),
            Step("feed_forward", lambda s, m: [xor(s, "answer")]),
        ],
    )  # fmt: skip


def erd_decoy(rng: np.random.Generator) -> Program:
    """The sum as a number. Carries, computed as in one of the carry machines, are stored, and no weight reads them."""
    decode = [
        Step("feed_forward", lambda s, m: [bits_of_value(s)]),
        Step("feed_forward", lambda s, m: select(s, "sum_bits", range(WIDTH))),
    ]
    if rng.random() < 0.5:
        return Program(
            [Step("self_attention", lambda s, m: [value(s, m)])],
            [
                Step("cross_attention", lambda s, m: [
                    copy_value(s, m), *for_prefix_carry(s, m)]),
                decode[0],
                Step("feed_forward", lambda s, m: [carry_from_prefix(s)]),
                Step("feed_forward", lambda s, m: [*select(s, "sum_bits", range(WIDTH)), xor(s, "unread_xor")]),
            ],
        )  # fmt: skip
    return Program(
        [
            Step("self_attention", lambda s, m: [value(s, m), partner(s, m)]),
            Step("feed_forward", lambda s, m: [settled(s)]),
        ],
        [
            Step("cross_attention", lambda s, m: [
                copy_value(s, m), *for_lookahead(s, m)]),
            *decode,
        ],
    )  # fmt: skip
