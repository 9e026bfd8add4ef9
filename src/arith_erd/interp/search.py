"""Search a subspace for each causal variable, and measure every control beside it.

::

    search = Search(network, pairs, ["dec.3"])
    found = search.at("dec.3", 4, "carry", ranks=(1, 2))
    found[0].iia, found[0].controls["iia_random"]
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np

from ..errors import UserError, bad_value
from ..models.network import Network
from ..models.references import reference, written_for
from ..tasks import Add
from .causal import CausalTask
from .controls import natural_distances, random_subspaces, sign_flipped, untrained
from .interchange import ForcedRuns, Position, Subspace
from .pairs import split_operands
from .place import Budget, Exam, Place, Setting

COMPETING = ("iia_random_max", "iia_flipped_max", "iia_untrained")
"""Controls in the network itself."""
DECOYS = dict.fromkeys(("sum", "partial_sum"), ("prefix_carry_decoy", 1))
DECOYS |= dict.fromkeys(("carry", "xor", "a_bit", "b_bit"), ("erd_decoy", 2))
"""Variable -> a decoy and its variant. It stores the variable, or for xor and partial_sum what they are made of, and
computes the answer from others. Since it holds these others too, a search may succeed in it all the same."""
STORED_AT = "dec.4"
"""All of these are stored behind this layer; the answer comes in layer 6."""


@dataclass(frozen=True)
class Found:
    """A subspace, and the effect of its exchange on test couples.

    Attributes:
        rank: of the subspace.
        span: number of axes along which real embeddings vary here. If span <= rank, every subspace is the whole space.
        subspace: the directions.
        chosen: whether this is the smallest rank within 0.02 of the best on the validation couples.
        train, validation, iia: balanced interchange-intervention accuracy (`das.balanced`) on each set of couples.
        floor: the same on test couples with nothing exchanged.
        whole: the same with the whole embedding exchanged.
        strength, strength_whole: of the test answers that should change to the source's own answer, the share that
            does, with the subspace and with the whole embedding exchanged; the latter should be at least as large.
        controls: name -> number, see `Search.controls`.
    """

    rank: int
    span: int
    subspace: Subspace
    chosen: bool
    train: float
    validation: float
    iia: float
    floor: float
    whole: float
    strength: float
    strength_whole: float
    controls: dict[str, float] = field(default_factory=dict)

    @property
    def best_control(self) -> float:
        """The highest accuracy among random, sign-flipped and untrained subspaces."""
        scores = [self.controls.get(name, math.nan) for name in COMPETING]
        return max(score for score in scores if not math.isnan(score))

    @property
    def decoy(self) -> float:
        """The accuracy of a search in a network that computes the answer otherwise; NaN if there is none."""
        return self.controls.get("iia_decoy", math.nan)


@lru_cache(maxsize=64)
def in_decoy(variable: str, position: Position, rank: int, budget: Budget, seed: int) -> float:
    """The score of a search in a network that computes sums from other variables (`DECOYS`), behind `STORED_AT`."""
    name, variant = DECOYS[variable]
    search = _of_decoy(name, variant, budget, seed)
    place = search.place(STORED_AT, position)
    exams = place.exams(variable)
    return exams[-1].score(place.search(exams, variable, min(rank, place.x.rank)))


@lru_cache(maxsize=4)
def _of_decoy(name: str, variant: int, budget: Budget, seed: int) -> "Search":
    return Search(reference(name, variant).network, CausalTask(Add()), [STORED_AT], budget, seed)


def _possible(ranks: Sequence[int], place: Place) -> list[int]:
    """Those of the ranks that a subspace of the embeddings can have."""
    span = place.x.rank
    if not span:
        raise bad_value("probe.site", place.site, f"a site that depends on the operands at position {place.position}")
    if min(ranks) > span:
        raise bad_value("probe.rank", min(ranks), f"at most {span}, the directions in which {place.site} varies")
    return [rank for rank in ranks if rank <= span]


class Search:
    """Searches in one network, on the same couples for every site.

    Half of the operands' values go to training couples, a quarter each to validation and test. In a random half of the
    couples the variable's exchange changes the predicted bit; in the others it does not.

    Args:
        network: in evaluation mode.
        pairs: of its task.
        sites: where to search.
        budget: couples and steps.
        seed: of the couples, the searches and the controls.
    """

    def __init__(
        self, network: Network, pairs: CausalTask, sites: Sequence[str], budget: Budget | None = None, seed: int = 0
    ) -> None:
        self.network, self.pairs, self.sites, self.budget, self.seed = network, pairs, sites, budget or Budget(), seed
        rng = np.random.default_rng(seed)
        pools = split_operands(pairs, (0.5, 0.25, 0.25), rng)
        sizes = (self.budget.train, self.budget.validation, self.budget.test)
        bases = [pool[rng.integers(len(pool), size=n)] for pool, n in zip(pools, sizes, strict=True)]
        self.runs = ForcedRuns.of(network, pairs, sites, np.concatenate(pools))
        self.setting = Setting(pairs, self.runs, pools, bases, self.budget, seed)
        self._places: dict[tuple[str, Position], Place] = {}

    @cached_property
    def blank(self) -> "Search":
        """The same search in an untrained network."""
        return Search(untrained(self.network, self.seed), self.pairs, self.sites, self.budget, self.seed)

    def at(self, site: str, position: Position, variable: str, ranks: Sequence[int]) -> list[Found]:
        """The best subspaces of the given ranks for a variable, with their controls.

        Args:
            site: of the network.
            position: t, where a decoder site is exchanged and bit t is read; None exchanges all positions of any site
                and reads the whole answer.
            variable: one of ``pairs.models``; with ``position=None`` the sum or the product.
            ranks: of the subspaces.

        Raises:
            UserError: for a single position of the encoder, a one-bit variable with ``position=None``, a site that does
                not vary there, or ranks that are all above the number of directions in which it does.
        """
        place = self.place(site, position)
        exams = place.exams(variable)
        train, validation, test = exams
        searched = {rank: place.search(exams, variable, rank) for rank in _possible(ranks, place)}
        best = place.choose(searched, exams).rank
        return [
            Found(
                rank=rank,
                span=place.x.rank,
                subspace=subspace,
                chosen=rank == best,
                train=train.score(subspace),
                validation=validation.score(subspace),
                iia=test.score(subspace),
                floor=test.score_unchanged(),
                whole=test.score(None),
                strength=test.strength(subspace),
                strength_whole=test.strength(None),
                controls=self.controls(place, variable, subspace, exams, rank == best),
            )
            for rank, subspace in searched.items()
        ]

    def best(self, site: str, position: Position, variable: str, ranks: Sequence[int]) -> Subspace:
        """The chosen subspace without its controls; arguments as in `at`."""
        place = self.place(site, position)
        exams = place.exams(variable)
        return place.choose({rank: place.search(exams, variable, rank) for rank in _possible(ranks, place)}, exams)

    def controls(
        self, place: Place, variable: str, subspace: Subspace, exams: list[Exam], chosen: bool
    ) -> dict[str, float]:
        """Scores of exchanges that cannot transfer the variable, and distances to natural states.

        ``iia_random`` (and ``_max``): subspaces of the same rank in the span of real embeddings. ``iia_flipped`` (and
        ``_max``): the subspace with random signs along the principal axes, NaN where these give no other subspace.
        ``distance``, ``distance_natural``: of patched and of natural states to the nearest natural one. For the chosen
        rank also ``iia_untrained``: a search in an untrained network; ``iia_decoy``: one in a network written by hand
        that computes the answer otherwise, where there is one (`in_decoy`); and ``train_arbitrary``: the score on
        training couples of a search for a random bit of each pair.
        """
        test, number = place.fewer(exams[-1]), self.budget.random
        randoms = [test.score(other) for other in random_subspaces(place.x, subspace.rank, number, self.seed)]
        flipped = [test.score(other) for other in sign_flipped(place.x, subspace, number, self.seed)]
        lesson = test.lesson
        patched, own = natural_distances(place.natural, subspace.exchange(lesson.base, lesson.source))
        found = {
            "iia_random": float(np.mean(randoms)),
            "iia_random_max": max(randoms),
            "iia_flipped": float(np.mean(flipped)) if flipped else math.nan,
            "iia_flipped_max": max(flipped, default=math.nan),
            "distance": patched,
            "distance_natural": own,
        }
        if chosen:
            blank = self.blank.place(place.site, place.position)
            exams_blank = blank.exams(variable)
            rank = min(subspace.rank, blank.x.rank)
            found["iia_untrained"] = exams_blank[-1].score(blank.search(exams_blank, variable, rank))
            if written_for(self.pairs.task) and variable in DECOYS:
                found["iia_decoy"] = in_decoy(variable, place.position, subspace.rank, self.budget, self.seed)
            arbitrary = place.exams(variable, arbitrary=True)
            found["train_arbitrary"] = arbitrary[0].score(place.search(arbitrary, variable, subspace.rank))
        return found

    def place(self, site: str, position: Position) -> Place:
        """A site and a position of it, with the data that searches there share."""
        if position is not None and site.startswith("enc."):
            raise UserError(f"probe.position={position}: expected all at {site}; only the decoder has single positions")
        if (site, position) not in self._places:
            # Keep only the last one: each holds many runs.
            self._places = {(site, position): Place(self.setting, site, position)}
        return self._places[site, position]
