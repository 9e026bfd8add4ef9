"""Controls of distributed alignment search: `ControlledDAS` searches for each variable and measures every control."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.linalg import subspace_angles
from torch import Tensor

from ..digits import Array
from ..errors import UserError, bad_value
from ..models.handcoded import is_handcoded_task, write_network
from ..models.network import initialise
from ..tasks import Add
from .causal_model import CausalModel
from .counterfactuals import CounterfactualDataset, sample_balanced_pairs, split_operands
from .das import DASConfig, DASSearch
from .erasure import Whitened, flip_signs, leace, project_away, random_basis
from .hooked import Hooked
from .interventions import Position, Subspace

SPLIT_SHARES = (0.5, 0.25, 0.25)  # shares of the operands' values, for training, validation and test pairs
IIA_TOLERANCE = 0.02  # the chosen rank is the smallest whose score is at most this far below the best
MIN_ANGLE = 45.0  # every direction of a control is at least this many degrees away from the found subspace
MAX_SIGN_DRAWS = 50  # attempts for each sign-flipped control
NUM_RANDOM_ANGLES = 200  # random subspaces from which the range of random angles is estimated
ANGLE_COLUMNS = ("angle_least_squares", "angle_leace", "angle_random_low", "angle_random_high")
DECOY_NETWORKS = dict.fromkeys(("sum", "sum_mod"), ("prefix_carry_decoy", 1))
DECOY_NETWORKS |= dict.fromkeys(("carry", "xor", "a_bit", "b_bit"), ("erd_decoy", 2))
"""Variable -> a decoy and its variant: it stores the variable or its inputs, but computes the answer from others."""
DECOY_SITE = "dec.4"  # here all decoys already store their variables; they write the answer in layer 6


class RankSearch(NamedTuple):
    """Subspaces and their validation accuracies by rank, and the smallest rank within `IIA_TOLERANCE` of the best."""

    subspaces: dict[int, Subspace]
    validation: dict[int, float]
    chosen: int


@dataclass(eq=False)
class ControlledDAS(DASSearch):
    """Searches at a site and position of a network, with controls and the same bases for every variable.

    In a random half of the pairs the variable's interchange changes the predicted answer; in the others it does not. A
    single position of the decoder is scored by its own token, all positions together (None) by the whole answer.
    """

    rows: Array = field(init=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        self.pools = split_operands(self.causal_model.task, SPLIT_SHARES, rng)
        if not all(map(len, self.pools)):
            task, few = self.causal_model.task, "has too few values of an operand"
            raise UserError(f"task={task.name}: {few}; expected three sets of pairs that share none")
        sizes = (self.config.num_train, self.config.num_validation, self.config.num_test)
        self.bases = [pool[rng.integers(len(pool), size=n)] for pool, n in zip(self.pools, sizes, strict=True)]
        self.rows = self.pools[0]
        super().__post_init__()

    @cached_property
    def untrained_search(self) -> "ControlledDAS | None":
        """The same search in the untrained network of this seed; None if that network cannot be made."""
        untrained = untrained_copy(self.model, self.seed)
        return replace(self, model=untrained) if untrained else None

    def evaluate(self, variable: str, ranks: Sequence[int]) -> Iterator[dict[str, Any]]:
        """For each rank yield the best ``subspace`` for a variable, and the effect of its interchange.

        ``train``, ``validation`` and ``iia`` (test) are balanced accuracies (`balanced_accuracy`) on the three sets,
        which share no operand, and ``gap`` is train - iia. ``no_intervention`` and ``full_patch`` are test accuracies
        if nothing or the whole activation is interchanged. ``chosen`` marks the smallest rank within 0.02 of the
        best on the validation set. ``span`` is the number of axes along which real activations vary; if span <= rank,
        every subspace is the whole space. The columns of `score_controls` and `angles_to_probes` follow and, for the
        chosen rank, those of `score_negative_controls`.
        """
        span, site, datasets = self.whitened.rank, self.site, self.sample_pairs(variable)
        if not span:
            raise bad_value("probe.site", site, f"a site that depends on the operands at position {self.position}")
        if min(ranks) > span:
            raise bad_value("probe.rank", min(ranks), f"at most {span}, the rank of {site}'s activations")
        train, test = (self.evaluation(data, variable) for data in datasets[::2])
        found = self.fit_ranks(variable, ranks)
        for rank, subspace in found.subspaces.items():
            row = {"rank": rank, "span": span, "subspace": subspace, "chosen": int(rank == found.chosen)}
            on_train, on_test = train.accuracy(subspace), test.accuracy(subspace)
            row |= {"train": on_train, "validation": found.validation[rank], "iia": on_test, "gap": on_train - on_test}
            row |= {"no_intervention": test.no_intervention(), "full_patch": test.accuracy(None)}
            row |= self.score_controls(datasets[2], variable, subspace) | self.angles_to_probes(variable, subspace)
            yield row | (self.score_negative_controls(variable, rank) if rank == found.chosen else {})

    def fit_ranks(self, variable: str, ranks: Sequence[int]) -> RankSearch:
        """The best subspace of each rank. Ranks beyond the span of real activations are left out."""
        train, validation, _ = self.sample_pairs(variable)
        evaluation = self.evaluation(validation, variable)
        subspaces = {r: self.fit(train, validation, variable, r) for r in ranks if r <= self.whitened.rank}
        scores = {rank: evaluation.accuracy(subspace) for rank, subspace in subspaces.items()}
        scores_or_zero = {rank: np.nan_to_num(x) for rank, x in scores.items()}  # NaN if no answer should change
        best = min(rank for rank, x in scores_or_zero.items() if x >= max(scores_or_zero.values()) - IIA_TOLERANCE)
        return RankSearch(subspaces, scores, best)

    def score(self, variable: str, rank: int) -> float:
        """Test accuracy of the best subspace of this rank, or of the largest possible rank if that is smaller."""
        train, validation, test = self.sample_pairs(variable)
        subspace = self.fit(train, validation, variable, min(rank, self.whitened.rank))
        return self.evaluation(test, variable).accuracy(subspace)

    def score_controls(self, test: CounterfactualDataset, variable: str, subspace: Subspace) -> dict[str, float]:
        """Scores of interchanges that cannot transfer the variable.

        ``iia_random`` (and ``_max``): random subspaces of the same rank in the span of real activations.
        ``iia_flipped`` (and ``_max``): sign-flipped copies of the subspace; NaN if there are none.
        """
        row, count = dict[str, float](), self.config.num_controls
        evaluation = self.evaluation(test.part(slice(self.config.num_control_pairs)), variable)
        for name, controls in (
            ("random", random_subspaces(self.whitened, subspace.rank, count, self.seed)),
            ("flipped", sign_flipped_subspaces(self.whitened, subspace, count, self.seed)),
        ):
            scores = [evaluation.accuracy(control) for control in controls]
            row[f"iia_{name}"] = float(np.mean(scores)) if scores else math.nan
            row[f"iia_{name}_max"] = max(scores, default=math.nan)
        return row

    def angles_to_probes(self, variable: str, subspace: Subspace) -> dict[str, float]:
        """Angles, in degrees, between the subspace and linear probes of the variable (Fadnavis, 2605.29126).

        Each is the largest principal angle, 0 if one span contains the other: ``angle_least_squares`` to the weights of
        a least-squares probe, ``angle_leace`` to the direction that LEACE erases. ``angle_random_low`` and ``_high``
        are 5% and 95% quantiles over random subspaces of the same rank. All are NaN for a constant variable.
        """
        # The columns of the eraser's ``right`` are the weights of a least-squares probe.
        probe = leace(self.whitened, self.variable_values(variable))
        if not probe.rank:
            return dict.fromkeys(ANGLE_COLUMNS, math.nan)
        generator = torch.Generator().manual_seed(self.seed)
        shape, axes = (NUM_RANDOM_ANGLES, self.whitened.rank, subspace.rank), self.whitened.axes
        random = torch.randn(shape, generator=generator, dtype=torch.float64).to(axes)
        random_angles = [principal_angles(axes @ columns, probe.left)[0] for columns in random]
        angles = [principal_angles(subspace.directions, directions)[0] for directions in (probe.right, probe.left)]
        return dict(zip(ANGLE_COLUMNS, map(float, (*angles, *np.quantile(random_angles, (0.05, 0.95)))), strict=True))

    def score_negative_controls(self, variable: str, rank: int) -> dict[str, float]:
        """Scores of searches that should find nothing.

        ``iia_untrained``: in the network before training; NaN if it cannot be made. ``iia_decoy``: in a hand-coded
        network that computes the answer from other variables, if there is one. ``iia_decoy`` overestimates: the decoy
        stores those variables, and a search can rebuild this one from them.
        """
        scores = {"iia_untrained": self.untrained_search.score(variable, rank) if self.untrained_search else math.nan}
        values, task = self.causal_model.table[variable], self.causal_model.task
        has_decoy = is_handcoded_task(task) and variable in DECOY_NETWORKS and self.position not in task.prompt_names
        if has_decoy and np.array_equal(values, CausalModel(task).table[variable]):
            scores["iia_decoy"] = decoy_score(variable, self.position, rank, self.config, self.seed)
        return scores

    def sample_pairs(self, variable: str) -> list[CounterfactualDataset]:
        model, digits, rng = self.causal_model, self.digits, np.random.default_rng(self.seed + 1)
        drawn = zip(self.bases, self.pools, strict=True)
        return [sample_balanced_pairs(model, variable, base, pool, rng, digits) for base, pool in drawn]


@lru_cache(maxsize=64)
def decoy_score(variable: str, position: Position, rank: int, config: DASConfig, seed: int) -> float:
    """The score of a search at `DECOY_SITE` in a network that computes sums from other variables (`DECOY_NETWORKS`)."""
    model = Hooked(write_network(*DECOY_NETWORKS[variable]).network, task=Add())
    return ControlledDAS(model, CausalModel(Add()), DECOY_SITE, position, config, seed).score(variable, rank)


def random_subspaces(x: Whitened, rank: int, count: int, seed: int) -> Iterator[Subspace]:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        yield Subspace(x.axes @ random_basis(x.rank, generator)[:, :rank].to(x.axes))


def sign_flipped_subspaces(x: Whitened, subspace: Subspace, count: int, seed: int) -> Iterator[Subspace]:
    """Copies of a subspace with random signs of its coordinates along the principal axes.

    The covariance of the activations is diagonal in these coordinates, so the copies have the original's rank and
    variance. Copies within 45 degrees of the original are drawn again, up to a limit, so ``count`` may not be reached.
    """
    original = project_away(x, subspace.directions.to(x.axes))
    generator = torch.Generator().manual_seed(seed)
    flipped = (flip_signs(x, original, generator).left for _ in range(MAX_SIGN_DRAWS * count))
    far = (directions for directions in flipped if principal_angles(original.left, directions)[-1] >= MIN_ANGLE)
    return map(Subspace, islice(far, count))


def principal_angles(a: Tensor, b: Tensor) -> "np.ndarray[Any, np.dtype[np.float64]]":
    """The principal angles between the spans of columns (d, k) and (d, m), in degrees, largest first."""
    return np.rad2deg(subspace_angles(a.double().cpu().numpy(), b.double().cpu().numpy()))


def untrained_copy(model: Hooked, seed: int) -> Hooked | None:
    """The same network and sites with the initial weights of a seed; None without `Provenance.make_network`."""
    if model.provenance.make_network is None:
        return None
    network = initialise(model.provenance.make_network, seed).to(model.device)
    paths = {module: path for path, module in model.network.named_modules()}
    sites = {site: network.get_submodule(paths[module]) for site, module in model.sites.items()}
    return Hooked(network, sites, task=model.task, name=f"untrained {model.name}", seed=seed)
