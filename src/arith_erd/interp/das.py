"""Distributed alignment search: the subspace that carries a causal variable (Geiger et al., 2023).

Its directions are orthonormal and lie in the span of real activations. A search beyond that span could find states that
no input produces (Makelov et al., 2023). `interp.das_controls` measures the controls for such a search.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from ..checks import require_integer
from ..digits import Array
from ..errors import UserError, bad_value, first_line
from ..seeds import MAX_SEED
from ..system.isolation import isolated, own_generator
from .causal_model import CausalModel
from .counterfactuals import CounterfactualDataset
from .erasure import MIN_RELATIVE_DEVIATION, mean_directions, whiten
from .hooked import Hooked, finite_cache, select_position
from .interchange_accuracy import PairEvaluation, prepare_pairs
from .interventions import Features, Position, Subspace
from .tensors import finite_matrix

SUBSPACE_LEARNING_RATE = 0.05  # roughly in radians
FEATURIZER_LEARNING_RATE = 0.003
Space = TypeVar("Space", Subspace, Features)


@dataclass(frozen=True)
class DASConfig:
    """Sizes of a search. Its three sets of counterfactual pairs share no operand."""

    num_train: int = 1000
    num_validation: int = 500
    num_test: int = 500
    steps: int = 50
    batch_size: int = 128  # pairs per step
    num_controls: int = 20  # random subspaces, and as many sign-flipped ones
    num_control_pairs: int = 200  # test pairs that score the controls


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
    featurizer: nn.Module | None = None,
) -> Subspace | Features:
    """Find the subspace whose interchange acts most like the interchange of a variable.

    Accuracy on the training pairs says little. With a ``featurizer`` even an untrained network can follow any variable
    on them (Sutter et al., 2025). So compare it with the accuracy on pairs of other operands: split the pairs with
    ``train, test = data.split()`` and call `interchange_accuracy` on both. A gap means that the search overfits.

    Args:
        train: pairs to learn from, also used to choose the best of several starts. Each of the ``steps`` takes at least
            ``batch_size`` pairs, or all if there are fewer.
        position: an index or a name, as in `Replace`, also of the prompt. None or ``all`` takes all positions of the
            site together; in a decoder-only network, all of the answer.
        variable: a variable of the causal model; by default the one that the pairs vary.
        featurizer: an invertible module for a non-linear search, such as `CouplingLayers`. It maps activations (N, d)
            to features (N, d), and its method ``inverse`` maps them back. The search trains a copy, so that the
            interchange of its first ``rank`` features acts like the variable's, and returns it as `Features`.

    Raises:
        UserError: for an unknown site, position or variable, a position where no answer should change, a rank beyond
            the span of real activations, or a featurizer that is not invertible.
    """
    for name, number, least in (("rank", rank, 1), ("steps", steps, 0), ("batch_size", batch_size, 1)):
        require_integer(name, number, least)
    require_integer("seed", seed, 0, MAX_SEED)
    train, variable = prepare_pairs(model, causal_model, train, variable)
    position = None if position == "all" else position
    rows = np.unique(np.concatenate([train.base, train.source]))
    config = DASConfig(steps=steps, batch_size=batch_size)
    search = DASSearch(model, causal_model, site, position, rows, config, seed)
    if rank > search.whitened.rank:
        at = "all positions" if position is None else f"position {position}"
        accepted = f"at most {search.whitened.rank}, the rank of {site}'s activations at {at}"
        raise bad_value("rank", rank, accepted)
    if math.isnan(search.evaluation(train, variable).no_intervention()):
        where = "" if train.digit is None else f", such as {model.task.answer_positions[train.digit]}"
        accepted = f"one where the interchange of {variable} changes an answer of these pairs{where}"
        raise bad_value("position", position, accepted)
    if featurizer is None:
        return search.fit(train, train, variable, rank)
    _require_invertible(Features(featurizer, rank), search.activations)
    if not [*featurizer.parameters()]:
        raise UserError("featurizer: has no parameters to train; without a search use Features(featurizer, rank)")
    return search.fit_features(train, variable, rank, featurizer)


@dataclass(eq=False)
class DASSearch:
    """Searches at a site and position of a network, in the span of its activations on the examples ``rows`` (N,).

    ``activations`` (N, d) are the activations on these rows; without a ``position`` all positions are concatenated.
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
        self.activations, self.whitened = selected, whiten(selected, MIN_RELATIVE_DEVIATION)
        self.scored_positions = positions.scored(self.position, task)
        self.at_prompt = self.position in task.prompt_names or positions.hold_only_prompt(task)
        self.digits = [task.answer_digits[t] for t in self.scored_positions]

    def evaluation(self, data: CounterfactualDataset, variable: str) -> PairEvaluation:
        return PairEvaluation(self.model, data, self.site, self.position, variable)

    def fit(
        self, train: CounterfactualDataset, validation: CounterfactualDataset, variable: str, rank: int
    ) -> Subspace:
        """The best subspace on the validation pairs, among searches from several starts and the starts themselves."""
        batches = self._batches(train, variable)
        options = product(self.initial_directions(variable, rank), (self.config.steps, 0))
        candidates = [self.optimise_subspace(batches, rank, start, steps) for start, steps in options]
        return self._best(candidates, validation, variable)

    def fit_features(self, train: CounterfactualDataset, variable: str, rank: int, featurizer: nn.Module) -> Features:
        """An invertible module, trained or unchanged, whichever is more accurate on the training pairs."""
        batches = self._batches(train, variable)
        candidates = [self.optimise_features(batches, rank, featurizer, steps) for steps in (self.config.steps, 0)]
        return self._best(candidates, train, variable)

    def _batches(self, train: CounterfactualDataset, variable: str) -> list[PairEvaluation]:
        rows = np.array_split(np.arange(len(train)), max(1, len(train) // self.config.batch_size))
        return [self.evaluation(train.part(part), variable) for part in rows]

    def _best(self, candidates: list[Space], validation: CounterfactualDataset, variable: str) -> Space:
        on_validation = self.evaluation(validation, variable)
        return max(candidates, key=lambda space: np.nan_to_num(on_validation.accuracy(space)))

    def optimise_subspace(self, batches: list[PairEvaluation], rank: int, start: Tensor, steps: int) -> Subspace:
        """Train a subspace in the span of real activations, so that its interchange has the predicted outcomes.

        It starts from directions (d, j). If j < rank, random ones are added; if j > rank, the last ones are dropped.
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
        _optimise(rotation, lambda: Subspace(axes @ rotation.weight), batches, steps, SUBSPACE_LEARNING_RATE)
        return Subspace((axes @ rotation.weight).detach())

    def optimise_features(self, batches: list[PairEvaluation], rank: int, start: nn.Module, steps: int) -> Features:
        """Train a copy of an invertible module, so that the interchange of its features has the predicted outcomes."""
        source = batches[0].source
        dtype = torch.promote_types(source.dtype, torch.float32)
        found = Features(copy.deepcopy(start), rank).to(source.device, dtype).train().requires_grad_(True)
        _optimise(found, lambda: found, batches, steps, FEATURIZER_LEARNING_RATE)
        return found.eval().requires_grad_(False)

    def variable_values(self, variable: str) -> Tensor:
        """The variable's values (N, k) on ``rows``; if only one token is scored, just the column of its digit."""
        values = torch.as_tensor(self.causal_model.table[variable][self.rows]).to(self.whitened.white)
        if values.dim() == 1:
            return values[:, None]
        return values if len(self.scored_positions) > 1 else values[:, [self.digits[0]]]

    def initial_directions(self, variable: str, rank: int) -> list[Tensor]:
        """The directions that covary with the variable and, if it has many values, with the answer.

        First we subtract the part of the variable that the prefix predicts linearly: a position also holds the prefix
        tokens that it has read, and they covary with the sum. Prompt positions have read no prefix.
        """
        tokens = self.model.task.to_tokens(self.causal_model.table["answer"][self.rows])
        answer = torch.as_tensor(tokens, device=self.model.device).double()
        values = self.variable_values(variable).to(answer)
        num_read = 0 if self.at_prompt else max(self.scored_positions)
        prefix = torch.cat([answer[:, :num_read], torch.ones_like(answer[:, :1])], dim=1)
        residual = values - prefix @ torch.linalg.lstsq(prefix, values).solution
        variable_directions = mean_directions(self.whitened, residual, check=False)
        if values.max() <= 1:  # a bit
            return [variable_directions]
        token_directions = mean_directions(self.whitened, answer[:, self.scored_positions], check=False)
        directions = [variable_directions, token_directions]
        return directions if rank == 1 else [torch.cat(directions, dim=1)]


def _optimise(
    module: nn.Module,
    space: Callable[[], Subspace | Features],
    batches: list[PairEvaluation],
    steps: int,
    learning_rate: float,
) -> None:
    """Train the module behind ``space()``. Each step of Adam takes the next batch; the learning rate falls to 0."""
    optimizer = torch.optim.Adam(module.parameters(), lr=learning_rate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=steps)
    for step in range(steps):
        batch = batches[step % len(batches)]
        loss = F.cross_entropy(batch.logits(space()).flatten(0, 1), batch.expected.flatten())
        optimizer.zero_grad()
        loss.backward(inputs=list(module.parameters()))  # no gradients for the network's weights
        optimizer.step()
        schedule.step()


@torch.no_grad()
def _require_invertible(features: Features, x: Tensor) -> None:
    """Raise a `UserError` unless the module restores activations x (N, d), within 1% of their largest number."""
    try:
        error = float((features.interchange(x, x) - x).abs().max() / x.abs().max())
        received = "" if error <= 0.01 else f"its inverse misses activations by up to {error:.0%}"
    except (RuntimeError, TypeError) as problem:
        received = first_line(problem)
    if received:
        raise UserError(f"featurizer: {received}; expected an invertible module for activations {tuple(x.shape)}")


class CouplingLayers(nn.Module):
    """A fixed rotation, then layers that add a learned function of one half of the features to the other half.

    With it as ``featurizer``, `fit_das` can search for variables that no linear subspace carries. Subtraction undoes
    each layer, so the whole is invertible (RevNet: Gomez et al., 2017, 1707.04585). At the start it is just the
    rotation, drawn from PyTorch's global generator.

    Args:
        size: the size d of the activations; for all positions together, positions times channels.
        directions: orthonormal columns (d, r), such as ``subspace.directions``; the first r features start as these.
    """

    def __init__(self, size: int, num_layers: int = 4, hidden: int = 128, directions: Tensor | None = None) -> None:
        super().__init__()
        for name, number in (("size", size), ("num_layers", num_layers), ("hidden", hidden)):
            require_integer(name, number, 1 if name != "size" else 2)
        columns = torch.randn(size, size)
        if directions is not None:
            directions = finite_matrix("CouplingLayers", directions, f"directions ({size}, r)", (2,), size).to(columns)
            columns = torch.cat([directions, columns], dim=1)[:, :size]
        basis = torch.linalg.qr(columns)[0]
        if directions is not None:  # QR may turn their signs
            basis[:, : directions.shape[1]] = directions
        self.basis = nn.Buffer(basis)
        self.first = (size + 1) // 2
        self.layers = nn.ModuleList()
        for layer in range(num_layers):
            read, written = (size - self.first, self.first)[:: 1 if layer % 2 == 0 else -1]
            last = nn.Linear(hidden, written)
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)
            self.layers.append(nn.Sequential(nn.Linear(read, hidden), nn.ReLU(), last))

    def forward(self, x: Tensor) -> Tensor:
        """Activations (N, d) -> features (N, d)."""
        halves = [*(x @ self.basis).split(self.first, dim=1)]
        for i, layer in enumerate(self.layers):
            halves[i % 2] = halves[i % 2] + layer(halves[1 - i % 2])
        return torch.cat(halves, dim=1)

    def inverse(self, features: Tensor) -> Tensor:
        """Features (N, d) -> activations (N, d)."""
        halves = [*features.split(self.first, dim=1)]
        for i, layer in reversed([*enumerate(self.layers)]):
            halves[i % 2] = halves[i % 2] - layer(halves[1 - i % 2])
        return torch.cat(halves, dim=1) @ self.basis.T
