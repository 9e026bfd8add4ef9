"""What the paper claims beside what we measured: an estimate over seeds, and a verdict from its interval alone.

The rules are those of ``docs/verdicts.md``.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import pandas as pd
from scipy.stats import binomtest

from ..seeds import format_seeds
from ..stats import MIN_FOR_MEDIAN, MIN_SEEDS, Estimate, Interval, Mean, clopper_pearson
from .collect import EXACT, GIVEN, Collection
from .measures import ProbeColumn
from .paper import Claim, Paper

Verdict: TypeAlias = Literal["reproduced", "differs", "inconclusive", "not run"]
VERDICTS: tuple[Verdict, ...] = ("reproduced", "differs", "inconclusive", "not run")
ROUNDING = 1e-9  # 0.9 - 0.88 is within 0.02
LAYERS = 6
LEVEL = 0.05
SEEDS_TRIED = (*range(MIN_SEEDS, 31), 40, 50, 75, 100, 150, 200, 300, 500, 1000)


@dataclass(frozen=True)
class Result:
    """A claim beside what we measured.

    Attributes:
        samples: one row per replica, ``replica, seed, low, high``, for each kind of run.
        source: our runs, the authors' weights, or the task alone, which needs no run.
        theirs: the same, measured on the authors' weights.
        averaged: epochs at which the curve averaged over the seeds gets there; reported beside the median.
        seeds_needed: per kind of run, for a verdict, if further seeds are like these; None if no number would do.
        votes: seeds by the layer that they name, the layer with most first.
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
    def n(self) -> int:
        """Seeds of the kind of run that has the fewest."""
        return min(map(len, self.samples))

    @property
    def exact(self) -> bool:
        """Whether the number follows from definitions and no seed can change it."""
        return self.claim.compare == "value"

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
    measure, kinds = claim.measure, [runs for _, runs in claim.arms]
    result = Result(claim, "not run", measure.source, [measure.values(found, runs) for runs in kinds])
    if isinstance(measure, ProbeColumn):
        given = [measure.theirs(found, runs) for runs in kinds]
        if all(map(len, given)):
            weighted = (weight * float(g["low"].iloc[0]) for (weight, _), g in zip(claim.arms, given, strict=True))
            result = replace(result, theirs=sum(weighted))
            if result.n == 0:
                result = replace(result, samples=given, source=GIVEN)
    if measure.source != EXACT:
        result = replace(result, unfinished=sum(_training(found, runs) for runs in kinds))
    if result.n == 0:
        lacking = dict.fromkeys(filter(None, (measure.missing(found, runs) for runs in kinds)))
        return replace(result, cause="; ".join(lacking))
    votes = result.samples[0]["low"].value_counts() if claim.compare == "votes" else pd.Series(dtype=int)
    result = replace(
        result,
        estimate=_estimate(claim, result.samples),
        votes={int(layer): int(count) for layer, count in votes.items()},
        averaged=measure.of_average(found, result.samples[0]) if claim.compare == "median" else None,  # type: ignore
    )
    result = replace(result, verdict=_verdict(result))
    if result.verdict == "inconclusive":
        result = replace(result, seeds_needed=_seeds_needed(result))
    return replace(result, cause=_cause(result, found))


def _training(found: Collection, runs: Mapping[str, object]) -> int:
    """Replicas of these runs that have not finished."""
    wanted = found.chosen(runs)
    return len(wanted[~wanted["finished"]].drop_duplicates(["trajectory", "seed"]))


def _estimate(claim: Claim, samples: list[pd.DataFrame]) -> Estimate:
    bounds = [(sample["low"].to_numpy(), sample["high"].to_numpy()) for sample in samples]
    if claim.compare == "median":
        return Estimate.of_median(bounds[0])
    if claim.compare == "ratio":
        return Estimate.of_ratio(*bounds)
    terms = [Mean.of(low, weight) for (low, _), (weight, _) in zip(bounds, claim.arms, strict=True)]
    if claim.compare == "value":
        return Estimate.exact(sum(term.weight * term.mean for term in terms))
    farthest = (len(terms) + 1) // 2  # accuracies differ by 1 at most, and two such differences by 2
    spans = {"accuracy": (0.0, 1.0), "points": (-farthest, farthest)}
    return Estimate.of_means(terms, spans.get(claim.unit, (-np.inf, np.inf)))


