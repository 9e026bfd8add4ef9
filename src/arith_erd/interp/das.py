"""Distributed alignment search: the directions that carry a causal variable (Geiger et al., 2023).

The directions are orthonormal and lie in the span of real activations. A search beyond that span could find states
that no input leads to (Makelov et al., 2023).
"""

from dataclasses import dataclass, replace
from math import isnan

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from ..bits import Array
from ..errors import bad_value, require_integer
from .causal_model import CausalModel
from .counterfactuals import CounterfactualDataset
from .erasure import SPREAD, Whitened, mean_projection, whiten
from .hooked import Hooked
from .interchange import (
    Trials,
    answer_tokens,
    at_position,
    chosen_variable,
    digit_index,
    finite_cache,
    require_same_task,
    scored_tokens,
)
from .interventions import Position, Subspace


@dataclass(frozen=True)
class DASConfig:
    """Numbers of counterfactual pairs; the three sets share no operand."""

    train: int = 1000
    validation: int = 500
    test: int = 500
    steps: int = 50
    batch: int = 128  # pairs per step
    controls: int = 20  # random subspaces, and as many sign-flipped ones
    control_pairs: int = 200  # test pairs that judge these


def fit_das(
    model: Hooked,
    causal_model: CausalModel,
    train: CounterfactualDataset,
    site: str,
    position: Position,
    variable: str | None = None,
    rank: int = 1,
    *,
    steps: int = 50,
    batch: int = 128,
    seed: int = 0,
) -> Subspace:
    """The subspace whose interchange acts most like that of a variable; `das_controls.ControlledDAS` has the controls.

    Args:
        train: pairs to learn from, in ``steps`` of at least ``batch`` pairs (of all, if there are fewer), and by which
            the best of several starts is chosen.
        position: None for all positions of the site together.
        variable: of the causal model; by default the one that the pairs vary.

    Raises:
        UserError: for a site, position or variable that is not there, a position where no answer should change, or a
            rank beyond the span of real activations.
    """
    require_same_task(model, causal_model, train)
    for name, number, least in (("rank", rank, 1), ("steps", steps, 0), ("batch", batch, 1)):
        require_integer(name, number, least)
    train = replace(train, causal_model=causal_model)
    variable = chosen_variable(train, variable)
    rows = np.unique(np.concatenate([train.base, train.source]))
    config = DASConfig(steps=steps, batch=batch)
    alignment = DASSearch(model, causal_model, site, position, rows, config, seed)
    if rank > alignment.x.rank:
        accepted = f"at most {alignment.x.rank}, the directions in which {site} varies at position {position}"
        raise bad_value("rank", rank, accepted)
    if isnan(alignment.trials(train, variable).no_intervention()):
        accepted = f"one where the interchange of {variable} changes an answer of these pairs"
        raise bad_value("position", position, accepted)
    return alignment.fit(train, train, variable, rank)


class DASSearch:
    """Searches at a site and position of a network, in the span of its activations of ``rows`` (N,).

    Attributes:
        x: these activations (N, d), whitened; all positions concatenated if ``position`` is None.
        scored: the tokens of the answer that judge an interchange here.
    """

    def __init__(
        self,
        model: Hooked,
        causal_model: CausalModel,
        site: str,
        position: Position,
        rows: Array,
        config: DASConfig,
        seed: int,
    ) -> None:
        self.model, self.causal_model, self.site, self.position = model, causal_model, site, position
        self.rows, self.config, self.seed = rows, config, seed
        activations = finite_cache(model, causal_model.examples[rows], [site])[site]
        self.x = whiten(at_position(model, activations, site, position), SPREAD)
        self.scored = scored_tokens(model, site, position, activations)

    def trials(self, data: CounterfactualDataset, variable: str) -> Trials:
        return Trials(self.model, data, self.site, self.position, variable)

    def fit(
        self, train: CounterfactualDataset, validation: CounterfactualDataset, variable: str, rank: int
    ) -> Subspace:
        """The best subspace on the validation pairs, of searches from several starts and of the starts themselves."""
        parts = np.array_split(np.arange(len(train)), max(1, len(train) // self.config.batch))
        batches, judge = [self.trials(train.part(rows), variable) for rows in parts], self.trials(validation, variable)
        starts = self.starts(variable, rank)
        candidates = [
            learn_subspace(batches, self.x, rank, start, steps, seed=self.seed)
            for start in starts
            for steps in (self.config.steps, 0)
        ]
        return max(candidates, key=lambda subspace: np.nan_to_num(judge.accuracy(subspace)))

    def values(self, variable: str) -> Tensor:
        """The variable (N, k) in the examples of x; where one token judges, only the column of its digit."""
        values = torch.as_tensor(self.causal_model.table[variable][self.rows]).to(self.x.white)
        if values.dim() == 1:
            return values[:, None]
        return values[:, [digit_index(self.model.task, self.scored[0])]] if len(self.scored) == 1 else values

    def starts(self, variable: str, rank: int) -> list[Tensor]:
        """The directions that covary with the variable and, if it has many values, with the answer.

        Only what the answer's prefix does not predict of the variable counts: a position also holds the tokens that it
        read, and they covary with the sum.
        """
        answer = answer_tokens(self.model, self.causal_model.table["answer"][self.rows]).double()
        values = self.values(variable).to(answer)
        prefix = torch.cat([answer[:, : max(self.scored)], torch.ones_like(answer[:, :1])], dim=1)
        number = mean_projection(self.x, values - prefix @ torch.linalg.lstsq(prefix, values).solution).left
        if values.max() <= 1:  # a bit
            return [number]
        tokens = mean_projection(self.x, answer[:, self.scored]).left
        return [number, tokens] if rank == 1 else [torch.cat([number, tokens], dim=1)]


def learn_subspace(
    batches: list[Trials], x: Whitened, rank: int, start: Tensor, steps: int, lr: float = 0.05, seed: int = 0
) -> Subspace:
    """Learn a subspace, in the span of the axes of x, whose interchange has the predicted outcomes.

    It starts from directions (d, j); random ones are added if j < rank, the last are dropped if j > rank. Each step of
    Adam takes the next batch; the learning rate falls from ``lr``, roughly in radians, to 0.
    """
    axes = x.axes.to(batches[0].source)  # (d, r)
    random = torch.randn(x.rank, rank, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(axes)
    columns = torch.linalg.qr(torch.cat([axes.T @ start.to(axes), random], dim=1)[:, :rank])[0].cpu()
    with torch.random.fork_rng(devices=[]):  # the parametrization completes the columns to a basis at random
        turned = nn.Linear(rank, x.rank, bias=False)  # its weight is (r, rank), with orthonormal columns
        torch.manual_seed(seed)
        turned.weight = nn.Parameter(columns)
        parametrizations.orthogonal(turned, orthogonal_map="householder")
        turned.weight = columns  # the parametrization takes a tensor
    turned.to(axes.device)
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
