"""The residual stream of a hand-coded network, with named features; attention heads and hidden units that change it."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

CHANNELS = 64
HEAD_SIZE = 8


def layer_norm(x: Tensor) -> Tensor:
    """LayerNorm without gain and shift, in coordinates z (..., C - 1) of channels with mean zero."""
    return x / (x.square().sum(-1, keepdim=True) / CHANNELS + 1e-5).sqrt()


class Stream:
    """The residual stream of one stack: its named features, and their values on example inputs.

    The stream is ``x = Q z``. The columns of Q (C, C - 1) are orthonormal, and orthogonal to the all-ones vector. So
    the mean over the channels of x is zero, and a post-norm LayerNorm changes nothing if ``|z|^2 = C``. Each named
    feature occupies columns of z. One column, the *filler*, holds the rest of ``|z|^2 = C``.

    A feature of scale 1.2 is a column of z that holds 1.2 times its value; `read` and `write` apply the scale. ``x`` is
    the stack's input (N, T, C), embeddings plus positions, before the first LayerNorm. After a LayerNorm with ``gain``
    and ``shift`` (C,), the network's activation is ``gain Q z + shift``. The operands have ``bits`` bits.
    """

    def __init__(self, x: Tensor, rng: np.random.Generator, bits: int) -> None:
        self.rng = rng
        self.bits, self.width, self.operator, self.prompt_length = bits, bits + 1, bits, 2 * bits + 1
        self.a_positions, self.b_positions = range(bits), range(bits + 1, 2 * bits + 1)
        self.operands = [*self.a_positions, *self.b_positions]
        self.operand_rows = [*range(bits), *[bits] * (bits + 1)]  # of scores: i for a_i, the last for other positions
        columns = rng.standard_normal((CHANNELS, CHANNELS))
        columns[:, 0] = 1.0
        self.basis = torch.from_numpy(np.linalg.qr(columns)[0][:, 1:].copy())  # Q (C, C - 1), otherwise uniform
        self.state = layer_norm(x @ self.basis)  # (N, T, C - 1): z after the sublayers computed so far
        self.gain, self.shift = 1.0, torch.zeros(CHANNELS, dtype=torch.float64)
        self._columns: dict[str, slice] = {}
        self._scales: dict[str, float] = {}
        self._free = 0
        self.add("filler", scale=1.0)

    def add(self, name: str, size: int = 1, scale: float | None = None) -> None:
        """Reserve ``size`` columns for a feature. Its scale is drawn around 1 unless given."""
        if name in self._columns:
            return
        self._columns[name] = slice(self._free, self._free + size)
        self._scales[name] = float(np.exp(self.rng.uniform(-0.2, 0.2))) if scale is None else scale
        self._free += size

    def add_number(self, name: str) -> None:
        """Reserve a column for a number from -1 to 1, at a small scale s: LayerNorm changes it by up to s^2 / 128."""
        self.add(name, scale=float(self.rng.uniform(0.08, 0.14)))

    def read(self, name: str) -> Tensor:
        """Rows (size, C - 1): ``read(name) @ z`` is the value of the feature."""
        return torch.eye(CHANNELS - 1, dtype=torch.float64)[self._columns[name]] / self._scales[name]

    def write(self, name: str) -> Tensor:
        """Columns (C - 1, size): ``z + write(name) @ value`` adds to the value of the feature."""
        return torch.eye(CHANNELS - 1, dtype=torch.float64)[:, self._columns[name]] * self._scales[name]

    def reader(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Rows for z (k, C - 1) -> equivalent rows for the network's activation (k, C), and their bias (k,)."""
        weight = rows @ self.basis.T / self.gain
        return weight, -weight @ self.shift

    def directions(self, name: str) -> Tensor:
        """Unit directions (C, size) of a feature in the channels, the same at every layer."""
        return self.basis[:, self._columns[name]]

    def update(self, changes: list[Tensor]) -> Tensor:
        """Add a sublayer's outputs (N, T, C - 1) and normalise. Returns the bias (C - 1,) that keeps ``|z|^2 = C``."""
        z = self.state + torch.stack(changes).sum(0)
        filler = self._columns["filler"].start
        energy = float(z.square().sum(-1).mean() - z[..., filler].square().mean())
        missing = math.sqrt(CHANNELS - energy) - float(z[..., filler].mean())
        z[..., filler] += missing
        self.state = layer_norm(z)
        return self.write("filler")[:, 0] * missing


@dataclass(frozen=True)
class Head:
    """One attention head in coordinates z; its scores are ``(query z) . (key z')``, without any other scaling."""

    query: Tensor  # (8, C - 1)
    key: Tensor  # (8, C - 1)
    value: Tensor  # (d, C - 1) with d <= 8
    out: Tensor  # (C - 1, d)

    def __call__(self, z: Tensor, memory: Tensor, causal: bool) -> Tensor:
        """z (N, T, C - 1) and memory (N, S, C - 1) -> the head's update (N, T, C - 1)."""
        scores = (z @ self.query.T) @ (memory @ self.key.T).transpose(-2, -1)  # (N, T, S)
        if causal:
            scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -math.inf)
        return scores.softmax(-1) @ memory @ self.value.T @ self.out.T


@dataclass(frozen=True)
class Units:
    """Hidden units of a feed-forward layer: ``contract relu(expand z + threshold) + constant``."""

    expand: Tensor  # (h, C - 1)
    threshold: Tensor  # (h,)
    contract: Tensor  # (C - 1, h)
    constant: Tensor  # (C - 1,)

    def __call__(self, z: Tensor) -> Tensor:
        """z (N, T, C - 1) -> the units' update (N, T, C - 1)."""
        return (z @ self.expand.T + self.threshold).relu() @ self.contract.T + self.constant
