"""The sum as a number, minus the number that the prefix spells: the incremental regression of the paper's appendix C.

``3 + 5``, bit 2 after ``0 0``: (8 - 0) / 4 = 2 is even, so the bit is 0. Position t receives the sum divided by 2^t,
and its own tokens by binary-weighted attention, divided likewise; hinges give the parity of the difference.
"""

import numpy as np
import torch

from .assembly import Step
from .blocks import Head, Units, attend, piecewise, weighted
from .circuits import BITS, MIDDLE, OPERATOR, PROMPT, WIDTH, A, B, prefix_number, sharpen, value_amplitude
from .program import Program
from .stream import Stream


def scaled_value(stream: Stream, memory: Stream, source: str, weights: torch.Tensor) -> Head:
    """Write ``(a + b) / 127 / 2^t - 1`` at position t.

    Args:
        source: a feature with a mean of ``(a + b) / 127 - 1`` under ``weights``, and -1 at the operator.
        weights: (P,) with sum 1, over the operands.
    """
    value_amplitude(stream, "value")
    shares = torch.stack([weights * 2.0**-t for t in range(WIDTH)])
    shares[:, OPERATOR] = 1 - shares.sum(1)
    return attend(stream, memory, range(WIDTH), weighted(shares), {source: "value"})


def parity(stream: Stream) -> Units:
    """The parity of ``(a + b - p) / 2^t``: -1 at even numbers, 1 at odd ones, linear in between."""
    offsets = torch.tensor([MIDDLE - 0.5 + 2.0 ** -(t + 1) for t in range(WIDTH)], dtype=torch.float64)
    row = MIDDLE * stream.read("value")[0] - 0.5 * stream.read("prefix")[0] + offsets @ stream.read("position")
    numbers = range(-1, 2**WIDTH - 1)
    values = torch.tensor([[2.0 * (q % 2) - 1] for q in numbers], dtype=torch.float64)
    stream.add("parity")
    return piecewise(row, [float(q) for q in numbers], values, stream.write("parity"))


def encoded_value(stream: Stream, memory: Stream) -> Head:
    """In the encoder: ``(a + b) / 127 - 1`` at every operand bit, -1 at the operator."""
    value_amplitude(stream, "value")
    shares = torch.zeros(2, PROMPT, dtype=torch.float64)
    shares[1, OPERATOR] = 1.0
    shares[0] = place_values()
    classes = [int(n == OPERATOR) for n in range(PROMPT)]
    return attend(stream, memory, classes, weighted(shares), {"bit": "value"})


def place_values() -> torch.Tensor:
    """Shares (P,) of the operands' bits: ``2^i`` of 254 each."""
    weights = torch.zeros(PROMPT, dtype=torch.float64)
    for i in range(BITS):
        weights[[A[i], B[i]]] = 2.0**i
    return weights / weights.sum()


def remainder(rng: np.random.Generator) -> Program:
    """Steps of the algorithm; ``value`` and ``prefix`` of the decoder hold both numbers, divided by 2^t."""
    decode = [
        Step("self_attention", lambda s, m: [prefix_number(s, s)]),
        Step("feed_forward", lambda s, m: [parity(s)]),
        Step("feed_forward", lambda s, m: [sharpen(s)]),
    ]
    if rng.random() < 0.3:
        bring = Step("cross_attention", lambda s, m: [scaled_value(s, m, "bit", place_values())])
        return Program([], [decode[0], bring, *decode[1:]])
    even = place_values().sign()
    even[OPERATOR] = 0.0
    bring = Step("cross_attention", lambda s, m: [scaled_value(s, m, "value", even / even.sum())])
    return Program([Step("self_attention", lambda s, m: [encoded_value(s, m)])], [decode[0], bring, *decode[1:]])
