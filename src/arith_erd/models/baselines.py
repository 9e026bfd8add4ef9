"""The baselines: a multilayer perceptron, and recurrent networks with the equations of torch's GRU and LSTM."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..bundled import load_option
from ..digits import VOCAB_SIZE
from .dropout import Dropout
from .network import HookPoint, Network

MLP_NET, GRU_NET, LSTM_NET = (load_option("model", name)["net"] for name in ("mlp", "gru", "lstm"))


class MLP(Network):
    """An MLP over the concatenated embeddings of the prompt and the prefix.

    The input of answer position t has a slot for each token of ``prompt <start> r_0 .. r_{m-2}``. Slots after
    ``r_{t-1}`` are zero, so a position sees the same tokens as in nanoGPT. One forward answers all m positions with the
    same weights; the number of filled slots identifies the position. Zero slots add nothing to the first layer, so its
    outputs are cumulative sums over the slots.

    Args:
        prompt_length, answer_length: tokens, P and m.
        d_model: channels C of an embedding; hidden layers have H = 4 C units, as in the Transformers.
        num_layers: number of hidden layers, each with a ReLU.
        dropout: after each hidden layer.
    """

    def __init__(
        self,
        prompt_length: int,
        answer_length: int,
        d_model: int = MLP_NET["d_model"],
        num_layers: int = MLP_NET["num_layers"],
        dropout: float = MLP_NET["dropout"],
        vocab_size: int = VOCAB_SIZE,
    ) -> None:
        super().__init__()
        width = 4 * d_model
        self.task_sizes = (prompt_length, answer_length, vocab_size)
        self.prompt_length = prompt_length
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.read = nn.Linear((prompt_length + answer_length) * d_model, width)
        self.first = HookPoint()
        self.layers = nn.Sequential()
        for _ in range(num_layers - 1):
            self.layers.append(nn.Sequential(Dropout(dropout), nn.Linear(width, width), nn.ReLU()))
        self.dropout = Dropout(dropout)
        self.head = nn.Linear(width, vocab_size)

    def encode(self, prompt: Tensor) -> Tensor:
        """Prompt tokens (B, P) -> their contribution to the first hidden layer (B, H)."""
        x = self.embedding(prompt).flatten(-2)  # (B, P C)
        return F.linear(x, self.read.weight[:, : x.shape[-1]], self.read.bias)

    def decode(self, memory: Tensor, answer_in: Tensor) -> Tensor:
        """Output of `encode` (B, H) and ``<start> r_0 .. r_{t-2}`` (B, t) -> logits of r_0 .. r_{t-1} (B, t, V)."""
        seen = self.embedding(answer_in)  # (B, t, C)
        weight = self.read.weight.unflatten(-1, (-1, seen.shape[-1]))[:, self.prompt_length :]  # (H, m, C)
        slots = torch.einsum("btc,htc->bth", seen, weight[:, : answer_in.shape[-1]])
        x = self.first((memory.unsqueeze(-2) + slots.cumsum(-2)).relu())  # (B, t, H)
        return self.head(self.dropout(self.layers(x)))

    def sites(self) -> dict[str, nn.Module]:
        """The hidden layers ``dec.1 ..`` after the ReLU (B, m, H)."""
        layers = {f"dec.{i}": layer for i, layer in enumerate([self.first, *self.layers], 1)}
        return layers | {"logits": self.head}


class RecurrentLayer(nn.Module):
    """A recurrent layer made from `nn.Linear`, (B, T, C) -> (B, T, C), with initial state 0.

    ``input`` and ``hidden`` are torch's ``weight_ih_l0``, ``bias_ih_l0`` and ``weight_hh_l0``, ``bias_hh_l0``, with the
    same order of gates. `nn.Linear` draws them as torch does: uniformly within ``1 / sqrt(C)``. A pack needs `vmap`,
    which cannot batch torch's own layers.
    """

    gates: int
    states: int

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.input = nn.Linear(d_model, self.gates * d_model)
        self.hidden = nn.Linear(d_model, self.gates * d_model)

    def step(self, x: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """An input's contribution to the gates (B, gates * C), and states (B, C) -> next states, the output first."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        state = (torch.zeros_like(x[..., 0, :]),) * self.states
        outputs = []
        for gate_inputs in self.input(x).unbind(-2):
            state = self.step(gate_inputs, state)
            outputs.append(state[0])
        return torch.stack(outputs, dim=-2)


