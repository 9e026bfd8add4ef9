"""Controls for a subspace found by search."""

from collections.abc import Iterator
from copy import deepcopy

import torch
from torch import Tensor

from ..models.network import Network
from .erasure import Whitened, random_basis
from .interchange import Subspace

OVERLAP = 0.5  # with the found subspace, at most: every direction is at least 45 degrees away from it
DRAWS = 50  # for each control that is asked for


def random_subspaces(x: Whitened, rank: int, number: int, seed: int) -> Iterator[Subspace]:
    """Subspaces of the span of real embeddings, uniformly distributed."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(number):
        yield Subspace(x.axes @ random_basis(x.rank, generator)[:, :rank].to(x.axes))


def sign_flipped(x: Whitened, subspace: Subspace, number: int, seed: int) -> Iterator[Subspace]:
    """The subspace with the signs of its coordinates along the principal axes drawn at random.

    The covariance of the embeddings is diagonal in these coordinates. So in each of these subspaces the embeddings have
    the same covariance as in the original one: same rank, variance and spectrum, another direction. Where few axes
    count, many flips give the same subspace again. Those nearer than 45 degrees, in any direction, are drawn anew;
    there are fewer than ``number``, or none, if such flips are rare.
    """
    generator = torch.Generator().manual_seed(seed)
    coordinates = x.axes.T @ subspace.directions.to(x.axes)  # (r, k)
    found = 0
    for _ in range(DRAWS * number):
        signs = torch.randint(0, 2, (x.rank, 1), generator=generator).to(x.axes) * 2 - 1
        if overlap(coordinates, signs * coordinates) <= OVERLAP:
            found += 1
            yield Subspace(x.axes @ (signs * coordinates))
        if found == number:
            return


def overlap(a: Tensor, b: Tensor) -> float:
    """Squared cosine of the smallest principal angle between the spans of orthonormal columns (d, k): 0 to 1."""
    return float(torch.linalg.matrix_norm(a.T @ b, ord=2) ** 2)


def untrained(network: Network, seed: int) -> Network:
    """The same architecture with fresh weights, from PyTorch's default initialisation of each layer.

    nanoGPT's training starts from smaller weights; these have learned as little.
    """
    fresh = deepcopy(network).cpu()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for module in fresh.modules():
            if callable(redraw := getattr(module, "reset_parameters", None)):
                redraw()
    return fresh.to(next(network.parameters()).device).eval()


def natural_distances(natural: Tensor, states: Tensor) -> tuple[float, float]:
    """Median distances of states (n, d), and of natural states (N, d), to the nearest other natural state.

    The unit is the root mean squared deviation of natural states from their mean.
    """
    unit = (natural - natural.mean(dim=0)).square().sum(dim=1).mean().sqrt()
    own = torch.cdist(natural[: len(states)], natural)
    own.fill_diagonal_(torch.inf)
    foreign = torch.cdist(states.to(natural), natural)
    return float(foreign.amin(dim=1).median() / unit), float(own.amin(dim=1).median() / unit)
