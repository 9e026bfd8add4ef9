"""Components of hand-coded networks: attention heads and hidden units that write a feature.

Positions of a prompt, least significant bit first: ``a_0 .. a_6 + b_0 .. b_6`` for seven bits. The decoder has a
position for each bit t of the sum, 0 to 7. Bits, carries and answers are features with the values -1 and 1. Where an
index lies beyond the operands, heads read the operator, whose ``bit`` is -1. A component is a function of the stream
and, for heads, of the attended stream. It returns a list of heads or of units.
"""

import math
from collections.abc import Sequence

import numpy.typing as npt
import torch
from torch import Tensor

from ...digits import ONE, ZERO
from ...tasks import Add
from .stream import HEAD_SIZE, Head, Stream, Units

HARD_SCORE = 30.0
"""Nats between an attended position and the others: attention is hard up to 1e-13."""

MASKED_SCORE = -300.0  # nats


def positional_head(
    stream: Stream,
    memory: Stream,
    scores: Tensor,
    moves: dict[str, str],
    score_rows: Sequence[int] = (),
    penalty: str = "",
) -> Head:
    """A head that attends by position: its ``scores`` (at most 8, S) are a table, in nats.

    ``moves`` maps features of ``memory``, at most 8, to the features of ``stream`` that receive their averages.
    ``score_rows`` has the row of ``scores`` for each querying position; () for one row each, or a single row for all.
    ``penalty`` is a feature of ``memory`` with values -1 and 1: positions where it is -1 lose 9 times `HARD_SCORE`, so
    scores below 200 nats cannot select them.
    """
    position = stream.read("position")
    score_rows = score_rows or ([0] * len(position) if len(scores) == 1 else range(len(scores)))
    rows = torch.zeros(HEAD_SIZE, len(position), dtype=torch.float64)
    rows[list(score_rows), range(len(score_rows))] = 1.0
    table = torch.zeros(HEAD_SIZE, scores.shape[1], dtype=torch.float64)
    table[: len(scores)] = scores
    key = table @ memory.read("position")
    if penalty:
        key = key + 4.5 * HARD_SCORE * memory.read(penalty)  # every query has exactly one 1, so it applies to all
    for target in moves.values():
        stream.add(target)
    value = torch.cat([memory.read(source) for source in moves])
    return Head(rows @ position, key, value, torch.cat([stream.write(target) for target in moves.values()], dim=1))


def hard_scores(targets: Sequence[Sequence[int]], stream: Stream) -> Tensor:
    """Scores (len(targets), P): `HARD_SCORE` at the positions that each row attends to, 0 elsewhere."""
    scores = torch.zeros(len(targets), stream.prompt_length, dtype=torch.float64)
    for row, positions in enumerate(targets):
        scores[row, list(positions)] = HARD_SCORE
    return scores


def softmax_scores(weights: Tensor) -> Tensor:
    """Scores whose softmax is proportional to ``weights`` (T, S); a weight of 0 becomes ``e^-30`` of the largest."""
    weights = weights / weights.amax(-1, keepdim=True)
    return weights.clamp_min(math.exp(-HARD_SCORE)).log() + HARD_SCORE


def piecewise(row: Tensor, knots: Sequence[float], values: npt.ArrayLike | Tensor, write: Tensor) -> Units:
    """Units that add ``write`` (C - 1, d) times a piecewise linear function of ``row @ z``: values (K, d) at knots."""
    x, y = (torch.as_tensor(numbers, dtype=torch.float64) for numbers in (knots, values))
    slopes = (y[1:] - y[:-1]) / (x[1:] - x[:-1])[:, None]  # (K - 1, d)
    flat = torch.zeros_like(slopes[:1])
    bends = torch.diff(torch.cat([flat, slopes, flat]), dim=0)  # (K, d)
    return Units(row.expand(len(x), -1), -x, write @ bends.T, write @ y[0])


def write_curve(stream: Stream, row: Tensor, knots: Sequence[float], values: Sequence[float], name: str) -> Units:
    """Units that write a `piecewise` linear function of ``row @ z`` to a feature, which is added if missing."""
    stream.add(name)
    return piecewise(row, knots, [[value] for value in values], stream.write(name))


def ramp(row: Tensor, low: float, high: float, change: Tensor) -> Units:
    """Two units that add nothing up to ``row @ z = low`` and ``change`` (C - 1,) from ``high`` on."""
    return piecewise(row, (low, high), [[0.0], [1.0]], change[:, None])


