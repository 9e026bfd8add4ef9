"""Search a subspace for each causal variable, and measure every control beside it."""

import math
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
import torch
from torch import Tensor

from ..bits import Array
from ..errors import bad_value
from ..models.references import reference, written_for
from ..tasks import Add
from .causal_model import CausalModel
from .counterfactuals import balanced_pairs, operand_pools
from .das import SPREAD, best_of, start_directions
from .erasure import Whitened, random_basis, whiten
from .hooked import Hooked
from .interventions import Position, Subspace
from .trials import Activations, Trials

ENOUGH = 0.02  # the search takes the smallest rank whose score is this near to the best
OVERLAP = 0.5  # of a control with the found subspace, at most: every direction is at least 45 degrees away from it
DRAWS = 50  # for each sign-flipped control that is asked for
COMPETING = ("iia_random_max", "iia_flipped_max", "iia_untrained")
"""Controls in the network itself."""
DECOYS = dict.fromkeys(("sum", "sum_mod"), ("prefix_carry_decoy", 1))
DECOYS |= dict.fromkeys(("carry", "xor", "a_bit", "b_bit"), ("erd_decoy", 2))
"""Variable -> a decoy and its variant. It stores the variable, or for xor and sum_mod what they are made of, and
computes the answer from others. Since it holds these others too, a search can still succeed."""
STORED_AT = "dec.4"
"""All of these are stored behind this layer; the answer comes in layer 6."""


@dataclass(frozen=True)
class SearchConfig:
    """Numbers of counterfactual pairs (the three sets share no operand), steps of the optimiser and pairs per step.

    ``random`` is the number of random and of sign-flipped subspaces, ``controlled`` the test pairs that these see.
    """

    train: int = 1000
    validation: int = 500
    test: int = 500
    steps: int = 50
    batch: int = 128
    random: int = 20
    controlled: int = 200


@dataclass(frozen=True)
class Found:
    """A subspace of the given rank, and the effect of its interchange on test pairs.

    ``train, validation, iia`` are balanced accuracies (`trials.balanced`) on each set; ``no_intervention`` and
    ``full_patch``, with nothing and with the whole activation interchanged, on test pairs. ``chosen`` marks the
    smallest rank within 0.02 of the best on the validation pairs. ``span`` is the number of axes along which real
    activations vary; if span <= rank, every subspace is the whole space. Of the test answers that should change to the
    source's own answer, ``strength`` and ``strength_full`` are the shares that do, with the subspace and with the whole
    activation; the latter should be at least as large. ``controls`` are those of `Search.controls`.
    """

    rank: int
    span: int
    subspace: Subspace
    chosen: bool
    train: float
    validation: float
    iia: float
    no_intervention: float
    full_patch: float
    strength: float
    strength_full: float
    controls: dict[str, float] = field(default_factory=dict)

    @property
    def best_control(self) -> float:
        """The highest accuracy among random, sign-flipped and untrained subspaces."""
        return float(np.nanmax([self.controls.get(name, math.nan) for name in COMPETING]))

    @property
    def decoy(self) -> float:
        """The accuracy in a network that computes the answer otherwise; NaN if there is none."""
        return self.controls.get("iia_decoy", math.nan)


