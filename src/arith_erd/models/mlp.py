"""A multilayer perceptron: the baseline without attention or recurrence."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..bits import VOCAB_SIZE
from .dropout import Dropout
from .network import HookPoint, Network


class MLP(Network):
    """An MLP over the embeddings of the prompt and of the answer so far, concatenated.

    The input of answer position t has a slot for each token of ``prompt <start> r_0 .. r_{m-2}``, and those after
    ``r_{t-1}`` are zero. So a position sees what it sees in nanoGPT, one forward answers all m with the same weights,
    and the filled slots tell which one is asked for. Zero slots add nothing to the first layer, so its outputs are
    cumulative sums over the slots.

    Args:
        prompt_length, answer_length: tokens, P and m.
        d_model: channels C of an embedding; hidden layers have H = 4 C units, as in the Transformers.
        num_layers: hidden layers, with ReLU.
        dropout: after each hidden layer.
    """

    def __init__(
        self,
        prompt_length: int,
        answer_length: int,
        d_model: int = 48,
        num_layers: int = 3,
        dropout: float = 0.1,
        vocab_size: int = VOCAB_SIZE,
    ) -> None:
        super().__init__()
        width = 4 * d_model
        self.slots = (prompt_length, answer_length)
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.read = nn.Linear((prompt_length + answer_length) * d_model, width)
        self.first = HookPoint()
        self.layers = nn.Sequential()
        for _ in range(num_layers - 1):
            self.layers.append(nn.Sequential(Dropout(dropout), nn.Linear(width, width), nn.ReLU()))
        self.dropout = Dropout(dropout)
        self.head = nn.Linear(width, vocab_size)

    def encode(self, prompt: Tensor) -> Tensor:
        """Prompt tokens (B, P) -> what they add to the first hidden layer (B, H)."""
        x = self.embedding(prompt).flatten(-2)  # (B, P C)
        return F.linear(x, self.read.weight[:, : x.shape[-1]], self.read.bias)

    def decode(self, memory: Tensor, answer_in: Tensor) -> Tensor:
        """Output of `encode` (B, H) and ``<start> r_0 .. r_{t-2}`` (B, t) -> logits of r_0 .. r_{t-1} (B, t, V)."""
        weight = self.read.weight.unflatten(-1, (sum(self.slots), -1))[:, self.slots[0] :]  # (H, m, C)
        seen = self.embedding(answer_in)  # (B, t, C)
        slots = torch.einsum("btc,htc->bth", seen, weight[:, : answer_in.shape[-1]])
        x = self.first((memory.unsqueeze(-2) + slots.cumsum(-2)).relu())  # (B, t, H)
        logits: Tensor = self.head(self.dropout(self.layers(x)))
        return logits

    def sites(self) -> dict[str, nn.Module]:
        """The hidden layers ``dec.1 ..`` after the ReLU (B, m, H)."""
        layers = {f"dec.{i}": layer for i, layer in enumerate([self.first, *self.layers], 1)}
        return layers | {"logits": self.head}