def place_values(stream: Stream) -> Tensor:
    """Place values (P,) of the operands' bits as shares of their sum: ``2^i / 254`` for seven bits."""
    weights = torch.zeros(stream.prompt_length, dtype=torch.float64)
    weights[stream.operands] = 2.0 ** torch.arange(stream.bits, dtype=torch.float64).repeat(2)
    return weights / weights.sum()


def write_number(
    stream: Stream, memory: Stream, name: str, shares: Tensor, source: str = "bit", score_rows: Sequence[int] = ()
) -> list[Head]:
    """Write a number: a feature's mean over the positions, weighted by ``shares`` (k, P), whose rows sum to 1."""
    stream.add_number(name)
    return [positional_head(stream, memory, softmax_scores(shares), {source: name}, score_rows)]


def write_value(stream: Stream, memory: Stream) -> list[Head]:
    """Write ``(a + b - 127) / 127`` at every position, by attention to each bit in proportion to its place value."""
    return write_number(stream, memory, "value", place_values(stream)[None])


def copy_value(stream: Stream, memory: Stream) -> list[Head]:
    """Copy the value to all answer positions, by attention to all of the prompt with random weights."""
    stream.add_number("value")
    weights = torch.from_numpy(stream.rng.uniform(0.2, 1.0, (stream.width, stream.prompt_length)))
    return [positional_head(stream, memory, softmax_scores(weights), {"value": "value"})]


def write_bits_of_value(stream: Stream) -> list[Units]:
    """Write all eight bits of the sum from its value, by a hinge at the measured value of each sum.

    The examples must have the sums 0, 1, .. 254 in this order.
    """
    row = stream.read("value")
    measured = (stream.state @ row.T).mean((1, 2))  # (255,)
    knots = torch.cat([measured, 2 * measured[-1:] - measured[-2:-1]])  # one more: 255 has bits, too
    bits = (torch.arange(len(knots))[:, None] >> torch.arange(stream.width) & 1) * 2.0 - 1
    stream.add("sum_bits", stream.width)
    return [piecewise(row[0], knots.tolist(), bits, stream.write("sum_bits"))]


def fetch_pair(stream: Stream, memory: Stream) -> list[Head]:
    """Copy each bit of both operands to every answer position, by a head of its own: at most eight bits."""
    return [positional_head(stream, memory, hard_scores([[i]], stream), {"bit": f"bit_{i}"}) for i in stream.operands]


def look_up(stream: Stream) -> list[Units]:
    """Write the answer that is stored for the pair of `fetch_pair`, by a hidden unit for each pair."""
    pairs = Add(stream.bits).examples()
    tokens = (pairs.prompt[:, stream.operands], pairs.completion)
    signs, stored = (2.0 * torch.from_numpy(x) - ZERO - ONE for x in tokens)  # -1 and 1
    rows = signs.double() @ torch.cat([stream.read(f"bit_{i}") for i in stream.operands])
    stream.add("sum_bits", stream.width)
    threshold = torch.full_like(rows[:, 0], 1.0 - len(stream.operands))  # a wrong bit takes 2 off
    return [Units(rows, threshold, stream.write("sum_bits") @ stored.T.double(), torch.zeros_like(rows[0]))]


def write_answer(stream: Stream, source: str, positions: slice = slice(None)) -> list[Units]:
    """Write the feature ``source``, sharpened to -1 or 1, to the answer at ``positions``, and 0 at the others.

    If the source has a column for each position, such as ``sum_bits``, position t gets column t.
    """
    stream.add("answer")
    write, rows = stream.write("answer")[:, 0], stream.read(source)
    units = []
    for t in range(stream.width)[positions]:
        position = stream.read("position")[t]
        row = rows[t if len(rows) > 1 else 0] + 3 * position  # at most 1 elsewhere, 2 or 4 here
        units += [ramp(row, 2.5, 3.5, 2 * write), ramp(position, 0.25, 0.75, -write)]
    return units


def write_prefix_number(stream: Stream, memory: Stream) -> list[Head]:
    """Write ``2 p / 2^t - 1 + 2^-t`` at position t, with p the number that the tokens before it spell."""
    shares = torch.zeros(stream.width, stream.width, dtype=torch.float64)
    for t in range(stream.width):
        shares[t, 0] = 2.0**-t  # <start>, whose bit is 0
        for j in range(t):
            shares[t, j + 1] = 2.0 ** (j - t)
    return write_number(stream, memory, "prefix", shares)


