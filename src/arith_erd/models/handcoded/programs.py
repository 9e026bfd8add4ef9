"""The algorithms of the hand-coded networks: they compute by carries, by a number, or by a difference of two numbers.

A decoy runs one algorithm. It also computes a variable of another one, by the same steps and at the same scale, but no
later weight reads that variable: decoding it proves nothing.
"""

from functools import partial

import numpy as np

from . import components
from .compiler import Program, cross_attention, feed_forward, self_attention

ENCODE_VALUE = self_attention(components.write_value)
EQUAL_BITS = feed_forward(components.write_equal_bits)
BITS_OF_VALUE = feed_forward(components.write_bits_of_value)
write_sum_bits = partial(components.write_answer, source="sum_bits")
ANSWER_VALUE = [BITS_OF_VALUE, feed_forward(write_sum_bits)]
ANSWER_PARITY = feed_forward(components.write_answer_from_parity)
ANSWER_XOR = feed_forward(components.write_xor)
WRITE_PREFIX_NUMBER = self_attention(components.write_prefix_number)
CARRY_FROM_PREFIX = feed_forward(components.write_carry_from_prefix)


def erd(rng: np.random.Generator) -> Program:
    """Encode, regress, decode: forms the sum as one number, then its bits. The paper's hypothesis on its networks.

    ``3 + 5``: attention to each bit by its place value gives the number 8, and bit t of the answer is bit t of 8. The
    seed decides whether the encoder adds and the decoder copies, or the decoder's attention adds. The feature ``value``
    holds the sum in both stacks, or in the decoder alone.
    """
    if rng.random() < 0.3:
        return Program([], [cross_attention(components.write_value), *ANSWER_VALUE])
    return Program([ENCODE_VALUE], [cross_attention(components.copy_value), *ANSWER_VALUE])


def prefix_carry(rng: np.random.Generator) -> Program:
    """Gets each carry from the prefix, without a carry chain and without a number.

    ``3 + 5``, bit 2: the bits at 1 are 1 and 0 and answer bit 1 is 0, so a carry came into bit 1 and leaves it. The
    bits at 2 are 0 and 1, and with the carry the answer is 0. The seed decides whether each operand has a head of its
    own. The decoder's feature ``carry`` holds the carry into bit t.
    """
    fetch = partial(components.fetch_prefix_carry_inputs, together=bool(rng.random() < 0.5))
    return Program([], [cross_attention(fetch), CARRY_FROM_PREFIX, ANSWER_XOR])


def lookahead_carry(rng: np.random.Generator) -> Program:
    """Gets each carry from the operands: the nearest lower position whose two bits are equal decides it.

    ``3 + 5``, bit 2: the bits at 1 are 1 and 0 and propagate a carry; the bits at 0 are 1 and 1 and generate one. The
    bits at 2 are 0 and 1, and with the carry the answer is 0. The seed decides whether the encoder or the decoder looks
    for that position; the feature ``carry`` holds the carry into bit t, at ``a_t`` or in the decoder.
    """
    find = [self_attention(components.copy_b), EQUAL_BITS]
    if rng.random() < 0.5:
        fetch = partial(components.fetch_lookahead_inputs, together=bool(rng.random() < 0.5))
        return Program(find, [cross_attention(fetch), ANSWER_XOR])
    return Program(
        [*find, self_attention(components.write_lookahead_carry)], [cross_attention(components.fetch_carry), ANSWER_XOR]
    )


def mixed(rng: np.random.Generator) -> Program:
    """Forms the sum as a number for the low or the high bits, and uses carries for the others.

    The seed draws which, the border, and whether the carries come from the prefix or from lookahead.
    """
    border = int(rng.integers(3, 6))
    by_value, by_carry = slice(border), slice(border, None)
    if rng.random() < 0.5:
        by_value, by_carry = by_carry, by_value
    if rng.random() < 0.5:
        encode = [self_attention(components.write_value, components.copy_b), EQUAL_BITS]
        decode = [cross_attention(components.copy_value, components.fetch_lookahead_inputs), BITS_OF_VALUE]
    else:
        encode = [ENCODE_VALUE]
        fetch = cross_attention(components.copy_value, components.fetch_prefix_carry_inputs)
        decode = [fetch, BITS_OF_VALUE, CARRY_FROM_PREFIX]
    select = [
        partial(write_sum_bits, positions=by_value),
        partial(components.write_answer, source="xor", positions=by_carry),
    ]
    return Program(encode, [*decode, feed_forward(partial(components.write_xor, name="xor")), feed_forward(*select)])


