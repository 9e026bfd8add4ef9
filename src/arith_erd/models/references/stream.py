"""The residual stream of a hand-written network: named features in a basis that post-norm layers preserve.

A stream is ``x = Q z`` with orthonormal columns Q (C, C - 1), all orthogonal to the all-ones vector. So the mean over
the channels of x is zero, and if ``|z|^2 = C`` a LayerNorm changes nothing. Each feature occupies columns of z. One
column, the *filler*, holds the rest of ``|z|^2 = C``.
"""

import math

import numpy as np
import torch
from torch import Tensor

CHANNELS = 64
LAYER_NORM_EPS = 1e-5


def layer_norm(x: Tensor) -> Tensor:
    """LayerNorm without gain and shift, for coordinates (..., C - 1) whose channels have mean zero."""
    return x / (x.square().sum(-1, keepdim=True) / CHANNELS + LAYER_NORM_EPS).sqrt()


class Stream:
    """The features of one stack, and their values on the examples from which the network is computed.

    A feature of scale 1.2 is a column of z that holds 1.2 times its value; `read` and `write` apply the scale. ``x`` is
    the stack's input (N, T, C), embeddings plus positions, before the first LayerNorm.
    """

    def __init__(self, x: Tensor, rng: np.random.Generator) -> None:
        self.rng = rng
        columns = rng.standard_normal((CHANNELS, CHANNELS))
        columns[:, 0] = 1.0
        self.basis = torch.from_numpy(np.linalg.qr(columns)[0][:, 1:].copy())  # Q (C, C - 1), otherwise uniform
        self.state = layer_norm(x @ self.basis)  # (N, T, C - 1): z after the sublayers computed so far
        self._columns: dict[str, slice] = {}
        self._scales: dict[str, float] = {}
        self._free = 0
        self.add("filler", scale=1.0)

    def add(self, name: str, size: int = 1, scale: float | None = None) -> None:
        """Reserve ``size`` columns for a feature; its scale is drawn around 1 unless given."""
        if name in self._columns:
            return
        if self._free + size > CHANNELS - 1:
            raise ValueError(f"no room for the feature {name}: {self._free} of {CHANNELS - 1} columns are taken")
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

    def directions(self, name: str) -> Tensor:
        """Directions of a feature in the channels (C, size), of length 1, the same at every layer."""
        return self.basis[:, self._columns[name]]

    def update(self, change: Tensor) -> float:
        """Add a sublayer's output (N, T, C - 1) and normalise; returns what the filler needed for ``|z|^2 = C``."""
        z = self.state + change
        filler = self._columns["filler"].start
        energy = float(z.square().sum(-1).mean() - z[..., filler].square().mean())
        if energy >= CHANNELS:
            raise ValueError(f"features of energy {energy:.1f} do not fit a stream of {CHANNELS}")
        needed = math.sqrt(CHANNELS - energy) - float(z[..., filler].mean())
        z[..., filler] += needed
        self.state = layer_norm(z)
        return needed