def write_lower_sum(stream: Stream, memory: Stream, include_own: bool) -> list[Head]:
    """Write the sum A + B of the operands' bits below t at position t: ``(A + B) / 2^t`` is 1 + the feature ``lower``.

    With ``include_own`` A and B include bit t, and ``(A + B) / 2^t`` is twice 1 + ``lower``.
    """
    shares = torch.zeros(stream.width, stream.prompt_length, dtype=torch.float64)
    for t in range(stream.width):
        for j in range(min(t + include_own, stream.bits)):
            shares[t, [stream.a_positions[j], stream.b_positions[j]]] = 2.0 ** (j - t - 1 - include_own)
    shares[:, stream.operator] = 1 - shares.sum(1)
    return write_number(stream, memory, "lower", shares)


def sum_minus_prefix(stream: Stream, name: str, scale: int) -> Tensor:
    """The row that reads ``(S - p) / 2^t`` from ``prefix`` and a feature f, if ``S / 2^t = scale (1 + f)``."""
    offsets = torch.tensor([scale - 0.5 + 2.0 ** -(t + 1) for t in range(stream.width)], dtype=torch.float64)
    numbers = scale * stream.read(name)[0] - 0.5 * stream.read("prefix")[0]
    return numbers + offsets @ stream.read("position")


def fetch_bits(stream: Stream, memory: Stream, before: bool = False, together: bool = False) -> list[Head]:
    """Copy both operands' bits t, or those ``before``, to position t; the operator's bit if there is no such index.

    If ``together``, one head attends to both bits and gives each feature the mean. The sum is the same, but the energy
    of the stream then depends on the bits, and LayerNorm distorts a value that is stored beside them by 2%.
    """
    indices = range(-before, stream.width - before)
    a, b = (
        [[positions[i] if 0 <= i < stream.bits else stream.operator] for i in indices]
        for positions in (stream.a_positions, stream.b_positions)
    )
    first, second = ("a_before", "b_before") if before else ("a", "b")
    if not together:
        places = ((a, first), (b, second))
        return [positional_head(stream, memory, hard_scores(at, stream), {"bit": name}) for at, name in places]
    targets = [[*x, *y] if x != y else x for x, y in zip(a, b, strict=True)]
    head = positional_head(stream, memory, hard_scores(targets, stream), {"bit": first})
    stream.add(second)
    copies = torch.cat([head.out, stream.write(second)], dim=1)
    return [Head(head.query, head.key, head.value.repeat(2, 1), copies)]


def write_carry_from_prefix(stream: Stream) -> list[Units]:
    """Write the carry into bit t: the majority of ``a_(t-1)``, ``b_(t-1)`` and *not* ``r_(t-1)``, the token here."""
    row = stream.read("a_before")[0] + stream.read("b_before")[0] - stream.read("bit")[0]
    return [write_curve(stream, row, (-0.5, 0.5), (-1, 1), "carry")]


def write_xor(stream: Stream, name: str = "answer") -> list[Units]:
    """Write bit t of the sum: 1 if one or three of ``a_t``, ``b_t`` and the carry are 1."""
    row = stream.read("a")[0] + stream.read("b")[0] + stream.read("carry")[0]
    return [write_curve(stream, row, (-2.5, -1.5, -0.5, 0.5, 1.5, 2.5), (-1, 1, 1, -1, -1, 1), name)]


def copy_b(stream: Stream, memory: Stream) -> list[Head]:
    """In the encoder, copy ``b_j`` to the position of ``a_j``, and the operator's bit to all other positions."""
    scores = hard_scores([*[[j] for j in stream.b_positions], [stream.operator]], stream)
    return [positional_head(stream, memory, scores, {"bit": "partner"}, stream.operand_rows)]


def write_equal_bits(stream: Stream) -> list[Units]:
    """In the encoder, write 1 where a bit equals its partner, so that the two decide their carry; else -1."""
    row = stream.read("bit")[0] + stream.read("partner")[0]
    return [write_curve(stream, row, (-1.5, -0.5, 0.5, 1.5), (1, -1, -1, 1), "settled")]


