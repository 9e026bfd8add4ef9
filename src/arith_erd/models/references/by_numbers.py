"""Algorithms by a difference of two numbers: a sum of the operands' bits, less what the prefix spells."""

import numpy as np
import torch

from . import circuits as c
from .assembly import Step
from .blocks import Head, Units, attend, piecewise, weighted
from .program import Program
from .stream import Stream

PREFIX = Step("self_attention", lambda s, m: [c.prefix_number(s, s)])
SHARPEN = Step("feed_forward", lambda s, m: [c.sharpen(s)])


def scaled_value(stream: Stream, memory: Stream, source: str, weights: torch.Tensor) -> Head:
    """Write ``(a + b) / 127 / 2^t - 1`` at position t.

    Args:
        source: a feature with a mean of ``(a + b) / 127 - 1`` under ``weights``, and -1 at the operator.
        weights: (P,) with sum 1, over the operands.
    """
    c.value_amplitude(stream, "value")
    shares = torch.stack([weights * 2.0**-t for t in range(c.WIDTH)])
    shares[:, c.OPERATOR] = 1 - shares.sum(1)
    return attend(stream, memory, range(c.WIDTH), weighted(shares), {source: "value"})


def parity(stream: Stream) -> Units:
    """The parity of ``(a + b - p) / 2^t``: -1 at even numbers, 1 at odd ones, linear in between."""
    offsets = torch.tensor([c.MIDDLE - 0.5 + 2.0 ** -(t + 1) for t in range(c.WIDTH)], dtype=torch.float64)
    row = c.MIDDLE * stream.read("value")[0] - 0.5 * stream.read("prefix")[0] + offsets @ stream.read("position")
    numbers = range(-1, 2**c.WIDTH - 1)
    values = torch.tensor([[2.0 * (q % 2) - 1] for q in numbers], dtype=torch.float64)
    stream.add("parity")
    return piecewise(row, [float(q) for q in numbers], values, stream.write("parity"))


def encoded_value(stream: Stream, memory: Stream) -> Head:
    """In the encoder: ``(a + b) / 127 - 1`` at every operand bit, -1 at the operator."""
    c.value_amplitude(stream, "value")
    shares = torch.zeros(2, c.PROMPT, dtype=torch.float64)
    shares[1, c.OPERATOR] = 1.0
    shares[0] = c.place_values()
    classes = [int(n == c.OPERATOR) for n in range(c.PROMPT)]
    return attend(stream, memory, classes, weighted(shares), {"bit": "value"})


def remainder(rng: np.random.Generator) -> Program:
    """The sum, minus the number that the prefix spells: the incremental regression of the paper's appendix C.

    ``3 + 5``, bit 2 after ``0 0``: (8 - 0) / 4 = 2 is even, so the bit is 0. Position t receives the sum divided by
    2^t, and its own tokens by binary-weighted attention, divided likewise; ``value`` and ``prefix`` hold them. Hinges
    give the parity of the difference.
    """
    answer = [Step("feed_forward", lambda s, m: [parity(s)]), SHARPEN]
    if rng.random() < 0.3:
        bring = Step("cross_attention", lambda s, m: [scaled_value(s, m, "bit", c.place_values())])
        return Program([], [PREFIX, bring, *answer])
    even = c.place_values().sign()
    even[c.OPERATOR] = 0.0
    bring = Step("cross_attention", lambda s, m: [scaled_value(s, m, "value", even / even.sum())])
    return Program([Step("self_attention", lambda s, m: [encoded_value(s, m)])], [PREFIX, bring, *answer])


def parity_of_column(stream: Stream) -> list[Units]:
    """The parity of the column's total: -1 at 0 and 2, 1 at 1 and 3, linear in between. The last bit ends at 1."""
    total = c.less_prefix(stream, own=True)
    elsewhere = torch.ones(stream.size("position"), dtype=torch.float64)
    elsewhere[c.BITS] = 0.0
    last = total - 10 * elsewhere @ stream.read("position")  # below all knots but in the last bit
    stream.add("parity")
    all_bits, correction = (torch.tensor(v, dtype=torch.float64)[:, None] for v in ([-1, 1, -1, 1], [0, 2, 0]))
    return [
        piecewise(total, (0.0, 1.0, 2.0, 3.0), all_bits, stream.write("parity")),
        piecewise(last, (1.0, 2.0, 3.0), correction, stream.write("parity")),
    ]


def local_remainder(rng: np.random.Generator) -> Program:
    """The column's total as a number: what the bits up to t add up to, less the prefix. Its parity is bit t.

    ``3 + 5``, bit 2 after ``0 0``: (3 + 5 - 0) / 4 = 2 is even, so the bit is 0. Higher bits do not count. After a
    right prefix the total is 0, 1, 2 or 3; a wrong one takes it beyond, and it counts as 0 or 3 there. ``lower`` and
    ``prefix`` of the decoder hold both numbers; either comes first.
    """
    bring = [PREFIX, Step("cross_attention", lambda s, m: [c.sum_of_lower(s, m, own=True)])]
    if rng.random() < 0.5:
        bring.reverse()
    return Program([], [*bring, Step("feed_forward", lambda s, m: parity_of_column(s)), SHARPEN])


def carry_from_number(stream: Stream) -> Units:
    """The carry into bit t: -1 up to 1/4, 1 from 3/4 on."""
    stream.add("carry")
    values = torch.tensor([[-1.0], [1.0]], dtype=torch.float64)
    return piecewise(c.less_prefix(stream, own=False), (0.25, 0.75), values, stream.write("carry"))


def graded_carry(rng: np.random.Generator) -> Program:
    """The carry from a number: do the bits below t, less what the prefix spells, add up to more than half of 2^t?

    ``3 + 5``, bit 2 after ``0 0``: (3 + 1 - 0) / 4 = 1, so a carry comes in. The bits at 2 are 0 and 1, and with the
    carry the answer is 0. With a head for each bit or for both; ``carry`` holds the carry into bit t.
    """
    together = bool(rng.random() < 0.5)
    lower = Step(
        "cross_attention", lambda s, m: [c.sum_of_lower(s, m, own=False), *c.fetch_bits(s, m, 0, "", together)]
    )
    bring = [PREFIX, lower]
    if rng.random() < 0.5:
        bring.reverse()
    carry = Step("feed_forward", lambda s, m: [carry_from_number(s)])
    return Program([], [*bring, carry, Step("feed_forward", lambda s, m: [c.xor(s, "answer")])])
