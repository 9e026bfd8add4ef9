"""Compile a program, the steps of an algorithm, into a network."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...digits import ONE, OPERATOR, START, VOCAB_SIZE, ZERO
from ...system.isolation import own_generator
from ...tasks import Add
from ..network import shift_right
from ..positions import sinusoids
from ..transformer import Transformer
from .components import piecewise, ramp
from .stream import CHANNELS, HEAD_SIZE, Head, Stream, Units

TOKEN_NORM = 0.4  # small beside a position's 1.7 to 3: the scale of the first LayerNorm must not depend on the token


class Step:
    """One sublayer: its kind, and the `components` that build its heads or hidden units."""

    def __init__(self, kind: str, *components: Callable[..., Sequence[Any]]) -> None:
        self.kind, self.components = kind, components


self_attention, cross_attention, feed_forward = (
    partial(Step, kind) for kind in ("self_attention", "cross_attention", "feed_forward")
)


@dataclass(frozen=True)
class Program:
    """The steps of both stacks; the decoder's must leave the answer in the feature ``answer``."""

    encoder: list[Step]
    decoder: list[Step]


@dataclass(frozen=True)
class HandcodedNetwork:
    """A network whose algorithm is known, and the features of both stacks.

    ``decoder.directions("carry")`` are the directions in which an answer position stores its carry.
    """

    network: Transformer  # float32, in evaluation mode
    encoder: Stream
    decoder: Stream


def compile_program(program: Program, rng: np.random.Generator, bits: int = 7) -> HandcodedNetwork:
    """Compute weights that run a program on operands of ``bits`` bits, in float64.

    Each step runs on a small batch of examples as soon as it is placed, so that the next step can measure its input.
    Many networks run the same program. ``rng`` draws an orthonormal basis for each stack and a scale for each feature
    (`Stream`); the layers of the steps; gain and shift of every LayerNorm; the order and scale of hidden units and the
    order of heads; invertible 8 x 8 matrices between query and key and between value and output. Unused sublayers have
    random weights, but their last matrix is zero.
    """
    with own_generator(int(rng.integers(2**62))):
        network = Transformer(2 * bits + 1, bits + 1).eval()
    prompt, answer_in = one_example_per_sum(rng, bits)
    table = sinusoids(2 * bits + 1, CHANNELS).double()
    # The encoder attends to no other stack.
    streams = [Stream(torch.zeros(1, 1, CHANNELS, dtype=torch.float64), rng, bits)]
    for layers, embedding_module, tokens, steps in (
        (network.encoder, network.prompt_embedding, prompt, program.encoder),
        (network.decoder, network.answer_embedding, answer_in, program.decoder),
    ):
        positions = table[: tokens.shape[1]]
        embedding = Embedding(positions, rng)
        streams.append(Stream(embedding.table[tokens] + positions, rng, bits))
        place_steps(layers, streams[-1], streams[-2], [feed_forward(embedding.hidden_units), *steps])
        embedding_module.weight.data.copy_(embedding.table)
    # Logits plus or minus L for the two bits, with L between 4 and 8, and -2 L for the other tokens.
    size, answer = float(rng.uniform(4, 8)), streams[-1].read("answer")[0]
    rows = torch.zeros(VOCAB_SIZE, CHANNELS - 1, dtype=torch.float64)
    rows[ZERO], rows[ONE] = -size * answer, size * answer
    base = torch.full((VOCAB_SIZE,), -2 * size, dtype=torch.float64)
    base[ZERO] = base[ONE] = 0.0
    weight, bias = streams[-1].reader(rows)
    _set_weights(network.head, weight, base + bias)
    return HandcodedNetwork(network, *streams[1:])


def one_example_per_sum(rng: np.random.Generator, bits: int) -> tuple[Tensor, Tensor]:
    """Prompts (255, P) and decoder inputs (255, m) of one random pair for each sum 0, 1, .. 254 of seven bits."""
    sums = np.arange(2 ** (bits + 1) - 1)
    a = rng.integers(np.maximum(0, sums - 2**bits + 1), np.minimum(sums, 2**bits - 1) + 1)
    examples = Add(bits).examples(a, sums - a)
    return torch.from_numpy(examples.prompt), shift_right(torch.from_numpy(examples.completion))