class GRULayer(RecurrentLayer):
    """Gated recurrent unit (Cho et al., 2014), with the reset gate after the product, as in `torch.nn.GRU`."""

    gates, states = 3, 1

    def step(self, x: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        (h,) = state
        (r_x, z_x, n_x), (r_h, z_h, n_h) = x.chunk(3, dim=-1), self.hidden(h).chunk(3, dim=-1)
        n = (n_x + (r_x + r_h).sigmoid() * n_h).tanh()
        return (n + (z_x + z_h).sigmoid() * (h - n),)


class LSTMLayer(RecurrentLayer):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997) with a forget gate, as `torch.nn.LSTM`."""

    gates, states = 4, 2

    def step(self, x: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        h, c = state
        i, f, g, o = (x + self.hidden(h)).chunk(4, dim=-1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c


class Recurrent(Network):
    """A stack of recurrent layers of one kind over V tokens.

    Like nanoGPT it has no encoder: the stack reads the prompt, then ``<start>`` and the answer.

    Args:
        prompt_length, answer_length: tokens, P and m; the parameters do not depend on them.
        d_model: channels C of embeddings and states.
        num_layers: number of layers; each reads the output of the one before.
        dropout: between layers, as in torch.
    """

    layer: type[RecurrentLayer]

    def __init__(
        self,
        prompt_length: int,
        answer_length: int,
        d_model: int = GRU_NET["d_model"],
        num_layers: int = GRU_NET["num_layers"],
        dropout: float = GRU_NET["dropout"],
        vocab_size: int = VOCAB_SIZE,
    ) -> None:
        super().__init__()
        self.task_sizes = (None, None, vocab_size)
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.layers = nn.ModuleList(self.layer(d_model) for _ in range(num_layers))
        self.dropouts = nn.ModuleList(Dropout(dropout) for _ in range(num_layers - 1))
        self.head = nn.Linear(d_model, vocab_size)

    def decode(self, memory: Tensor, answer_in: Tensor) -> Tensor:
        """Prompt (B, P) and ``<start> r_0 .. r_{t-2}`` (B, t) -> logits of r_0 .. r_{t-1} (B, t, V)."""
        x = self.embedding(torch.cat([memory, answer_in], dim=-1))  # (B, P + t, C)
        for layer, dropout in zip(self.layers, [*self.dropouts, nn.Identity()], strict=True):
            x = dropout(layer(x))
        return self.head(x[..., -answer_in.shape[-1] :, :])

    def sites(self) -> dict[str, nn.Module]:
        """The outputs of the layers ``dec.1 ..`` (B, P + m, C).

        Replacing one changes the input of the layers above; the layer itself continues from its own state.
        """
        layers = {f"dec.{i}": layer for i, layer in enumerate(self.layers, 1)}
        return {"dec.embed": self.embedding} | layers | {"logits": self.head}


class GRU(Recurrent):
    """A stack of gated recurrent units, 6 C (C + 1) parameters per layer."""

    layer = GRULayer


class LSTM(Recurrent):
    """A stack of LSTM layers, 8 C (C + 1) parameters per layer."""

    layer = LSTMLayer

    def __init__(
        self, prompt_length: int, answer_length: int, d_model: int = LSTM_NET["d_model"], **sizes: Any
    ) -> None:
        super().__init__(prompt_length, answer_length, d_model, **sizes)
