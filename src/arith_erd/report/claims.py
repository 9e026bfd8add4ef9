"""What the paper claims beside what we measured: an estimate over seeds, and a verdict from its interval alone.

The rules are those of ``docs/verdicts.md``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import pandas as pd
from scipy.stats import binomtest

from ..seeds import format_seeds
from ..stats import (
    MIN_FOR_MEDIAN,
    MIN_SEEDS,
    Interval,
    Mean,
    clopper_pearson,
    contrast,
    hodges_lehmann_ratio,
    median_range,
)
from .collect import EXACT, GIVEN, Collection, matches
from .measures import EpochsTo, ProbeColumn
from .paper import Claim, Paper

Verdict: TypeAlias = Literal["reproduced", "differs", "inconclusive", "not run"]
VERDICTS: tuple[Verdict, ...] = ("reproduced", "differs", "inconclusive", "not run")
ROUNDING = 1e-9  # 0.9 - 0.88 is within 0.02
LAYERS = 6
LEVEL = 0.05
SEEDS_TRIED = (*range(MIN_SEEDS, 31), 40, 50, 75, 100, 150, 200, 300, 500, 1000)


@dataclass(frozen=True)
class Estimate:
    """An estimate over seeds.

    Attributes:
        low, high: the smallest and the largest that it can be; they differ only where censored seeds leave it open.
        interval: 95%, None from too few seeds.
        method: what it is, and the interval.
        again: the interval from so many seeds of each kind, were they like these.
    """

    low: float
    high: float
    interval: Interval | None = None
    method: str = ""
    again: Callable[[int], Interval | None] = lambda n: None

    @property
    def value(self) -> float | None:
        return self.low if self.low == self.high else None


@dataclass(frozen=True)
class Result:
    """A claim beside what we measured.

    Attributes:
        samples: for each kind of run, one row per replica: ``replica, seed, low, high``.
        source: our runs, the authors' weights, or the task alone, which needs no run.
        theirs: the same, measured on the authors' weights.
        averaged: epochs at which the curve averaged over the seeds gets there; reported beside the median.
        seeds_needed: per kind of run, for a verdict, if further seeds are like these; None if no number would do.
    """

    claim: Claim
    verdict: Verdict
    source: str
    samples: list[pd.DataFrame]
    estimate: Estimate | None = None
    cause: str = ""
    theirs: float | None = None
    unfinished: int = 0
    averaged: int | None = None
    seeds_needed: int | None = None
    votes: Mapping[int, int] = field(default_factory=dict)

    @property
    def values(self) -> pd.DataFrame:
        """Of the first kind of run."""
        return self.samples[0]

    @property
    def n(self) -> int:
        """Seeds of the kind of run that has the fewest."""
        return min(map(len, self.samples))

    @property
    def exact(self) -> bool:
        """Whether the number follows from definitions and no seed can change it."""
        return self.source == EXACT or self.claim.kind == "setup"

    @property
    def counted(self) -> bool:
        """Whether the claim is a result of its own, not a set-up check or the same fact as another claim."""
        return self.claim.kind == "result" and not self.claim.same_as

    @property
    def censored(self) -> int:
        return sum(int((sample["low"] != sample["high"]).sum()) for sample in self.samples)

    @property
    def seeds(self) -> str:
        if self.source == EXACT or not self.n:
            return ""
        return " / ".join(format_seeds(tuple(sorted(set(sample["seed"].astype(int))))) for sample in self.samples)

    @property
    def replicas(self) -> list[int]:
        """Rows of `Collection.replicas` that were used."""
        return [int(i) for sample in self.samples for i in sample["replica"] if i >= 0]


Results: TypeAlias = Mapping[str, Result]
"""Claims beside ours, by id."""


def evaluate(paper: Paper, found: Collection) -> list[Result]:
    """Every claim of the paper, in its order."""
    return [judge(claim, found) for claim in paper.claims]


def judge(claim: Claim, found: Collection) -> Result:
    """Measure one claim and compare."""
    measure, source, theirs = claim.measure, claim.measure.source, None
    samples = [measure.values(found, runs) for _, runs in claim.arms]
    if isinstance(measure, ProbeColumn):
        given = [measure.theirs(found, runs) for _, runs in claim.arms]
        if all(map(len, given)):
            theirs = sum(weight * float(g["low"].iloc[0]) for (weight, _), g in zip(claim.arms, given, strict=True))
            if min(map(len, samples)) == 0:
                samples, source = given, GIVEN
    unfinished = 0 if source == EXACT else sum(_training(found, runs) for _, runs in claim.arms)
    if min(map(len, samples)) == 0:
        what = "; ".join(dict.fromkeys(filter(None, (measure.missing(found, runs) for _, runs in claim.arms))))
        return Result(claim, "not run", source, samples, None, what, theirs, unfinished)
    estimate = _estimate(claim, samples)
    votes = _votes(samples[0]) if claim.compare == "votes" else {}
    verdict = _judge_votes(claim, votes) if votes else _judge(claim, estimate, source)
    averaged = None
    if isinstance(measure, EpochsTo) and not claim.other:
        averaged = measure.of_average(found, samples[0])
    result = Result(claim, verdict, source, samples, estimate, "", theirs, unfinished, averaged, None, votes)
    needed = _seeds_needed(result) if verdict == "inconclusive" else None
    return Result(**{**vars(result), "seeds_needed": needed, "cause": _cause(result, needed, found)})


def _training(found: Collection, runs: Mapping[str, object]) -> int:
    """Replicas of these runs that have not finished."""
    wanted = found.replicas[matches(found.replicas, runs)]
    return len(wanted[~wanted["finished"]].drop_duplicates(["trajectory", "seed"]))


def _estimate(claim: Claim, samples: list[pd.DataFrame]) -> Estimate:
    bounds = [(sample["low"].to_numpy(), sample["high"].to_numpy()) for sample in samples]
    weights = [weight for weight, _ in claim.arms]
    if claim.compare == "median":
        (low, high), *_ = bounds
        again = lambda n: median_range(np.resize(low, n), np.resize(high, n))  # noqa: E731
        method = "median, from the smallest to the largest seed"
        return Estimate(float(np.median(low)), float(np.median(high)), median_range(low, high), method, again)
    if claim.compare == "ratio":
        above, below = bounds
        (smallest, largest), interval = hodges_lehmann_ratio(above, below)

        def ratio(n: int) -> Interval | None:
            return hodges_lehmann_ratio(*(tuple(np.resize(x, n) for x in pair) for pair in bounds))[1]  # type: ignore[arg-type]

        return Estimate(smallest, largest, interval, "Hodges-Lehmann, Mann-Whitney", ratio)
    terms = [Mean.of(low, weight) for (low, _), weight in zip(bounds, weights, strict=True)]
    middle = sum(term.weight * term.mean for term in terms)
    if claim.compare == "value":
        return Estimate(middle, middle, (middle, middle), "exact")
    clip = (lambda i: (max(i[0], 0.0), min(i[1], 1.0)) if i else None) if claim.unit == "accuracy" else (lambda i: i)
    again = lambda n: clip(contrast([term._replace(n=n) for term in terms]))  # noqa: E731
    method = "mean, Student's t" if len(terms) == 1 else "difference of means, Welch's t"
    return Estimate(middle, middle, clip(contrast(terms)), method, again)


def _judge(claim: Claim, estimate: Estimate, source: str) -> Verdict:
    """Reproduced or differs if the whole interval lies on one side of the tolerance."""
    if estimate.interval is None or (source == GIVEN and claim.kind == "result"):
        return "inconclusive"
    return _side(claim, estimate.interval)


def _side(claim: Claim, interval: Interval) -> Verdict:
    slack = ROUNDING * max(1.0, abs(claim.value))
    if interval[0] >= claim.lowest - slack and interval[1] <= claim.highest + slack:
        return "reproduced"
    return "differs" if interval[1] < claim.lowest - slack or interval[0] > claim.highest + slack else "inconclusive"


def _votes(sample: pd.DataFrame) -> dict[int, int]:
    """Seeds by the layer that they name, the layer with most first."""
    return {int(layer): int(count) for layer, count in sample["low"].value_counts().items()}


def _judge_votes(claim: Claim, votes: Mapping[int, int]) -> Verdict:
    """Exact binomial tests: against one layer in six for the published layer, and against a majority for it."""
    n, hits = sum(votes.values()), votes.get(int(claim.value), 0)
    others = max((count for layer, count in votes.items() if layer != claim.value), default=0)
    if n < MIN_SEEDS:
        return "inconclusive"
    if hits > others and binomtest(hits, n, 1 / LAYERS, "greater").pvalue <= LEVEL:
        return "reproduced"
    return "differs" if binomtest(hits, n, 0.5, "less").pvalue <= LEVEL else "inconclusive"


def _seeds_needed(result: Result) -> int | None:
    """The smallest number of seeds that would give a verdict, were further seeds like those that are there."""
    claim, estimate = result.claim, result.estimate
    if result.source == GIVEN or not estimate:
        return MIN_SEEDS
    for n in SEEDS_TRIED:
        if n <= result.n:
            continue
        if result.votes:
            share = n / sum(result.votes.values())
            scaled = {layer: int(count * share) for layer, count in result.votes.items()}
            scaled[max(scaled, key=lambda layer: scaled[layer])] += n - sum(scaled.values())
            if _judge_votes(claim, scaled) != "inconclusive":
                return n
        elif (interval := estimate.again(n)) and _side(claim, interval) != "inconclusive":
            return n
    return None


def _cause(result: Result, needed: int | None, found: Collection) -> str:
    """Why the verdict is what it is, as far as the data tell, after what is known beforehand."""
    claim, parts = result.claim, []
    if result.verdict == "differs":
        devices = ", ".join(sorted(set(found.replicas.loc[result.replicas, "device"].dropna())))
        if claim.cause:
            parts.append(claim.cause.format(device=devices or "another device"))
        elif result.votes:
            parts.append("too few seeds name the published layer for a majority")
        elif not result.exact:
            parts.append("the whole interval lies outside the tolerance")
    if result.verdict == "inconclusive":
        if result.n < MIN_SEEDS:
            parts.append(f"{result.n} seed{'s' if result.n > 1 else ''}, and a verdict takes {MIN_SEEDS}")
        elif claim.compare == "median" and result.n < MIN_FOR_MEDIAN:
            parts.append(f"{result.n} seeds, and the range of a median takes {MIN_FOR_MEDIAN}")
        elif result.estimate and result.estimate.interval is None:
            parts.append("too few seeds for an interval")
        elif not result.votes:
            parts.append("the interval crosses the tolerance")
        more = f"{needed} seeds like these would decide it" if needed else "more seeds like these would not decide it"
        parts.append(more)
    if result.censored:
        parts.append(_censoring(result))
    if result.source == GIVEN:
        parts.append("measured on the authors' weights only")
    if result.unfinished:
        parts.append(f"{result.unfinished} more still training")
    return "; ".join(parts)


def _censoring(result: Result) -> str:
    samples = pd.concat(result.samples)
    at = sorted(set(samples.loc[samples["high"] == np.inf, "low"].astype(int)))
    accuracy = getattr(result.claim.measure, "accuracy", 0.95)
    when = f"below {accuracy:.3g} when their runs ended, at epoch {', '.join(map(str, at))}"
    return f"{result.censored} of {len(samples)} seeds censored: {when}"


def votes_share(result: Result) -> tuple[int, Interval]:
    """Seeds that name the published layer, and the Clopper-Pearson interval of their share."""
    hits = result.votes.get(int(result.claim.value), 0)
    return hits, clopper_pearson(hits, sum(result.votes.values()))


def missing(results: list[Result], paper: Paper, runs: Path) -> dict[str, list[Result]]:
    """The claims without data, by the command that makes them, in the paper's order."""
    commands: dict[str, list[Result]] = {}
    for result in results:
        if result.verdict == "not run":
            commands.setdefault(paper.command(result.claim.make, runs), []).append(result)
    return commands


def counts(results: list[Result], counted: bool = True) -> dict[Verdict, int]:
    """How many claims have which verdict: results of their own, or else set-up checks."""
    chosen = [r for r in results if (r.counted if counted else r.claim.kind == "setup")]
    return {verdict: sum(r.verdict == verdict for r in chosen) for verdict in VERDICTS}
