"""A program, the steps of an algorithm, and its compilation into a network."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...bits import ONE, VOCAB_SIZE, ZERO
from ...tasks import Add
from ..decoding import shift_right
from ..positions import sinusoids
from ..transformer import Transformer
from .assembly import Form, Step, assign, feed_forward
from .circuits import BITS, PROMPT, WIDTH
from .reading import Embedding
from .stream import CHANNELS, Stream


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