class Embedding:
    """The embedding table of one stack, for the fixed positions (T, C) that the network adds.

    Every token's embedding contains ``u``, which cancels most of the sinusoidal positions' mean. A bit's embedding also
    contains plus or minus ``v``, which is orthogonal to all positions. The first active feed-forward layer of each
    stack erases the sum of embedding and position, and writes features instead:

    - ``position``, one-hot: two hidden units for each position, a ramp of the similarity to it;
    - ``bit``: -1 or 1. The operator counts as bit 0, that is as -1. An embedding halfway between the bits gives 0, and
      so does ``<start>``. Then the feature ``no_bit`` is 1, so that the energy of the stream stays the same.
    """

    def __init__(self, positions: Tensor, rng: np.random.Generator) -> None:
        centred = positions - positions.mean(1, keepdim=True)  # LayerNorm removes the mean anyway
        ones = torch.ones(CHANNELS, 1, dtype=torch.float64)
        draw = torch.from_numpy(rng.standard_normal((CHANNELS, 3)))
        orthogonal = torch.linalg.qr(torch.cat([ones, centred.T, draw], dim=1))[0][:, -3:].T
        common = -centred.mean(0)  # (C,)
        self.bit, start, operator = TOKEN_NORM * orthogonal  # (C,) each
        self.places = centred + common  # (T, C)
        rows = common + torch.from_numpy(0.3 * rng.standard_normal((VOCAB_SIZE, CHANNELS)))
        rows[START] = common + start
        rows[OPERATOR] = common - self.bit + operator
        rows[ZERO], rows[ONE] = common - self.bit, common + self.bit
        self.table = rows + torch.from_numpy(rng.standard_normal((VOCAB_SIZE, 1)))  # (V, C)

    def hidden_units(self, stream: Stream) -> list[Units]:
        """Hidden units that replace the embedding by ``position``, ``bit`` and ``no_bit``."""
        norms, length = self.places.norm(dim=1), len(self.places)
        detectors = self.places / norms[:, None] @ stream.basis  # (T, C - 1)
        normalised_length = CHANNELS**0.5
        # A position's least similarity (T,) to itself with a token, and the largest to another position.
        own_similarity = normalised_length * norms / (norms.square() + 2 * TOKEN_NORM**2).sqrt()
        off_diagonal = detectors @ detectors.T - 2 * torch.eye(length, dtype=torch.float64)
        other_similarity = normalised_length * off_diagonal.amax(1)
        stream.add("position", length, scale=2.0)
        stream.add("bit")
        stream.add("no_bit", scale=float(stream.write("bit").sum()))
        eye = torch.eye(CHANNELS - 1, dtype=torch.float64)
        both_signs = torch.cat([eye, -eye])
        units = [
            Units(both_signs, torch.zeros_like(both_signs[:, 0]), -both_signs.T, torch.zeros_like(eye[0]))
        ]  # erase
        for place in range(length):
            low, high = float(other_similarity[place]), float(own_similarity[place])
            ends = (low + 0.25 * (high - low), low + 0.75 * (high - low))
            units.append(ramp(detectors[place], *ends, stream.write("position")[:, place]))
        least = 0.8 * normalised_length * TOKEN_NORM / float((norms.square().max() + 2 * TOKEN_NORM**2).sqrt())
        write = torch.cat([stream.write("bit"), stream.write("no_bit")], dim=1)
        levels = [[-1, 0], [0, 1], [1, 0]]
        units.append(piecewise(self.bit / TOKEN_NORM @ stream.basis, (-least, 0.0, least), levels, write))
        return units


def place_steps(layers: nn.ModuleList, stream: Stream, memory: Stream, steps: Sequence[Step]) -> None:
    """Write the steps into the layers of one stack, whose residual stream is ``stream``.

    ``memory`` is the encoder's output, for `cross_attention`.
    """
    causal, rng = any(name == "cross_attention" for name, _ in layers[0].named_children()), stream.rng
    slots = [slot for layer in layers for slot in layer.named_children()]
    indices = _draw_slots([name for name, _ in slots], [step.kind for step in steps], rng)
    steps_by_slot = dict(zip(indices, steps, strict=True))
    for index, (kind, residual) in enumerate(slots):
        sublayer: Any = residual.sublayer
        source = memory if kind == "cross_attention" else stream
        if step := steps_by_slot.get(index):
            if kind == "feed_forward":
                _write_units(sublayer, stream, [units for component in step.components for units in component(stream)])
            else:
                heads = [head for component in step.components for head in component(stream, source)]
                _write_heads(sublayer, stream, source, heads, causal and kind == "self_attention")
        else:
            last = sublayer.contract if kind == "feed_forward" else sublayer.out
            _set_weights(last, torch.zeros(last.weight.shape), -stream.shift)
        stream.gain = float(np.exp(rng.uniform(-0.4, 0.4)))
        stream.shift = torch.from_numpy(0.3 * rng.standard_normal(CHANNELS))
        _set_weights(residual.norm, torch.full((CHANNELS,), stream.gain), stream.shift)


