"""Pairs of runs at one site and position, and the search for directions that carry a variable."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..bits import ZERO, Array
from ..errors import UserError
from .causal import WHOLE, CausalTask
from .das import SPREAD, Lesson, align, balanced, covarying
from .erasure import Whitened, whiten
from .interchange import ForcedRuns, Patched, Position, Subspace

ENOUGH = 0.02  # the search takes the smallest rank whose score is this near to the best


@dataclass(frozen=True)
class Budget:
    """The cost of a search.

    Attributes:
        train, validation, test: numbers of couples; the three sets share no operand.
        steps: of the optimiser.
        batch: couples per step.
        random: number of random subspaces, and of sign-flipped ones.
        controlled: test couples on which these controls are measured.
    """

    train: int = 1000
    validation: int = 500
    test: int = 500
    steps: int = 50
    batch: int = 128
    random: int = 20
    controlled: int = 200


@dataclass(frozen=True)
class Setting:
    """Data that all sites and positions of a network share.

    Attributes:
        pairs: of its task.
        runs: of the pairs in the pools.
        pools: indices of the pairs for training, validation and test; the pools share no operand.
        bases: for each pool, the bases of its couples.
        budget: couples and steps.
        seed: of the couples and the searches.
    """

    pairs: CausalTask
    runs: ForcedRuns
    pools: Sequence[Array]
    bases: Sequence[Array]
    budget: Budget
    seed: int


class Place:
    """A site and a position, with the runs of all couples' bases ready to be continued from there."""

    def __init__(self, setting: Setting, site: str, position: Position) -> None:
        self.site, self.position, self.setting = site, position, setting
        self.pairs = setting.pairs
        self.read = list(range(self.pairs.task.width)) if position is None else [position]
        self.runs = setting.runs
        self.natural = self.runs.at(site, np.concatenate(setting.pools), position)
        self.x: Whitened = whiten(self.runs.at(site, setting.pools[0], position), SPREAD)
        self.batches = [
            (base, self.runs.continuation(site, base, position))
            for base in np.array_split(setting.bases[0], max(1, len(setting.bases[0]) // setting.budget.batch))
        ]
        self.few = self.runs.continuation(site, setting.bases[2][: setting.budget.controlled], position)
        self.patched = [self.runs.continuation(site, base, position) for base in setting.bases]

    def exams(self, variable: str, arbitrary: bool = False) -> "list[Exam]":
        """Training, validation and test couples of a variable, optionally with arbitrary labels."""
        if self.position is None and variable not in WHOLE:
            raise UserError(f"probe.variable={variable}: expected {' or '.join(WHOLE)}, since probe.position=all")
        rng = np.random.default_rng(self.setting.seed + 1)
        labels = rng.integers(2, size=self.pairs.values["answer"].shape) if arbitrary else None
        return [
            self._exam(variable, base, pool, patched, labels, rng)
            for base, pool, patched in zip(self.setting.bases, self.setting.pools, self.patched, strict=True)
        ]

    def _exam(
        self, variable: str, base: Array, pool: Array, patched: Patched, labels: Array | None, rng: np.random.Generator
    ) -> "Exam":
        candidates = pool[rng.integers(len(pool), size=(8, len(base)))]
        unchanged = self.pairs.values["answer"][base][:, self.read]

        def predicted(source: Array) -> Array:
            if labels is not None:
                return unchanged ^ labels[base][:, self.read] ^ labels[source][:, self.read]
            return self.pairs.predict(variable, base, source)[:, self.read]

        # A coin decides whether the source should change the answer. Take the first candidate that fits, else the last.
        wanted = rng.integers(2, size=len(base)).astype(bool)
        source = candidates[-1].copy()
        for candidate in candidates[:-1][::-1]:
            fits = (predicted(candidate) != unchanged).any(axis=1) == wanted
            source[fits] = candidate[fits]
        at = self.runs.at
        lesson = Lesson(
            patched,
            at(self.site, base, self.position),
            at(self.site, source, self.position),
            self.position,
            self.read,
            torch.as_tensor(predicted(source) + ZERO, device=self.natural.device),
        )
        tokens = [
            torch.as_tensor(x, device=self.natural.device) for x in (unchanged, self.pairs.values["answer"][source])
        ]
        own = self.runs.tokens[torch.as_tensor(base)][:, self.read]
        return Exam(lesson, tokens[0] + ZERO, tokens[1][:, self.read] + ZERO, own)

    def choose(self, searched: dict[int, Subspace], exams: "list[Exam]") -> Subspace:
        """The subspace of the smallest rank within 0.02 of the best on the validation couples."""
        scores = {rank: exams[1].score(subspace) for rank, subspace in searched.items()}
        return searched[min(rank for rank in scores if scores[rank] >= max(scores.values()) - ENOUGH)]

    def fewer(self, test: "Exam") -> "Exam":
        """The test couples for controls."""
        n, lesson = self.setting.budget.controlled, test.lesson
        first = Lesson(self.few, lesson.base[:n], lesson.source[:n], self.position, self.read, lesson.expected[:n])
        return Exam(first, test.unchanged[:n], test.source[:n], test.own[:n])

    def search(self, exams: "list[Exam]", variable: str, rank: int) -> Subspace:
        """Search from several starts; return the subspace that is best on the validation couples.

        It may be a start itself: an ``erd`` reference holds 255 sums so close to each other that the search's steps, of
        some hundredths of a radian, lead away from the direction.
        """
        train, validation, _ = exams
        lessons = self._lessons(train)
        found = [
            align(lessons, self.x, rank, start, steps, seed=self.setting.seed)
            for start in self._starts(variable, rank)
            for steps in (self.setting.budget.steps, 0)
        ]
        return max(found, key=validation.score)

    def _lessons(self, train: "Exam") -> list[Lesson]:
        ends = np.cumsum([len(base) for base, _ in self.batches])[:-1].tolist()
        whole = train.lesson
        parts = zip(*(torch.tensor_split(x, ends) for x in (whole.base, whole.source, whole.expected)), strict=True)
        return [
            Lesson(patched, base, source, self.position, self.read, expected)
            for (_, patched), (base, source, expected) in zip(self.batches, parts, strict=True)
        ]

    def _starts(self, variable: str, rank: int) -> list[Tensor]:
        """Start directions: those that covary with the variable and, if it has many values, with the answer bit.

        Only what the answer's prefix does not predict of the variable counts. A position also holds the tokens that it
        read, and they covary with the sum: in the ``erd`` reference of seed 0 the plain slope of the sum points up to
        42 degrees away from the direction that holds it.
        """
        pool = self.setting.pools[0]
        column = 0 if self.position is None else self.position
        values = torch.as_tensor(self.pairs.values[variable][pool][:, [column]], dtype=torch.float64)
        bits = torch.as_tensor(self.pairs.values["answer"][pool], dtype=torch.float64)
        number = covarying(self.x, _unpredicted(values, bits[:, : max(self.read)]))
        if values.max() <= 1:  # a bit
            return [number]
        answer = covarying(self.x, bits[:, self.read])
        return [number, answer] if rank == 1 else [torch.cat([number, answer], dim=1)]


def _unpredicted(z: Tensor, given: Tensor) -> Tensor:
    """What a linear function of ``given`` (N, k) and a constant leaves of z (N, j)."""
    given = torch.cat([given, torch.ones(len(z), 1).to(z)], dim=1)
    return z - given @ torch.linalg.lstsq(given, z).solution


@dataclass(frozen=True)
class Exam:
    """Couples of one set, with their expected answers.

    Attributes:
        lesson: the couples as one batch.
        unchanged: right answers (n, k) of the bases.
        source: right answers (n, k) of the sources.
        own: the network's answers (n, k) without an exchange.
    """

    lesson: Lesson
    unchanged: Tensor
    source: Tensor
    own: Tensor

    def score(self, subspace: Subspace | None) -> float:
        """Balanced accuracy with a subspace exchanged, or with the whole embedding (None)."""
        return balanced(self.lesson.tokens(subspace), self.lesson.expected, self.unchanged)

    def score_unchanged(self) -> float:
        """The same with nothing exchanged."""
        return balanced(self.own, self.lesson.expected, self.unchanged)

    def strength(self, subspace: Subspace | None) -> float:
        """Share that change, of the answers that should change to the source's own answer; NaN if there are none."""
        counted = (self.lesson.expected != self.unchanged) & (self.lesson.expected == self.source)
        return float((self.lesson.tokens(subspace) == self.lesson.expected)[counted].double().mean())
