"""The pieces of the algorithms: heads and hidden units that compute on bits of seven-bit addition.

Positions of a prompt, least significant bit first: ``a_0 .. a_6 + b_0 .. b_6``. The decoder has a position for each
bit t of the sum, 0 to 7. Bits, carries and answers are features with the values -1 and 1. Where an index lies beyond
the operands, heads read the operator, whose ``bit`` is -1.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from .blocks import Head, Units, attend, hard, piecewise, ramp, steps, weighted
from .stream import Stream

BITS = 7
WIDTH = BITS + 1
OPERATOR = BITS
PROMPT = 2 * BITS + 1
A = tuple(range(BITS))
B = tuple(range(BITS + 1, PROMPT))
MIDDLE = 2**BITS - 1  # of all sums, 0 .. 254
NEVER = -300.0  # nats


def value_amplitude(stream: Stream, name: str) -> None:
    """Reserve a column for a number from -1 to 1, at a small scale s: LayerNorm changes it by up to s^2 / 128."""
    stream.add(name, scale=float(stream.rng.uniform(0.08, 0.14)))


def place_values() -> Tensor:
    """Shares (P,) of the operands' bits: ``2^i`` of 254 each."""
    weights = torch.zeros(PROMPT, dtype=torch.float64)
    for i in range(BITS):
        weights[[A[i], B[i]]] = 2.0**i
    return weights / weights.sum()


def value(stream: Stream, memory: Stream, name: str = "value") -> Head:
    """Write ``(a + b - 127) / 127`` at every position, by attention to each bit in proportion to its place value."""
    value_amplitude(stream, name)
    classes = [0] * stream.size("position")
    return attend(stream, memory, classes, weighted(place_values()[None]), {"bit": name})


def copy_value(stream: Stream, memory: Stream, name: str = "value") -> Head:
    """Copy the value to all answer positions, by attention to all of the prompt with random weights."""
    value_amplitude(stream, name)
    weights = torch.from_numpy(stream.rng.uniform(0.2, 1.0, (WIDTH, PROMPT)))
    return attend(stream, memory, range(WIDTH), weighted(weights), {name: name})


def bits_of_value(stream: Stream, name: str = "value") -> Units:
    """All eight bits of the sum from its value, by a hinge at the measured value of each sum.

    The examples must have the sums 0, 1, .. 254 in this order.
    """
    at = stream.values(name).mean((1, 2))  # (255,)
    knots = torch.cat([at, 2 * at[-1:] - at[-2:-1]])  # one more: 255 has bits, too
    bits = (torch.arange(len(knots))[:, None] >> torch.arange(WIDTH) & 1) * 2.0 - 1
    stream.add("sum_bits", WIDTH)
    row = stream.read(name)[0]
    return piecewise(row, knots.tolist(), bits.double(), stream.write("sum_bits"))


def select(stream: Stream, source: str, positions: Sequence[int], name: str = "answer") -> list[Units]:
    """Write the source, sharpened to -1 or 1, at these answer positions, and 0 at the others.

    If the source has a column for each position, such as ``sum_bits``, position t gets column t.
    """
    stream.add(name)
    write = stream.write(name)[:, 0]
    units = []
    for t in positions:
        row = stream.read(source)[t if stream.size(source) > 1 else 0]
        here = stream.read("position")[t]
        units.append(ramp(row + 3 * here, 2.5, 3.5, 2 * write))  # at most 1 elsewhere, 2 or 4 here
        units.append(ramp(here, 0.25, 0.75, -write))
    return units


def prefix_number(stream: Stream, memory: Stream) -> Head:
    """Write ``2 p / 2^t - 1 + 2^-t`` at position t, with p the number that the tokens before it spell."""
    value_amplitude(stream, "prefix")
    shares = torch.zeros(WIDTH, WIDTH, dtype=torch.float64)
    for t in range(WIDTH):
        shares[t, 0] = 2.0**-t  # <start>, whose bit is 0
        for j in range(t):
            shares[t, j + 1] = 2.0 ** (j - t)
    return attend(stream, memory, range(WIDTH), weighted(shares), {"bit": "prefix"})


def sum_of_lower(stream: Stream, memory: Stream, own: bool) -> Head:
    """Write a sum of the operands' lower bits at position t, so that ``(A + B) / 2^t`` is 1 + the feature ``lower``.

    With ``own`` they include bit t, and ``(A + B) / 2^t`` is twice that.
    """
    value_amplitude(stream, "lower")
    shares = torch.zeros(WIDTH, PROMPT, dtype=torch.float64)
    for t in range(WIDTH):
        for j in range(min(t + own, BITS)):
            shares[t, [A[j], B[j]]] = 2.0 ** (j - t - 1 - own)
    shares[:, OPERATOR] = 1 - shares.sum(1)
    return attend(stream, memory, range(WIDTH), weighted(shares), {"bit": "lower"})