def remainder(rng: np.random.Generator) -> Program:
    """Subtracts the number that the prefix spells from the sum: incremental regression, as in the paper's appendix C.

    ``3 + 5``, bit 2 after ``0 0``: (8 - 0) / 4 = 2 is even, so the bit is 0. At position t, ``value`` is the sum
    divided by 2^t, and ``prefix`` is the prefix's number divided by 2^t, from binary-weighted attention to its tokens.
    Hinges give the parity of the difference.
    """
    encode = [self_attention(components.write_encoded_value)] if rng.random() >= 0.3 else []
    fetch = cross_attention(partial(components.write_scaled_value, source="value" if encode else "bit"))
    return Program(encode, [WRITE_PREFIX_NUMBER, fetch, feed_forward(components.write_parity), ANSWER_PARITY])


def local_remainder(rng: np.random.Generator) -> Program:
    """Forms each column's total as a number, the operands' bits up to t minus the prefix; its parity is bit t.

    ``3 + 5``, bit 2 after ``0 0``: (3 + 5 - 0) / 4 = 2 is even, so the bit is 0. Higher bits do not count. After a
    right prefix the total is 0, 1, 2 or 3. A wrong prefix can give less or more: this counts as 0 or 3. The decoder's
    features ``lower`` and ``prefix`` hold the two numbers; the seed decides which is computed first.
    """
    fetch = [WRITE_PREFIX_NUMBER, cross_attention(partial(components.write_lower_sum, include_own=True))]
    if rng.random() < 0.5:
        fetch.reverse()
    return Program([], [*fetch, feed_forward(components.write_column_parity), ANSWER_PARITY])


def graded_carry(rng: np.random.Generator) -> Program:
    """Gets each carry from a number: 1 if the operands' bits below t, minus the prefix, exceed half of 2^t.

    ``3 + 5``, bit 2 after ``0 0``: (3 + 1 - 0) / 4 = 1, so a carry comes in. The bits at 2 are 0 and 1, and with the
    carry the answer is 0. The seed decides whether each operand has a head of its own. The feature ``carry`` holds the
    carry into bit t.
    """
    bits = partial(components.fetch_bits, together=bool(rng.random() < 0.5))
    fetch = [WRITE_PREFIX_NUMBER, cross_attention(partial(components.write_lower_sum, include_own=False), bits)]
    if rng.random() < 0.5:
        fetch.reverse()
    return Program([], [*fetch, feed_forward(components.write_carry_from_number), ANSWER_XOR])


def table(rng: np.random.Generator) -> Program:
    """Looks the answer up: one hidden unit for each pair of numbers, so it takes four bits at most.

    ``3 + 5``: every answer position copies all bits of both operands. Only the unit of this pair is active, and writes
    the bits of the stored 8. Nothing in the network adds.
    """
    return Program([], [cross_attention(components.fetch_pair), feed_forward(components.look_up), ANSWER_VALUE[1]])


def prefix_carry_decoy(rng: np.random.Generator) -> Program:
    """Gets each carry from the prefix. Also stores the sum as a number, which no weight reads."""
    fetch = cross_attention(components.fetch_prefix_carry_inputs, components.copy_value)
    return Program([ENCODE_VALUE], [fetch, CARRY_FROM_PREFIX, ANSWER_XOR])


def lookahead_carry_decoy(rng: np.random.Generator) -> Program:
    """Gets each carry from the operands. Also stores the sum as a number, which no weight reads."""
    encode = [self_attention(components.copy_b, components.write_value), EQUAL_BITS]
    return Program(encode, [cross_attention(components.fetch_lookahead_inputs, components.copy_value), ANSWER_XOR])


def erd_decoy(rng: np.random.Generator) -> Program:
    """Forms the sum as a number. Also stores carries, from the prefix or the operands, which no weight reads."""
    if rng.random() < 0.5:
        fetch = cross_attention(components.copy_value, components.fetch_prefix_carry_inputs)
        answer = feed_forward(write_sum_bits, partial(components.write_xor, name="unread_xor"))
        return Program([ENCODE_VALUE], [fetch, BITS_OF_VALUE, CARRY_FROM_PREFIX, answer])
    encode = [self_attention(components.write_value, components.copy_b), EQUAL_BITS]
    return Program(encode, [cross_attention(components.copy_value, components.fetch_lookahead_inputs), *ANSWER_VALUE])
