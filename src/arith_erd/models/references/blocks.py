"""The residual stream of a hand-written network, and the attention heads and hidden units that read and write it.

A stream is ``x = Q z`` with orthonormal columns Q (C, C - 1), all orthogonal to the all-ones vector. So the mean over
the channels of x is zero, and if ``|z|^2 = C`` a post-norm LayerNorm changes nothing. Each named feature occupies
columns of z. One column, the *filler*, holds the rest of ``|z|^2 = C``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

CHANNELS = 64
HEAD_SIZE = 8
CERTAIN = 30.0
"""Nats between an attended position and the others: attention is hard up to 1e-13."""


def layer_norm(x: Tensor) -> Tensor:
    """LayerNorm without gain and shift, for coordinates (..., C - 1) whose channels have mean zero."""
    return x / (x.square().sum(-1, keepdim=True) / CHANNELS + 1e-5).sqrt()


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
        needed = math.sqrt(CHANNELS - energy) - float(z[..., filler].mean())
        z[..., filler] += needed
        self.state = layer_norm(z)
        return needed


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


def attend(
    stream: Stream,
    memory: Stream,
    scores: Tensor,
    moves: dict[str, str],
    classes: Sequence[int] | None = None,
    penalty: str = "",
) -> Head:
    """A head whose scores (at most 8, S), in nats, are a table of positions, one-hot in the feature ``position``.

    ``moves`` names features of ``memory``, at most 8, and those of ``stream`` that receive their averages.
    ``classes`` gives the row of ``scores`` for each querying position; None for one row each. ``penalty`` is a feature
    of ``memory`` with values -1 and 1: positions where it is -1 lose 9 times `CERTAIN`, so scores below 200 nats cannot
    select them.
    """
    classes = range(len(scores)) if classes is None else classes
    position = stream.read("position")
    rows = torch.zeros(HEAD_SIZE, len(position), dtype=torch.float64)
    rows[list(classes), range(len(classes))] = 1.0
    table = torch.zeros(HEAD_SIZE, scores.shape[1], dtype=torch.float64)
    table[: len(scores)] = scores
    key = table @ memory.read("position")
    if penalty:
        key = key + 4.5 * CERTAIN * memory.read(penalty)  # every query has exactly one 1, so it applies to all
    for target in moves.values():
        stream.add(target)
    value = torch.cat([memory.read(source) for source in moves])
    return Head(rows @ position, key, value, torch.cat([stream.write(target) for target in moves.values()], dim=1))


def hard(targets: Sequence[Sequence[int]], length: int) -> Tensor:
    """Scores (len(targets), length): `CERTAIN` at the positions that each row attends to, 0 elsewhere."""
    scores = torch.zeros(len(targets), length, dtype=torch.float64)
    for row, positions in enumerate(targets):
        scores[row, list(positions)] = CERTAIN
    return scores


def weighted(weights: Tensor) -> Tensor:
    """Scores whose softmax is proportional to ``weights`` (T, S); a weight of 0 becomes ``e^-30`` of the largest."""
    weights = weights / weights.amax(-1, keepdim=True)
    return weights.clamp_min(math.exp(-CERTAIN)).log() + CERTAIN


def piecewise(row: Tensor, knots: Sequence[float], values: npt.ArrayLike | Tensor, write: Tensor) -> Units:
    """Units that write (C - 1, d) a piecewise linear function of ``row @ z``: values (K, d) at K increasing knots."""
    at, given = (torch.as_tensor(x, dtype=torch.float64) for x in (knots, values))
    slopes = (given[1:] - given[:-1]) / (at[1:] - at[:-1])[:, None]  # (K - 1, d)
    flat = torch.zeros_like(slopes[:1])
    bends = torch.diff(torch.cat([flat, slopes, flat]), dim=0)  # (K, d)
    return Units(row.expand(len(at), -1), -at, write @ bends.T, write @ given[0])


def curve(stream: Stream, row: Tensor, knots: Sequence[float], values: Sequence[float], name: str) -> Units:
    """Write to a feature, added if missing, a `piecewise` linear function of ``row @ z``."""
    stream.add(name)
    return piecewise(row, knots, [[value] for value in values], stream.write(name))


def ramp(row: Tensor, low: float, high: float, change: Tensor) -> Units:
    """Two units that add nothing up to ``row @ z = low`` and ``change`` (C - 1,) from ``high`` on."""
    return piecewise(row, (low, high), [[0.0], [1.0]], change[:, None])