def less_prefix(stream: Stream, own: bool) -> Tensor:
    """The row that reads ``(A + B - p) / 2^t`` from ``lower`` and ``prefix``."""
    offsets = torch.tensor([0.5 + own + 2.0 ** -(t + 1) for t in range(WIDTH)], dtype=torch.float64)
    numbers = (1 + own) * stream.read("lower")[0] - 0.5 * stream.read("prefix")[0]
    return numbers + offsets @ stream.read("position")


def sharpen(stream: Stream) -> Units:
    """The answer, from the feature ``parity``."""
    stream.add("answer")
    values = torch.tensor([[-1.0], [1.0]], dtype=torch.float64)
    return piecewise(stream.read("parity")[0], (-0.5, 0.5), values, stream.write("answer"))


def fetch(stream: Stream, memory: Stream, pairs: Sequence[Sequence[int]], moves: dict[str, str]) -> Head:
    """Copy to answer position t the features at ``pairs[t]``, averaged if there are several."""
    return attend(stream, memory, range(WIDTH), hard(pairs, PROMPT), moves)


def fetch_bits(stream: Stream, memory: Stream, shift: int, suffix: str = "", together: bool = False) -> list[Head]:
    """Copy ``a_(t - shift)`` and ``b_(t - shift)`` to position t, or the operator's bit if there is no such index.

    If ``together``, one head attends to both bits and gives each feature the mean. The sum is the same, but the energy
    of the stream then depends on the bits, and LayerNorm distorts a value that is stored beside them by 2%.
    """
    places = [t - shift if 0 <= t - shift < BITS else None for t in range(WIDTH)]
    a = [[OPERATOR] if i is None else [A[i]] for i in places]
    b = [[OPERATOR] if i is None else [B[i]] for i in places]
    names = f"a{suffix}", f"b{suffix}"
    if not together:
        return [fetch(stream, memory, a, {"bit": names[0]}), fetch(stream, memory, b, {"bit": names[1]})]
    both = [[*x, *y] if x != y else x for x, y in zip(a, b, strict=True)]
    head = fetch(stream, memory, both, {"bit": names[0]})
    stream.add(names[1])
    copies = torch.cat([head.out, stream.write(names[1])], dim=1)
    return [Head(head.query, head.key, head.value.repeat(2, 1), copies)]


def total(stream: Stream, names: Sequence[str], signs: Sequence[float] = (1.0, 1.0, 1.0)) -> Tensor:
    """The row that reads a sum of features."""
    return torch.stack([sign * stream.read(name)[0] for name, sign in zip(names, signs, strict=True)]).sum(0)


def carry_from_prefix(stream: Stream) -> Units:
    """Carry into bit t: the majority of ``a_(t-1)``, ``b_(t-1)`` and *not* ``r_(t-1)``, the token at this position."""
    row = total(stream, ("a_before", "b_before", "bit"), (1.0, 1.0, -1.0))
    return steps(stream, row, (-1.0, -1.0, 1.0, 1.0), "carry")


def xor(stream: Stream, name: str) -> Units:
    """Bit t of the sum: whether one or three of ``a_t``, ``b_t`` and the carry are 1."""
    return steps(stream, total(stream, ("a", "b", "carry")), (-1.0, 1.0, -1.0, 1.0), name)


def partner(stream: Stream, memory: Stream) -> Head:
    """In the encoder: copy ``b_j`` to the position of ``a_j``, and the operator's bit to the others."""
    classes = [*A, *[BITS] * (PROMPT - BITS)]
    return attend(stream, memory, classes, hard([*[[j] for j in B], [OPERATOR]], PROMPT), {"bit": "partner"})


def settled(stream: Stream) -> Units:
    """In the encoder: 1 where a bit equals its partner, and so decides the carry out of it; else -1."""
    stream.add("settled")
    values = torch.tensor([[1.0], [-1.0], [-1.0], [1.0]], dtype=torch.float64)
    row = total(stream, ("bit", "partner"), (1.0, 1.0))
    return piecewise(row, (-1.5, -0.5, 0.5, 1.5), values, stream.write("settled"))


def carry_by_lookahead(stream: Stream, memory: Stream, classes: Sequence[int]) -> Head:
    """Carry into bit t, one of ``classes``: ``a_j`` at the highest j < t with ``a_j = b_j``, else the operator's -1."""
    scores = torch.full((WIDTH, PROMPT), NEVER, dtype=torch.float64)
    for t in range(WIDTH):
        scores[t, OPERATOR] = 0.0
        for j in range(min(t, BITS)):
            scores[t, A[j]] = 20.0 * (j + 1)
    return attend(stream, memory, classes, scores, {"bit": "carry"}, penalty="settled")


def for_prefix_carry(stream: Stream, memory: Stream, together: bool = False) -> list[Head]:
    """All that `carry_from_prefix` and `xor` read: both operands' bits t and t - 1."""
    return [*fetch_bits(stream, memory, 0, "", together), *fetch_bits(stream, memory, 1, "_before", together)]


def for_lookahead(stream: Stream, memory: Stream, together: bool = False) -> list[Head]:
    """All that `xor` reads: both operands' bits t, and the carry, from an encoder that has `settled`."""
    return [*fetch_bits(stream, memory, 0, "", together), carry_by_lookahead(stream, memory, range(WIDTH))]
