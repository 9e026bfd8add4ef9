"""Distributed alignment search: the directions that carry a causal variable (Geiger et al., 2023).

The search exchanges the part of an embedding in a subspace between two runs, and learns the subspace whose exchange
gives the answers that the causal model predicts. The directions are orthonormal
(`torch.nn.utils.parametrizations.orthogonal`) and lie in the span of real embeddings. A search beyond that span could
find states that no input leads to (Makelov et al., 2023).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from .erasure import Whitened, mean_projection
from .interchange import Patched, Position, Subspace

SPREAD = 1e-3  # relative to the first: axes that vary less are left out of the span of real embeddings


@dataclass(frozen=True)
class Lesson:
    """A batch of couples whose exchange has a predicted outcome; it can be run repeatedly.

    Attributes:
        patched: the bases' runs.
        base, source: embeddings (n, d).
        position: where they go.
        read: positions of the answer that are read.
        expected: tokens (n, len(read)) that the causal model predicts.
    """

    patched: Patched
    base: Tensor
    source: Tensor
    position: Position
    read: Sequence[int]
    expected: Tensor

    def logits(self, subspace: Subspace | None) -> Tensor:
        """Logits (n, len(read), V) with the subspace exchanged, or with the whole embedding; gradients pass."""
        value = self.source if subspace is None else subspace.exchange(self.base, self.source)
        return self.patched(value, self.position)[:, list(self.read)]

    @torch.no_grad()
    def tokens(self, subspace: Subspace | None) -> Tensor:
        """The likeliest tokens (n, len(read))."""
        return self.logits(subspace).argmax(dim=-1)


def align(
    lessons: Sequence[Lesson], x: Whitened, rank: int, start: Tensor, steps: int = 60, lr: float = 0.05, seed: int = 0
) -> Subspace:
    """Learn a subspace whose exchange has the predicted outcomes.

    Args:
        lessons: batches; each step takes one of them, in turn.
        x: real embeddings (N, d), whitened with the tolerance `SPREAD`; the directions lie in the span of their axes.
        rank: of the subspace.
        start: directions (d, j) to start from; random ones are added if j < rank, the last are dropped if j > rank.
        steps: of Adam, with a learning rate that falls to 0.
        lr: the first learning rate, roughly in radians.
        seed: of all random numbers.

    Raises:
        ValueError: for a rank beyond the number of axes.
    """
    if not 1 <= rank <= x.rank:
        raise ValueError(f"rank {rank}: expected from 1 to {x.rank}, the axes along which the embeddings vary")
    axes = x.axes.to(lessons[0].base)  # (d, r)
    with torch.random.fork_rng(devices=[]):  # the parametrization completes the columns to a basis at random
        torch.manual_seed(seed)
        turned = _Turned(_start(axes.T @ start.to(axes), rank, seed).cpu()).to(axes.device)
    optimizer = torch.optim.Adam(turned.parameters(), lr=lr)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=steps)
    for step in range(steps):
        lesson = lessons[step % len(lessons)]
        logits = lesson.logits(Subspace(axes @ turned.weight))
        loss = F.cross_entropy(logits.flatten(0, 1), lesson.expected.flatten())
        optimizer.zero_grad()
        loss.backward(inputs=list(turned.parameters()))  # no gradients for the network's weights
        optimizer.step()
        schedule.step()
    return Subspace((axes @ turned.weight).detach())


class _Turned(nn.Module):
    """Learnable orthonormal columns (r, k)."""

    weight: Tensor

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(start)
        parametrizations.orthogonal(self, "weight", orthogonal_map="householder")
        self.weight = start


def _start(directions: Tensor, rank: int, seed: int) -> Tensor:
    """Orthonormal columns (r, rank) from the given directions, cut or completed at random to the rank."""
    generator = torch.Generator().manual_seed(seed)
    random = torch.randn(len(directions), rank, generator=generator, dtype=torch.float64).to(directions)
    return torch.linalg.qr(torch.cat([directions, random], dim=1)[:, :rank])[0]


def covarying(x: Whitened, z: Tensor) -> Tensor:
    """Directions (d, j) in which embeddings covary with the columns of z (N, k), as the start of a search."""
    return mean_projection(x, z).left


def balanced(tokens: Tensor, expected: Tensor, unchanged: Tensor) -> float:
    """Interchange-intervention accuracy: the mean of two, on answers that should change and on those that should not.

    Without any exchange, a network that is always right scores 0.5.

    Args:
        tokens: (n, k), the network's.
        expected: (n, k), the causal model's.
        unchanged: (n, k), right answers of the bases.
    """
    right, moved = tokens == expected, expected != unchanged
    shares = [right[which].double().mean() for which in (moved, ~moved) if which.any()]
    return float(torch.stack(shares).mean())
