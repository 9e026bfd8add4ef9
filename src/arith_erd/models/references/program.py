"""A program, the steps of an algorithm, and its compilation into a network, from the embeddings to the logits.

Every token's embedding contains ``u``, and that of a bit also plus or minus ``v``. ``u`` removes most of what the
sinusoidal positions have in common; ``v`` is orthogonal to all positions. The first active feed-forward layer of each
stack erases the sum of embedding and position and writes two features instead:

- ``position``, one-hot: two hidden units for each position, a ramp of the similarity to it;
- ``bit``, -1 or 1 (the operator counts as 0, and so as -1). An embedding halfway between the bits gives 0, and so
  does ``<start>``; then the feature ``no_bit`` is 1, so that the energy of the stream stays the same.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...bits import ONE, OPERATOR, START, VOCAB_SIZE, ZERO
from ...tasks import Add
from ..network import shift_right
from ..positions import sinusoids
from ..transformer import Transformer
from .assembly import Form, Step, assign, feed_forward
from .blocks import CHANNELS, Stream, Units, piecewise, ramp
from .circuits import BITS, PROMPT, WIDTH

TOKEN_NORM = 0.4  # small beside a position's 1.7 to 3: the scale of the first LayerNorm must not depend on the token


class Embedding:
    """The embedding table of one stack, for the fixed positions (T, C) that the network adds."""

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

    def read(self, stream: Stream) -> list[Units]:
        """Hidden units that replace the embedding by ``position``, ``bit`` and ``no_bit``."""
        norms, length = self.places.norm(dim=1), len(self.places)
        detectors = self.places / norms[:, None] @ stream.basis  # (T, C - 1)
        eight = CHANNELS**0.5
        with_token = eight * norms / (norms.square() + 2 * TOKEN_NORM**2).sqrt()  # (T,) similarity to itself, at least
        likeness = eight * (detectors @ detectors.T - 2 * torch.eye(length, dtype=torch.float64)).amax(1)
        stream.add("position", length, scale=2.0)
        stream.add("bit")
        stream.add("no_bit", scale=float(stream.write("bit").sum()))
        eye = torch.eye(CHANNELS - 1, dtype=torch.float64)
        both = torch.cat([eye, -eye])
        units = [
            Units(both, torch.zeros(len(both), dtype=torch.float64), -both.T, torch.zeros_like(eye[0]))
        ]  # erase all
        for place in range(length):
            low, high = float(likeness[place]), float(with_token[place])
            ends = (low + 0.25 * (high - low), low + 0.75 * (high - low))
            units.append(ramp(detectors[place], *ends, stream.write("position")[:, place]))
        least = 0.8 * eight * TOKEN_NORM / float((norms.square().max() + 2 * TOKEN_NORM**2).sqrt())
        write = torch.cat([stream.write("bit"), stream.write("no_bit")], dim=1)
        levels = [[-1, 0], [0, 1], [1, 0]]
        units.append(piecewise(self.bit / TOKEN_NORM @ stream.basis, (-least, 0.0, least), levels, write))
        return units


@dataclass(frozen=True)
class Program:
    """Steps after the embeddings have been read; the decoder must leave the answer in its feature ``answer``."""

    encoder: list[Step]
    decoder: list[Step]


@dataclass(frozen=True)
class Reference:
    """A network whose algorithm is known, and the features of both stacks.

    ``decoder.directions("carry")`` are those in which an answer position stores its carry once it is computed.
    """

    network: Transformer  # float32, in evaluation mode
    encoder: Stream
    decoder: Stream


def examples(rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """A random pair for each sum 0, 1, .. 254: prompts (255, P) and decoder inputs (255, m)."""
    sums = np.arange(2 ** (BITS + 1) - 1)
    a = rng.integers(np.maximum(0, sums - 2**BITS + 1), np.minimum(sums, 2**BITS - 1) + 1)
    drawn = Add(BITS).examples(a, sums - a)
    return torch.from_numpy(drawn.prompt), shift_right(torch.from_numpy(drawn.completion))


def compile_program(program: Program, rng: np.random.Generator) -> Reference:
    """The weights that run a program, computed in float64: one of many networks, drawn by ``rng``."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.integers(2**62)))
        network = Transformer(PROMPT, WIDTH).eval()
    prompt, answer_in = examples(rng)
    table = sinusoids(max(PROMPT, WIDTH), CHANNELS).double()
    zeros = torch.zeros(1, 1, CHANNELS, dtype=torch.float64)
    form = Form(Stream(zeros, rng), 1.0, zeros[0, 0])  # of nothing: the encoder attends to no other stack
    streams: list[Stream] = []
    for layers, layer, tokens, steps in (
        (network.encoder, network.prompt_embedding, prompt, program.encoder),
        (network.decoder, network.answer_embedding, answer_in, program.decoder),
    ):
        positions = table[: tokens.shape[1]]
        embedding = Embedding(positions, rng)
        streams.append(Stream(embedding.table[tokens] + positions, rng))
        form = assign(layers, streams[-1], form, [feed_forward(embedding.read), *steps], rng)
        layer.weight.data.copy_(embedding.table)
    # Logits plus or minus L for the two bits, with L between 4 and 8, and -2 L for the other tokens.
    size, answer = float(rng.uniform(4, 8)), form.stream.read("answer")[0]
    rows = torch.zeros(VOCAB_SIZE, CHANNELS - 1, dtype=torch.float64)
    rows[ZERO], rows[ONE] = -size * answer, size * answer
    base = torch.full((VOCAB_SIZE,), -2 * size, dtype=torch.float64)
    base[ZERO] = base[ONE] = 0.0
    weight, bias = form.reader(rows)
    network.head.weight.data.copy_(weight)
    network.head.bias.data.copy_(base + bias)
    return Reference(network, *streams)