class Search:
    """Searches in one network, on the same pairs for every site.

    Half of the operands' values go to training pairs, a quarter each to validation and test. In a random half of the
    pairs the variable's interchange changes the predicted answer; in the others it does not.

    Args:
        seed: of the pairs, the searches and the controls.
        rows: of the task's examples, those to use; None for all.
    """

    def __init__(
        self,
        model: Hooked,
        causal_model: CausalModel,
        sites: Sequence[str],
        config: SearchConfig | None = None,
        seed: int = 0,
        rows: Array | None = None,
    ) -> None:
        self.model, self.causal_model, self.sites, self.seed, self.rows = model, causal_model, sites, seed, rows
        self.config = config or SearchConfig()
        rng = np.random.default_rng(seed)
        pools = operand_pools(causal_model.task, (0.5, 0.25, 0.25), rng)
        self.pools = pools if rows is None else [np.intersect1d(pool, rows) for pool in pools]
        sizes = (self.config.train, self.config.validation, self.config.test)
        self.bases = [pool[rng.integers(len(pool), size=n)] for pool, n in zip(self.pools, sizes, strict=True)]
        self.activations = Activations(model, causal_model, sites, np.concatenate(self.pools))
        self._place: tuple[str, Position] | None = None  # of `x`, real activations, whitened

    @cached_property
    def blank(self) -> "Search":
        fresh = untrained(self.model, self.seed)
        return Search(fresh, self.causal_model, self.sites, self.config, self.seed, self.rows)

    def at(self, site: str, position: Position, variable: str, ranks: Sequence[int]) -> list[Found]:
        """The best subspaces of the given ranks for a variable, with their controls.

        Args:
            position: the one that is interchanged, and in the decoder judged by its own token of the answer; None for
                all positions of the site together, judged by the whole answer.

        Raises:
            UserError: for a variable that is not there, a site that does not vary at the position, or ranks all of them
                above the number of directions in which it does.
        """
        train, validation, test = sets = self.trials(site, position, variable)
        searched, best = self._chosen(sets, variable, ranks)
        return [
            Found(
                rank=rank,
                span=self.x.rank,
                subspace=subspace,
                chosen=rank == best,
                train=train.accuracy(subspace),
                validation=validation.accuracy(subspace),
                iia=test.accuracy(subspace),
                no_intervention=test.no_intervention(),
                full_patch=test.accuracy(None),
                strength=test.strength(subspace),
                strength_full=test.strength(None),
                controls=self.controls(test, variable, subspace, rank == best),
            )
            for rank, subspace in searched.items()
        ]

    def best(self, site: str, position: Position, variable: str, ranks: Sequence[int]) -> Subspace:
        """The chosen subspace without its controls; arguments as in `at`."""
        searched, rank = self._chosen(self.trials(site, position, variable), variable, ranks)
        return searched[rank]

    def score(self, site: str, position: Position, variable: str, rank: int) -> float:
        """Test accuracy of the best subspace of a rank, or of the largest possible one."""
        sets = self.trials(site, position, variable)
        return sets[2].accuracy(self._searched(sets, variable, min(rank, self.x.rank)))

    def controls(self, test: Trials, variable: str, subspace: Subspace, chosen: bool) -> dict[str, float]:
        """Scores of interchanges that cannot transfer the variable, and distances to natural states.

        ``iia_random`` (and ``_max``): subspaces of the same rank in the span of real activations. ``iia_flipped`` (and
        ``_max``): the subspace with random signs along the principal axes, NaN where these give no other subspace.
        ``distance``, ``distance_natural``: of patched and of natural states to the nearest natural one. For the chosen
        rank also ``iia_untrained``: a search in an untrained network; ``iia_decoy``: one in a network written by hand
        that computes the answer from other variables, where there is one; and ``train_arbitrary``: the score on
        training pairs of a search for an arbitrary digit of each example.
        """
        few, number = test.part(slice(self.config.controlled)), self.config.random
        randoms = [few.accuracy(other) for other in random_subspaces(self.x, subspace.rank, number, self.seed)]
        flipped = [few.accuracy(other) for other in sign_flipped(self.x, subspace, number, self.seed)]
        site, position = test.site, test.position
        patched = subspace.exchange(self.activations.flat(site, few.data.base, position), few.source.flatten(1))
        natural = self.activations.flat(site, np.concatenate(self.pools), position)
        distance, own = natural_distances(natural, patched)
        found = {"distance": distance, "distance_natural": own}
        for kind, scores in (("random", randoms), ("flipped", flipped)):
            found[f"iia_{kind}"] = float(np.mean(scores)) if scores else math.nan
            found[f"iia_{kind}_max"] = max(scores, default=math.nan)
        if chosen:
            found["iia_untrained"] = self.blank.score(site, position, variable, subspace.rank)
            if written_for(self.causal_model.task) and variable in DECOYS:
                found["iia_decoy"] = in_decoy(variable, position, subspace.rank, self.config, self.seed)
            labels = self.trials(site, position, variable, arbitrarily=True)
            found["train_arbitrary"] = labels[0].accuracy(self._searched(labels, variable, subspace.rank))
        return found

    def trials(self, site: str, position: Position, variable: str, arbitrarily: bool = False) -> list[Trials]:
        """Training, validation and test pairs of a variable, or of an arbitrary digit of each example in its place."""
        if (site, position) != self._place:
            self.x, self._place = whiten(self.activations.flat(site, self.pools[0], position), SPREAD), (site, position)
        rng, causal_model = np.random.default_rng(self.seed + 1), self.causal_model
        if arbitrarily:
            causal_model, variable = arbitrary(causal_model, rng), "label"
        digits = [self.activations.digit(token) for token in self.activations.read_at(site, position)]
        drawn = [
            balanced_pairs(causal_model, variable, base, pool, rng, digits)
            for base, pool in zip(self.bases, self.pools, strict=True)
        ]
        return [Trials(self.activations, data, site, position, variable) for data in drawn]

    def _searched(self, sets: Sequence[Trials], variable: str, rank: int) -> Subspace:
        starts = start_directions(self.x, sets[0], rank, self.pools[0], variable)
        batches = sets[0].batches(self.config.batch)
        return best_of(batches, self.x, rank, starts, self.config.steps, self.seed, sets[1])

    def _chosen(self, sets: Sequence[Trials], variable: str, ranks: Sequence[int]) -> tuple[dict[int, Subspace], int]:
        site, span = sets[0].site, self.x.rank
        if not span:
            raise bad_value("probe.site", site, f"a site that depends on the operands at position {sets[0].position}")
        if min(ranks) > span:
            raise bad_value("probe.rank", min(ranks), f"at most {span}, the directions in which {site} varies")
        searched = {rank: self._searched(sets, variable, rank) for rank in ranks if rank <= span}
        scores = {rank: sets[1].accuracy(subspace) for rank, subspace in searched.items()}
        return searched, min(rank for rank in scores if scores[rank] >= max(scores.values()) - ENOUGH)


