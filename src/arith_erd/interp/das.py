"""Distributed alignment search: the subspace that carries a causal variable (Geiger et al., 2023).

Its directions are orthonormal and lie in the span of real activations. A search beyond that span could find states that
no input produces (Makelov et al., 2023). `interp.das_controls` measures what such a search must be compared with.
"""

import math
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from ..digits import Array
from ..errors import bad_value, require_integer
from ..system.isolation import isolated, own_generator
from .causal_model import CausalModel
from .counterfactuals import CounterfactualDataset
from .erasure import MIN_RELATIVE_DEVIATION, mean_projection, whiten
from .hooked import Hooked
from .interchange_accuracy import PairEvaluation, finite_cache, prepare_pairs, select_position
from .interventions import Position, Subspace


@dataclass(frozen=True)
class DASConfig:
    """Numbers of counterfactual pairs; the three sets share no operand."""

    num_train: int = 1000
    num_validation: int = 500
    num_test: int = 500
    steps: int = 50
    batch_size: int = 128  # pairs per step
    num_controls: int = 20  # random subspaces, and as many sign-flipped ones
    num_control_pairs: int = 200  # test pairs on which these are scored


@isolated()
def fit_das(
    model: Hooked,
    causal_model: CausalModel,
    train: CounterfactualDataset,
    site: str,
    position: Position,
    variable: str | None = None,
    rank: int = 1,
    *,
    steps: int = DASConfig.steps,
    batch_size: int = DASConfig.batch_size,
    seed: int = 0,
) -> Subspace:
    """Find the subspace whose interchange acts most like that of a variable.

    Args:
        train: pairs to learn from, also used to choose the best of several starts. Each of the ``steps`` takes at least
            ``batch_size`` pairs, or all if there are fewer.
        position: an index or a name, as in `Replace`, of the prompt too; None or ``all`` for all positions of the site
            together, which in a decoder-only network are those of the answer.
        variable: a variable of the causal model; by default the one that the pairs vary.

    Raises:
        UserError: for an unknown site, position or variable, a position where no answer should change, or a rank beyond
            the span of real activations.
    """
    for name, number, least in (("rank", rank, 1), ("steps", steps, 0), ("batch_size", batch_size, 1)):
        require_integer(name, number, least)
    train, variable = prepare_pairs(model, causal_model, train, variable)
    position = None if position == "all" else position
    rows = np.unique(np.concatenate([train.base, train.source]))
    config = DASConfig(steps=steps, batch_size=batch_size)
    search = DASSearch(model, causal_model, site, position, rows, config, seed)
    if rank > search.whitened.rank:
        at = "all positions" if position is None else f"position {position}"
        accepted = f"at most {search.whitened.rank}, the directions in which {site} varies at {at}"
        raise bad_value("rank", rank, accepted)
    if math.isnan(search.evaluation(train, variable).no_intervention()):
        where = "" if train.digit is None else f", as {model.task.answer_positions[train.digit]} is"
        accepted = f"one where the interchange of {variable} changes an answer of these pairs{where}"
        raise bad_value("position", position, accepted)
    return search.fit(train, train, variable, rank)