def _verdict(result: Result) -> Verdict:
    """Reproduced or differs if the whole interval lies on one side of the tolerance, or the votes say so."""
    if result.votes:
        return _of_votes(result.claim, result.votes)
    interval = result.estimate.interval if result.estimate else None
    if interval is None or (result.source == GIVEN and result.claim.kind == "result"):
        return "inconclusive"
    return _side(result.claim, interval)


def _side(claim: Claim, interval: Interval) -> Verdict:
    slack = ROUNDING * max(1.0, abs(claim.value))
    if interval[0] >= claim.lowest - slack and interval[1] <= claim.highest + slack:
        return "reproduced"
    return "differs" if interval[1] < claim.lowest - slack or interval[0] > claim.highest + slack else "inconclusive"


def _of_votes(claim: Claim, votes: Mapping[int, int]) -> Verdict:
    """Exact binomial tests: against one layer in six for the published layer, and against a majority for it."""
    n, hits = sum(votes.values()), votes.get(int(claim.value), 0)
    others = max((count for layer, count in votes.items() if layer != claim.value), default=0)
    if n < MIN_SEEDS:
        return "inconclusive"
    if hits > others and binomtest(hits, n, 1 / LAYERS, "greater").pvalue <= LEVEL:
        return "reproduced"
    return "differs" if binomtest(hits, n, 0.5, "less").pvalue <= LEVEL else "inconclusive"


def _least(claim: Claim) -> int:
    """Seeds that a verdict takes."""
    return MIN_FOR_MEDIAN if claim.compare == "median" else MIN_SEEDS


def _seeds_needed(result: Result) -> int | None:
    """The fewest seeds that decide, were further ones like these; None from too few of them, or if no number would."""
    claim, estimate, votes = result.claim, result.estimate, result.votes
    if result.n < _least(claim) or not estimate:
        return None
    for n in (n for n in SEEDS_TRIED if n > result.n):
        if votes:
            scaled = {layer: int(count * n / sum(votes.values())) for layer, count in votes.items()}
            scaled[max(scaled, key=lambda layer: scaled[layer])] += n - sum(scaled.values())
            decided = _of_votes(claim, scaled) != "inconclusive"
        else:
            interval = estimate.again(n)
            decided = interval is not None and _side(claim, interval) != "inconclusive"
        if decided:
            return n
    return None


def _cause(result: Result, found: Collection) -> str:
    """Why the verdict is what it is, as far as the data tell, after what is known beforehand."""
    claim, needed = result.claim, result.seeds_needed
    why = ""
    if result.verdict == "differs":
        devices = ", ".join(sorted(set(found.replicas.loc[result.replicas, "device"].dropna())))
        by_votes = "too few seeds name the published layer for a majority"
        why = by_votes if result.votes else "" if result.exact else "the whole interval lies outside the tolerance"
        why = claim.cause.format(device=devices or "another device") or why
    if result.verdict == "inconclusive":
        few = result.estimate is None or result.estimate.interval is None
        why = "too few seeds for an interval" if few else "" if result.votes else "the interval crosses the tolerance"
        enough = f"about {needed} seeds like these would" if needed else "more seeds like these would not"
        why = "; ".join(filter(None, (why, f"{enough} decide it")))
        if result.n < (least := _least(claim)):
            why = f"{result.n} seed{'s' if result.n > 1 else ''}, and a verdict takes {least}"
    censored = _censoring(result) if result.censored else ""
    given = "measured on the authors' weights only" if result.source == GIVEN else ""
    training = f"{result.unfinished} more still training" if result.unfinished else ""
    return "; ".join(filter(None, (why, censored, given, training)))


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


def missing(results: Sequence[Result], paper: Paper, runs: Path) -> dict[str, list[Result]]:
    """The claims without data, by the command that makes them, in the paper's order."""
    commands: dict[str, list[Result]] = {}
    for result in results:
        if result.verdict == "not run":
            commands.setdefault(paper.command(result.claim.make, runs), []).append(result)
    return commands


def tally(verdicts: Iterable[str]) -> str:
    """``16 reproduced, 2 differ, 19 not run``."""
    many = Counter(verdicts)
    words = {verdict: "differ" if verdict == "differs" and many[verdict] > 1 else verdict for verdict in VERDICTS}
    return ", ".join(f"{many[verdict]} {words[verdict]}" for verdict in VERDICTS if many[verdict])