@lru_cache(maxsize=64)
def in_decoy(variable: str, position: Position, rank: int, config: SearchConfig, seed: int) -> float:
    """The score of a search in a network that computes sums from other variables (`DECOYS`), behind `STORED_AT`."""
    return _of_decoy(*DECOYS[variable], config, seed).score(STORED_AT, position, variable, rank)


@lru_cache(maxsize=4)
def _of_decoy(name: str, variant: int, config: SearchConfig, seed: int) -> Search:
    model = Hooked(reference(name, variant).network, task=Add())
    return Search(model, CausalModel(Add()), [STORED_AT], config, seed)


def arbitrary(causal_model: CausalModel, rng: np.random.Generator) -> CausalModel:
    """A causal model whose variable ``label`` is random: the answer's digits are its own plus the rest's."""
    task = causal_model.task
    answer = causal_model.table["answer"]
    labels = rng.integers(task.base, size=answer.shape)

    def looked_up(table: Array, operands: Array) -> Array:
        return table[np.ravel_multi_index(tuple(operands.T), task.shape)]

    return CausalModel(
        task,
        {
            "label": lambda operands: looked_up(labels, operands),
            "rest": lambda operands: looked_up(answer - labels, operands),
            "answer": lambda label, rest: (label + rest) % task.base,
        },
    )


def random_subspaces(x: Whitened, rank: int, number: int, seed: int) -> Iterator[Subspace]:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(number):
        yield Subspace(x.axes @ random_basis(x.rank, generator)[:, :rank].to(x.axes))


def sign_flipped(x: Whitened, subspace: Subspace, number: int, seed: int) -> Iterator[Subspace]:
    """The subspace with the signs of its coordinates along the principal axes drawn at random.

    The covariance of the activations is diagonal in these coordinates, so these subspaces have the original's rank and
    variance. Those nearer to it than 45 degrees are drawn anew; there are fewer than ``number`` if such flips are rare.
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


def untrained(model: Hooked, seed: int) -> Hooked:
    """The same architecture with fresh weights, from PyTorch's default initialisation of each layer."""
    fresh = deepcopy(model)
    fresh.network.cpu()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for module in fresh.network.modules():
            if callable(redraw := getattr(module, "reset_parameters", None)):
                redraw()
    fresh.network.to(model.device)
    return fresh


def natural_distances(natural: Tensor, states: Tensor) -> tuple[float, float]:
    """Median distances of states (n, d), and of natural states (N, d), to the nearest other natural state.

    The unit is the root mean squared deviation of natural states from their mean.
    """
    unit = (natural - natural.mean(dim=0)).square().sum(dim=1).mean().sqrt()
    own = torch.cdist(natural[: len(states)], natural)
    own.fill_diagonal_(torch.inf)
    foreign = torch.cdist(states.to(natural), natural)
    return float(foreign.amin(dim=1).median() / unit), float(own.amin(dim=1).median() / unit)
