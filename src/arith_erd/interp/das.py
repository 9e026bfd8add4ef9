"""Distributed alignment search: the directions that carry a causal variable (Geiger et al., 2023).

The directions are orthonormal and lie in the span of real activations. A search beyond that span could find states
that no input leads to (Makelov et al., 2023).
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from ..bits import Array
from ..errors import bad_value
from .causal_model import CausalModel
from .counterfactuals import CounterfactualDataset
from .erasure import Whitened, mean_projection, whiten
from .hooked import Hooked
from .interchange import chosen_variable
from .interventions import Position, Subspace
from .trials import Activations, Trials

SPREAD = 1e-3  # relative to the first: axes that vary less are left out of the span of real activations


def fit_das(
    model: Hooked,
    causal_model: CausalModel,
    train: CounterfactualDataset,
    site: str,
    position: Position,
    variable: str | None = None,
    rank: int = 1,
    *,
    validation: CounterfactualDataset | None = None,
    steps: int = 50,
    batch: int = 128,
    seed: int = 0,
) -> Subspace:
    """The subspace whose interchange acts most like that of a variable. `search.Search` measures controls beside it.

    Args:
        model: with a task.
        causal_model: the hypothesis.
        train: pairs to learn from.
        site, position: where; None for all positions of the site together.
        variable: by default the one that the pairs vary.
        rank: of the subspace.
        validation: pairs by which the best of several starts is chosen; by default those of ``train``.
        steps: of the optimiser, ``batch`` pairs each.
        seed: of all random numbers.

    Raises:
        UserError: for a site, position or variable that is not there, or a rank beyond the span of real activations.
    """
    train, validation = (replace(data, model=causal_model) for data in (train, validation or train))
    variable = chosen_variable(train, variable)
    rows = np.unique(np.concatenate([train.base, train.source, validation.base, validation.source]))
    activations = Activations(model, causal_model, [site], rows)
    x = whiten(activations.flat(site, rows, position), SPREAD)
    if not 1 <= rank <= x.rank:
        raise bad_value("rank", rank, f"1 to {x.rank}, the directions in which {site} varies at position {position}")
    trials, judge = (Trials(activations, data, site, position, variable) for data in (train, validation))
    return best_of(trials.batches(batch), x, rank, start_directions(x, trials, rank, rows), steps, seed, judge)


def best_of(
    batches: Sequence[Trials], x: Whitened, rank: int, starts: Sequence[Tensor], steps: int, seed: int, judge: Trials
) -> Subspace:
    """Search from several starts; return the subspace, maybe a start, that is best on the pairs of ``judge``."""
    found = [align(batches, x, rank, start, n, seed=seed) for start in starts for n in (steps, 0)]
    return max(found, key=judge.accuracy)


def align(
    batches: Sequence[Trials], x: Whitened, rank: int, start: Tensor, steps: int = 60, lr: float = 0.05, seed: int = 0
) -> Subspace:
    """Learn a subspace whose interchange has the predicted outcomes.

    Args:
        batches: each step takes one of them, in turn.
        x: real activations (N, d), whitened with the tolerance `SPREAD`; the directions lie in the span of their axes.
        start: directions (d, j) to start from; random ones are added if j < rank, the last are dropped if j > rank.
        steps: of Adam, with a learning rate that falls from ``lr``, roughly in radians, to 0.
    """
    axes = x.axes.to(batches[0].source)  # (d, r)
    with torch.random.fork_rng(devices=[]):  # the parametrization completes the columns to a basis at random
        torch.manual_seed(seed)
        turned = _Turned(_start(axes.T @ start.to(axes), rank, seed).cpu()).to(axes.device)
    optimizer = torch.optim.Adam(turned.parameters(), lr=lr)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=steps)
    for step in range(steps):
        batch = batches[step % len(batches)]
        logits = batch.logits(Subspace(axes @ turned.weight))
        loss = F.cross_entropy(logits.flatten(0, 1), batch.expected.flatten())
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


def start_directions(x: Whitened, trials: Trials, rank: int, rows: Array, variable: str | None = None) -> list[Tensor]:
    """Where searches start: the directions that covary with the variable and, if it has many values, with the answer.

    Only what the answer's prefix does not predict of the variable counts: a position also holds the tokens that it
    read, and they covary with the sum. ``x`` are whitened activations of ``rows`` (N,), at the place of the trials.
    """
    activations, read = trials.activations, trials.read
    answer = activations.right(activations.causal_model.table["answer"][rows]).double()
    values = torch.as_tensor(activations.causal_model.table[variable or trials.variable][rows]).to(answer)
    if values.dim() == 1:
        values = values[:, None]
    elif len(read) == 1:
        values = values[:, [activations.digit(read[0])]]
    prefix = torch.cat([answer[:, : max(read)], torch.ones_like(answer[:, :1])], dim=1)
    number = mean_projection(x, values - prefix @ torch.linalg.lstsq(prefix, values).solution).left
    if values.max() <= 1:  # a bit
        return [number]
    tokens = mean_projection(x, answer[:, read]).left
    return [number, tokens] if rank == 1 else [torch.cat([number, tokens], dim=1)]