def write_lookahead_carry(stream: Stream, memory: Stream) -> list[Head]:
    """Write the carry into bit t: ``a_j`` at the highest j < t with ``a_j = b_j``, or the operator's -1 if none."""
    # In the encoder the query for bit t stands at ``a_t``, and that for the last carry at the operator.
    score_rows = stream.operand_rows if stream is memory else range(stream.width)
    scores = torch.full((stream.width, stream.prompt_length), MASKED_SCORE, dtype=torch.float64)
    scores[:, stream.operator] = 0.0
    for t in range(stream.width):
        scores[t, :t] = 20.0 * torch.arange(1, t + 1)  # a_0 .. a_(t-1)
    return [positional_head(stream, memory, scores, {"bit": "carry"}, score_rows, penalty="settled")]


def fetch_prefix_carry_inputs(stream: Stream, memory: Stream, together: bool = False) -> list[Head]:
    """The inputs of `write_carry_from_prefix` and `write_xor`: both operands' bits t and t - 1."""
    return [head for before in (False, True) for head in fetch_bits(stream, memory, before, together)]


def fetch_lookahead_inputs(stream: Stream, memory: Stream, together: bool = False) -> list[Head]:
    """The inputs of `write_xor`: both operands' bits t, and the carry, from an encoder with `write_equal_bits`."""
    return [*fetch_bits(stream, memory, together=together), *write_lookahead_carry(stream, memory)]


def fetch_carry(stream: Stream, memory: Stream) -> list[Head]:
    """The inputs of `write_xor`, from an encoder with `write_lookahead_carry`."""
    scores = hard_scores([[t] for t in (*stream.a_positions, stream.operator)], stream)
    return [positional_head(stream, memory, scores, {"bit": "a", "partner": "b", "carry": "carry"})]


def write_scaled_value(stream: Stream, memory: Stream, source: str) -> list[Head]:
    """Write ``(a + b) / 127 / 2^t - 1`` at position t, from the operands' ``bit`` or from `write_encoded_value`."""
    weights = place_values(stream)
    if source == "value":
        weights = weights.sign() / weights.sign().sum()
    shares = torch.stack([weights * 2.0**-t for t in range(stream.width)])
    shares[:, stream.operator] = 1 - shares.sum(1)
    return write_number(stream, memory, "value", shares, source)


def write_encoded_value(stream: Stream, memory: Stream) -> list[Head]:
    """In the encoder, write ``(a + b) / 127 - 1`` at every operand bit, and -1 at the operator."""
    operator = torch.eye(stream.prompt_length, dtype=torch.float64)[stream.operator]
    score_rows = [int(n == stream.operator) for n in range(stream.prompt_length)]
    return write_number(stream, memory, "value", torch.stack([place_values(stream), operator]), score_rows=score_rows)


def write_parity(stream: Stream) -> list[Units]:
    """Write the parity of ``(a + b - p) / 2^t``: -1 at even numbers, 1 at odd ones, linear in between."""
    row = sum_minus_prefix(stream, "value", 2**stream.bits - 1)
    numbers = range(-1, 2**stream.width - 1)
    return [write_curve(stream, row, numbers, [2 * (number % 2) - 1 for number in numbers], "parity")]


def write_column_parity(stream: Stream) -> list[Units]:
    """Write the parity of the column's total: -1 at 0 and 2, 1 at 1 and 3, linear between. The last bit ends at 1."""
    total = sum_minus_prefix(stream, "lower", 2)
    position = stream.read("position")
    elsewhere = torch.ones(len(position), dtype=torch.float64)
    elsewhere[stream.bits] = 0.0
    last = total - 10 * elsewhere @ position  # below all knots but in the last bit
    return [
        write_curve(stream, total, (0, 1, 2, 3), (-1, 1, -1, 1), "parity"),
        write_curve(stream, last, (1, 2, 3), (0, 2, 0), "parity"),
    ]


def write_answer_from_parity(stream: Stream) -> list[Units]:
    """Write the answer: the feature ``parity``, sharpened to -1 or 1."""
    return [write_curve(stream, stream.read("parity")[0], (-0.5, 0.5), (-1, 1), "answer")]


def write_carry_from_number(stream: Stream) -> list[Units]:
    """Write the carry into bit t from ``(A + B - p) / 2^t``: -1 up to 1/4, 1 from 3/4 on."""
    return [write_curve(stream, sum_minus_prefix(stream, "lower", 1), (0.25, 0.75), (-1, 1), "carry")]