@dataclass(eq=False)
class DASSearch:
    """Searches at a site and position of a network, in the span of its activations on the examples ``rows`` (N,).

    ``whitened`` are these activations (N, d); all positions concatenated if ``position`` is None.
    """

    model: Hooked
    causal_model: CausalModel
    site: str
    position: Position
    rows: Array
    config: DASConfig
    seed: int = 0

    def __post_init__(self) -> None:
        activations = finite_cache(self.model, self.causal_model.examples[self.rows], [self.site], True)[self.site]
        task, positions = self.model.task, self.model.site_positions(self.site, activations)
        selected = select_position(self.model, activations, self.site, self.position)
        self.whitened = whiten(selected, MIN_RELATIVE_DEVIATION)
        self.scored_positions = positions.scored(self.position, task)
        self.at_prompt = self.position in task.prompt_names or positions.hold_only_prompt(task)
        self.digits = [task.answer_digits[t] for t in self.scored_positions]

    def evaluation(self, data: CounterfactualDataset, variable: str) -> PairEvaluation:
        return PairEvaluation(self.model, data, self.site, self.position, variable)

    def fit(
        self, train: CounterfactualDataset, validation: CounterfactualDataset, variable: str, rank: int
    ) -> Subspace:
        """The best subspace on the validation pairs, among searches from several starts and the starts themselves."""
        batch_rows = np.array_split(np.arange(len(train)), max(1, len(train) // self.config.batch_size))
        batches = [self.evaluation(train.part(rows), variable) for rows in batch_rows]
        starts = self.initial_directions(variable, rank)
        options = product(starts, (self.config.steps, 0))
        candidates = [self.optimise_subspace(batches, rank, start, steps) for start, steps in options]
        on_validation = self.evaluation(validation, variable)
        return max(candidates, key=lambda subspace: np.nan_to_num(on_validation.accuracy(subspace)))

    def optimise_subspace(self, batches: list[PairEvaluation], rank: int, start: Tensor, steps: int) -> Subspace:
        """Train a subspace in the span of real activations, so that its interchange has the predicted outcomes.

        It starts from directions (d, j): random ones are added if j < rank, the last are dropped if j > rank. Each step
        of Adam takes the next batch. The learning rate, roughly in radians, falls to 0.
        """
        source = batches[0].source
        axes = self.whitened.axes.to(source.device, torch.promote_types(source.dtype, torch.float32))  # (d, r)
        generator = torch.Generator().manual_seed(self.seed)
        random = torch.randn(self.whitened.rank, rank, generator=generator, dtype=torch.float64).to(axes)
        columns = torch.linalg.qr(torch.cat([axes.T @ start.to(axes), random], dim=1)[:, :rank])[0].cpu()
        with own_generator(self.seed):  # the parametrization completes the columns to a basis at random
            rotation: Any = nn.Module()  # orthonormal columns, (r, rank)
            rotation.weight = nn.Parameter(columns)
            parametrizations.orthogonal(rotation, orthogonal_map="householder")
            rotation.weight = columns  # the parametrization takes a tensor
        rotation.to(axes.device)
        optimizer = torch.optim.Adam(rotation.parameters(), lr=0.05)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=steps)
        for step in range(steps):
            batch = batches[step % len(batches)]
            logits = batch.logits(Subspace(axes @ rotation.weight))
            loss = F.cross_entropy(logits.flatten(0, 1), batch.expected.flatten())
            optimizer.zero_grad()
            loss.backward(inputs=list(rotation.parameters()))  # no gradients for the network's weights
            optimizer.step()
            schedule.step()
        return Subspace((axes @ rotation.weight).detach())

    def variable_values(self, variable: str) -> Tensor:
        """The variable (N, k) on the same examples; if one token is scored, only the column of its digit."""
        values = torch.as_tensor(self.causal_model.table[variable][self.rows]).to(self.whitened.white)
        if values.dim() == 1:
            return values[:, None]
        return values if len(self.scored_positions) > 1 else values[:, [self.digits[0]]]

    def initial_directions(self, variable: str, rank: int) -> list[Tensor]:
        """The directions that covary with the variable and, if it has many values, with the answer.

        The part of the variable that the prefix predicts linearly is subtracted first: a position also holds the prefix
        tokens that it has read, and they covary with the sum. A position of the prompt has read none.
        """
        tokens = self.model.task.to_tokens(self.causal_model.table["answer"][self.rows])
        answer = torch.as_tensor(tokens, device=self.model.device).double()
        values = self.variable_values(variable).to(answer)
        num_read = 0 if self.at_prompt else max(self.scored_positions)
        prefix = torch.cat([answer[:, :num_read], torch.ones_like(answer[:, :1])], dim=1)
        residual = values - prefix @ torch.linalg.lstsq(prefix, values).solution
        variable_directions = mean_projection(self.whitened, residual).left
        if values.max() <= 1:  # a bit
            return [variable_directions]
        token_directions = mean_projection(self.whitened, answer[:, self.scored_positions]).left
        directions = [variable_directions, token_directions]
        return directions if rank == 1 else [torch.cat(directions, dim=1)]
