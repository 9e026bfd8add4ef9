"""Move embeddings by some units of a number: four definitions of "the value direction".

Each is fitted on embeddings x (N, d) of pairs with the values s (N,). It gives a function ``move(s, delta) -> (n, d)``,
the change to add to the embeddings.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ..bits import Array
from .erasure import Whitened, leace
from .interchange import Subspace

Move = Callable[[Array, int], Tensor]


def slope(x: Whitened, values: Tensor) -> Move:
    """Least squares: the change of the embedding per unit of the value, ``Cov(x, s) / Var(s)``."""
    s = values.to(torch.float64)
    deviation = s - s.mean()
    covariance = x.axes @ (x.scale * (x.white.T @ deviation)) / len(s)  # (d,)
    step = covariance / deviation.square().mean()
    return lambda of, delta: (delta * step).expand(len(of), -1)


def reading(x: Whitened, values: Tensor) -> Move:
    """LEACE: move along the direction that it erases until a least-squares reading of the value has moved by delta.

    The direction is that of `slope`. The step is longer by 1 / R^2, where R^2 is the share of the value's variance that
    a linear probe reads.
    """
    eraser = leace(x, values[:, None])
    s = values.to(torch.float64)
    read = x.white @ (x.scale * (x.axes.T @ eraser.right[:, 0]))  # (N,)
    unit = (read * (s - s.mean())).mean() / read.square().mean()  # of the value in what is read
    step = eraser.left[:, 0] / (unit * (eraser.left[:, 0] @ eraser.right[:, 0]))
    return lambda of, delta: (delta * step).expand(len(of), -1)


class Centroids:
    """Move from the mean embedding of one value to that of another; no linearity is assumed.

    Args:
        x: (N, d).
        values: (N,) non-negative integers.
    """

    def __init__(self, x: Tensor, values: Tensor) -> None:
        values = values.to(x.device)
        count = torch.bincount(values)
        means = torch.zeros(len(count), x.shape[1], dtype=torch.float64, device=x.device)
        means.index_add_(0, values, x.to(torch.float64))
        self.means = means / count[:, None]  # (S, d), NaN for a value that no pair has
        self.known = set(np.flatnonzero(count.cpu().numpy()).tolist())

    def __call__(self, of: Array, delta: int) -> Tensor:
        at = torch.as_tensor(of, device=self.means.device)
        return self.means[at + delta] - self.means[at]


def within(subspace: Subspace, centroids: Centroids) -> Move:
    """The moves between centroids, projected onto a subspace, such as one found by an alignment search."""

    def move(of: Array, delta: int) -> Tensor:
        way = centroids(of, delta)
        directions = subspace.directions.to(way)
        return way @ directions @ directions.T

    return move
