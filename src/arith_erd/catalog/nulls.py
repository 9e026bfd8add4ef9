"""Null networks have the interface of a network that adds, but no algorithm inside. Each is made from its seed.

``untrained`` has initial weights. ``shuffled`` has the weights of ``add-nanogpt`` or ``add-transformer`` in random
order within each array. It takes their first layers, and as much of the position table as the task needs. ``table`` is
a nanoGPT that reads right answers from a table of all pairs. It is slow at seven bits, since a look-up compares the
activation with all pairs.
"""

from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..digits import ONE, ZERO
from ..interp.hooked import Hooked
from ..models import NanoGPT, Transformer
from ..models.network import Network, initialise
from ..tasks import Add
from .loading import load_pretrained

NUM_LAYERS = 3  # as in the small networks of `paper/scripts/zoo.sh`
SHARPNESS = 100.0  # cosines of different pairs stay below 0.9, so the right pair outweighs all others
LOUDNESS = 10.0  # norm of the answer, in norms of the residual stream
ARCHITECTURES: dict[str, type[Network]] = {"nanogpt": NanoGPT, "transformer": Transformer}
NULLS = {(kind, model, 5): range(20) for kind in ("untrained", "shuffled") for model in ARCHITECTURES}
NULLS |= {(kind, model, 7): range(5) for kind, model, _ in NULLS} | {("table", "nanogpt", 5): range(20)}
"""Kind, architecture and bits -> seeds."""


def make_null(kind: str, architecture: str, bits: int, seed: int) -> Hooked:
    """A null network for addition, of three layers and the default width."""
    task = Add(bits)
    make = partial(ARCHITECTURES[architecture], task.prompt_length, task.width, num_layers=NUM_LAYERS)
    network = initialise(make, seed)
    if kind == "shuffled":
        network.load_state_dict(_shuffled_weights(network, architecture, seed))
    elif kind == "table":
        _answer_from_table(network, task, seed)
    return Hooked(network, task=task, name=f"{kind} {architecture}", seed=seed)


def _shuffled_weights(network: Network, architecture: str, seed: int) -> dict[str, Tensor]:
    generator, shuffled = torch.Generator().manual_seed(seed), {}
    for name, own in network.state_dict().items():
        values = _trained_weights(architecture)[name][: len(own)].flatten()
        shuffled[name] = values[torch.randperm(len(values), generator=generator)].view_as(own)
    return shuffled


@cache
def _trained_weights(architecture: str) -> dict[str, Tensor]:
    return load_pretrained(f"add-{architecture}").network.state_dict()


def _answer_from_table(network: Any, task: Add, seed: int) -> None:
    """Add an embedding of the pair to a nanoGPT's input, and replace its last MLP by a look-up of the answer."""
    examples, generator = task.examples(), torch.Generator().manual_seed(seed)
    size = network.embedding.embedding_dim
    codes = torch.randn(len(examples), size, generator=generator)
    codes = F.normalize(codes - codes.mean(1, keepdim=True)) * size**0.5  # a LayerNorm does not change these
    network.positions = PairEmbedding(network.positions, task, codes)
    tokens = LOUDNESS * size**0.5 * F.normalize(network.embedding.weight.detach(), dim=1)
    network.blocks[-1].feed_forward.sublayer = Lookup(codes, torch.as_tensor(examples.completion), tokens)


class PairEmbedding(nn.Module):
    """Position embeddings and, at each position of the answer, a code of the pair: codes (N, C) of all N pairs."""

    def __init__(self, positions: nn.Module, task: Add, codes: Tensor) -> None:
        super().__init__()
        self.positions, self.bits, self.prompt_length = positions, task.bits, task.prompt_length
        self.codes = nn.Embedding.from_pretrained(codes)

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        """Embeddings (B, P + t, C) of tokens (B, P + t) -> the same with codes at the last t positions."""
        x, prompt = self.positions(x, tokens), tokens[:, : self.prompt_length]
        places = 2 ** torch.arange(self.bits, device=tokens.device)  # lowest first
        a, b = (((digits - ZERO) * places).sum(1) for digits in (prompt[:, : self.bits], prompt[:, self.bits + 1 :]))
        code = self.codes(2**self.bits * a + b)
        return torch.cat([x[:, : self.prompt_length], x[:, self.prompt_length :] + code[:, None]], dim=1)


class Lookup(nn.Module):
    """A table: completions (N, m) by the codes (N, C) of the pairs. The nearest code to an activation wins.

    It writes the embedding of the token, ``tokens`` (V, C).
    """

    def __init__(self, codes: Tensor, completions: Tensor, tokens: Tensor) -> None:
        super().__init__()
        self.codes, self.ones, self.tokens = map(
            nn.Buffer, (F.normalize(codes), (completions == ONE).to(codes), tokens)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Normalised activations (B, t, C) at the answer's positions -> embeddings (B, t, C) of their answers."""
        weights = (SHARPNESS * F.normalize(x, dim=-1) @ self.codes.T).softmax(-1)  # (B, t, N)
        one = (weights @ self.ones[:, : x.shape[1]]).diagonal(dim1=-2, dim2=-1)[..., None]  # (B, t, 1)
        return one * self.tokens[ONE] + (1 - one) * self.tokens[ZERO]
