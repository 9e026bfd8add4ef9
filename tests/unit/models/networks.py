"""Shared by the tests of networks: the paper's ablations, networks away from their initial values, random tokens."""

import torch

from arith_erd.digits import VOCAB_SIZE, ZERO
from arith_erd.models import GRU, LSTM, MLP, NanoGPT, Transformer

P, M = 15, 8  # seven-bit addition

BASELINES = (GRU, LSTM, MLP)
ABLATIONS = (  # of the paper; nanoGPT has no encoder to take away
    *({"encoder": False}, {}, {"num_heads": 1}, {"d_model": 32}),
    *({"positional_encoding": False}, {"attention": False}, {"feed_forward": False}),
)
VARIANTS = [*((Transformer, options) for options in ABLATIONS), *((NanoGPT, options) for options in ABLATIONS[1:])]


def make(network, options=(), **more):
    """A network whose every parameter has been moved off its default, so that none is tested at 0 or 1 alone."""
    torch.manual_seed(0)
    made = network(P, M, **{"num_layers": 2, **dict(options), **more}).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return made


def tokens(count: int = 12, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    prompt = torch.randint(VOCAB_SIZE, (count, P), generator=generator)
    completion = torch.randint(ZERO, VOCAB_SIZE, (count, M), generator=generator)
    return prompt, completion
