"""Algorithms by carries and by a number that one attention computes; two at once; and decoys.

A decoy runs one algorithm. Beside it, it computes a variable of another, by the same steps and at the same scale, that
no later weight reads: decoding it proves nothing.
"""

import numpy as np

from .assembly import Step
from .circuits import (
    BITS,
    OPERATOR,
    WIDTH,
    A,
    B,
    bits_of_value,
    carry_by_lookahead,
    carry_from_prefix,
    copy_value,
    fetch,
    for_lookahead,
    for_prefix_carry,
    partner,
    select,
    settled,
    value,
    xor,
)
from .program import Program

ENCODE_VALUE = Step("self_attention", lambda s, m: [value(s, m)])
BITS_OF_VALUE = Step("feed_forward", lambda s, m: [bits_of_value(s)])
ANSWER_VALUE = Step("feed_forward", lambda s, m: select(s, "sum_bits", range(WIDTH)))
SETTLED = Step("feed_forward", lambda s, m: [settled(s)])
CARRY_FROM_PREFIX = Step("feed_forward", lambda s, m: [carry_from_prefix(s)])
ANSWER_XOR = Step("feed_forward", lambda s, m: [xor(s, "answer")])


def erd(rng: np.random.Generator) -> Program:
    """Encode, regress, decode: the sum as one number, then its bits. The paper's hypothesis about its networks.

    ``3 + 5``: attention to each bit by its place value gives the number 8, and bit t of the answer is bit t of 8. The
    seed decides whether the encoder adds and the decoder copies, or the decoder's attention adds. The feature ``value``
    holds the sum in both stacks, or in the decoder alone.
    """
    decode = [BITS_OF_VALUE, ANSWER_VALUE]
    if rng.random() < 0.3:
        return Program([], [Step("cross_attention", lambda s, m: [value(s, m)]), *decode])
    return Program([ENCODE_VALUE], [Step("cross_attention", lambda s, m: [copy_value(s, m)]), *decode])


def prefix_carry(rng: np.random.Generator) -> Program:
    """Carries from the prefix, without a carry chain and without a number; with a head for each bit or for both.

    ``3 + 5``, bit 2: the bits at 1 are 1 and 0 and answer bit 1 is 0, so a carry came into bit 1 and leaves it. The
    bits at 2 are 0 and 1, and with the carry the answer is 0. The decoder's feature ``carry`` holds the one into bit t.
    """
    together = bool(rng.random() < 0.5)
    bring = Step("cross_attention", lambda s, m: for_prefix_carry(s, m, together))
    return Program([], [bring, CARRY_FROM_PREFIX, ANSWER_XOR])


def lookahead_carry(rng: np.random.Generator) -> Program:
    """Carries from the operands: the nearest lower position whose two bits are equal decides each carry.

    ``3 + 5``, bit 2: the bits at 1 are 1 and 0 and propagate a carry; the bits at 0 are 1 and 1 and generate one. The
    bits at 2 are 0 and 1, and with the carry the answer is 0. The seed decides whether the encoder or the decoder looks
    for that position; the feature ``carry`` holds the carry into bit t, at ``a_t`` or in the decoder.
    """
    find = [Step("self_attention", lambda s, m: [partner(s, m)]), SETTLED]
    if rng.random() < 0.5:
        together = bool(rng.random() < 0.5)
        return Program(find, [Step("cross_attention", lambda s, m: for_lookahead(s, m, together)), ANSWER_XOR])
    classes = [*A, *[BITS] * (1 + len(B))]  # the operator asks for the carry out of the last bit
    places = [[t] for t in (*A, OPERATOR)]
    moves = {"bit": "a", "partner": "b", "carry": "carry"}
    return Program(
        [*find, Step("self_attention", lambda s, m: [carry_by_lookahead(s, m, classes)])],
        [Step("cross_attention", lambda s, m: [fetch(s, m, places, moves)]), ANSWER_XOR],
    )


def mixed(rng: np.random.Generator) -> Program:
    """A value machine for the low or the high bits, a carry machine for the others.

    The seed draws which, the border, and whether the carries come from the prefix or from lookahead.
    """
    border = int(rng.integers(3, 6))
    by_value, by_carry = range(border), range(border, WIDTH)
    if rng.random() < 0.5:
        by_value, by_carry = range(border, WIDTH), range(border)
    if rng.random() < 0.5:
        encode = [Step("self_attention", lambda s, m: [value(s, m), partner(s, m)]), SETTLED]
        decode = [Step("cross_attention", lambda s, m: [copy_value(s, m), *for_lookahead(s, m)]), BITS_OF_VALUE]
    else:
        encode = [ENCODE_VALUE]
        fetched = Step("cross_attention", lambda s, m: [copy_value(s, m), *for_prefix_carry(s, m)])
        decode = [fetched, BITS_OF_VALUE, CARRY_FROM_PREFIX]
    decode += [
        Step("feed_forward", lambda s, m: [xor(s, "xor")]),
        Step("feed_forward", lambda s, m: [*select(s, "sum_bits", by_value), *select(s, "xor", by_carry)]),
    ]
    return Program(encode, decode)


def prefix_carry_decoy(rng: np.random.Generator) -> Program:
    """Carries from the prefix. The sum as a number is stored, and no weight reads it."""
    fetched = Step("cross_attention", lambda s, m: [*for_prefix_carry(s, m), copy_value(s, m)])
    return Program([ENCODE_VALUE], [fetched, CARRY_FROM_PREFIX, ANSWER_XOR])


def lookahead_carry_decoy(rng: np.random.Generator) -> Program:
    """Carries from the operands. The sum as a number is stored, and no weight reads it."""
    encode = [Step("self_attention", lambda s, m: [partner(s, m), value(s, m)]), SETTLED]
    return Program(encode, [Step("cross_attention", lambda s, m: [*for_lookahead(s, m), copy_value(s, m)]), ANSWER_XOR])


def erd_decoy(rng: np.random.Generator) -> Program:
    """The sum as a number. Carries, computed as in one of the carry machines, are stored, and no weight reads them."""
    if rng.random() < 0.5:
        decode = [
            Step("cross_attention", lambda s, m: [copy_value(s, m), *for_prefix_carry(s, m)]),
            BITS_OF_VALUE,
            CARRY_FROM_PREFIX,
            Step("feed_forward", lambda s, m: [*select(s, "sum_bits", range(WIDTH)), xor(s, "unread_xor")]),
        ]
        return Program([ENCODE_VALUE], decode)
    encode = [Step("self_attention", lambda s, m: [value(s, m), partner(s, m)]), SETTLED]
    fetched = Step("cross_attention", lambda s, m: [copy_value(s, m), *for_lookahead(s, m)])
    return Program(encode, [fetched, BITS_OF_VALUE, ANSWER_VALUE])