def _draw_slots(slots: Sequence[str], kinds: Sequence[str], rng: np.random.Generator) -> tuple[int, ...]:
    """Draw increasing indices of slots with the given kinds, uniformly."""
    options = [[i for i, slot in enumerate(slots) if slot == kind] for kind in kinds]
    choices = [choice for choice in product(*options) if all(i < j for i, j in pairwise(choice))]
    return choices[rng.integers(len(choices))]


def _write_units(module: Any, stream: Stream, parts: list[Units]) -> None:
    """Write hidden units in random order, each scaled so that its weights in both matrices have similar norms."""
    units, threshold = torch.cat([part.expand for part in parts]), torch.cat([part.threshold for part in parts])
    written = torch.cat([part.contract for part in parts], dim=1)
    filler = stream.update([part(stream.state) for part in parts])
    constant = torch.stack([part.constant for part in parts]).sum(0) + filler
    hidden, count = module.expand.out_features, len(threshold)
    order = torch.from_numpy(stream.rng.permutation(hidden)[:count])
    balance = (written.norm(dim=0) / units.norm(dim=1)).sqrt()
    scale = balance * torch.from_numpy(np.exp(stream.rng.uniform(-0.3, 0.3, count)))
    weight, bias = stream.reader(units)
    module.expand.weight.data[order] = (scale[:, None] * weight).float()
    module.expand.bias.data[order] = (scale * (bias + threshold)).float()
    contract = torch.zeros(CHANNELS, hidden, dtype=torch.float64)
    contract[:, order] = stream.gain * stream.basis @ written / scale
    _set_weights(module.contract, contract, stream.gain * stream.basis @ constant - stream.shift)


def _write_heads(module: Any, stream: Stream, source: Stream, heads: list[Head], causal: bool) -> None:
    """Write heads in random order, each transformed by random invertible matrices."""
    rng = stream.rng
    out = torch.zeros(CHANNELS, CHANNELS, dtype=torch.float64)
    constant = stream.update([head(stream.state, source.state, causal) for head in heads])
    for head, place in zip(heads, rng.permutation(module.heads.num_heads), strict=False):
        rows = slice(place * HEAD_SIZE, (place + 1) * HEAD_SIZE)
        size = float(np.exp(rng.uniform(-0.3, 0.3))) * float((head.key.norm() / head.query.norm()).sqrt())
        turn, mix = _invertible(rng) * size, _invertible(rng)
        value = torch.zeros(HEAD_SIZE, CHANNELS - 1, dtype=torch.float64)
        value[: len(head.value)] = head.value
        write = torch.zeros(CHANNELS - 1, HEAD_SIZE, dtype=torch.float64)
        write[:, : len(head.value)] = head.out
        # A constant added to all values adds to their average; the output's bias subtracts it.
        shift = torch.from_numpy(0.1 * rng.standard_normal(HEAD_SIZE))
        for linear, side, matrix, added in (
            (module.query, stream, HEAD_SIZE**0.5 * turn @ head.query, 0.0),
            (module.key, source, torch.linalg.inv(turn).T @ head.key, 0.0),
            (module.value, source, mix @ value, shift),
        ):
            weight, bias = side.reader(matrix)
            linear.weight.data[rows], linear.bias.data[rows] = weight, bias + added
        back = write @ torch.linalg.inv(mix)
        constant -= back @ shift
        out[:, rows] = stream.gain * stream.basis @ back
    _set_weights(module.out, out, stream.gain * stream.basis @ constant - stream.shift)


@torch.no_grad()
def _set_weights(module: Any, weight: Tensor, bias: Tensor) -> None:
    module.weight.copy_(weight)
    module.bias.copy_(bias)


def _invertible(rng: np.random.Generator) -> Tensor:
    """A well-conditioned matrix (8, 8): a rotation, scales from 0.7 to 1.4, another rotation."""
    left, right = (np.linalg.qr(rng.standard_normal((HEAD_SIZE, HEAD_SIZE)))[0] for _ in range(2))
    return torch.from_numpy(left * np.exp(rng.uniform(-0.35, 0.35, HEAD_SIZE)) @ right)
