"""Compare the paper's claims with our measurements: an estimate over seeds, and a verdict from its interval.

The rules are those of ``docs/verdicts.md``. A claim is also judged by the rules before 2026-11-24, on the same runs.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from scipy.stats import binomtest, fisher_exact

from ..plots.sheet import SPANS
from ..seeds import format_seeds
from ..stats import MIN_FOR_MEDIAN, MIN_SEEDS, Estimate, Interval, Mean
from .collect import AUTHORS, TASK_ALONE, Collection
from .measures import Ceiling, EpochsTo, Metrics, ProbeColumn
from .paper import Claim, Paper

Verdict: TypeAlias = Literal["reproduced", "differs", "inconclusive", "not run"]
VERDICTS: tuple[Verdict, ...] = ("reproduced", "differs", "inconclusive", "not run")
ROUNDING = 1e-9  # 0.9 - 0.88 is within 0.02
LEVEL = 0.05
NEAR = 0.05  # largest difference in correlation at which two layers count as near
LEARNS = 0.75  # smallest accuracy that counts as learning: halfway to 0.5, at which one bit is left to chance
SHARE = 0.2  # tolerance of a share of runs that learn: one in five


class Modes(NamedTuple):
    """For the n seeds of one kind of run: how many learn, and the mean accuracies of these and of the others."""

    learning: int
    n: int
    right: float
    wrong: float

    @classmethod
    def of(cls, accuracies: np.ndarray) -> "Modes":
        """Count from the accuracy of each seed, with `LEARNS` or more as learning."""
        learns = accuracies >= LEARNS
        right = float(accuracies[learns].mean()) if learns.any() else 1.0
        wrong = float(accuracies[~learns].mean()) if not learns.all() else 0.0
        return cls(int(learns.sum()), len(learns), right, wrong)

    def published(self, value: float) -> float:
        """The share of learning runs at which the mean over all runs equals the published value."""
        return float(np.clip((value - self.wrong) / (self.right - self.wrong), 0.0, 1.0))


@dataclass(eq=False)
class Result:
    """A claim, our measurement of it, and the verdict."""

    claim: Claim
    source: str  # our runs, the authors' weights, or the task alone, which needs no run
    samples: list[pd.DataFrame]  # for each kind of run, a row per replica: ``replica, seed, low, high``
    verdict: Verdict = "not run"
    before: Verdict | None = None  # by the rules before 2026-11-24, if it was judged by these
    cause: str = ""
    estimate: Estimate | None = None
    theirs: float | None = None  # measured on the authors' weights
    unfinished: int = 0
    averaged: int | None = None  # epochs until the curve averaged over the seeds gets there
    votes: Mapping[int, int] = field(default_factory=dict)  # seeds by the layer that they name, most first
    behind: Estimate | None = None  # by how much the published layer is behind the best one
    modes: Sequence[Modes] = ()  # of each kind of run, if some seed of any does not learn

    @property
    def n(self) -> int:  # of the kind of run that has the fewest
        return min(map(len, self.samples))

    @property
    def least(self) -> int:  # seeds that a verdict takes
        return MIN_FOR_MEDIAN if self.claim.compare == "median" or self.modes else MIN_SEEDS

    @property
    def exact(self) -> bool:
        return self.claim.compare == "value"

    @property
    def censored(self) -> int:
        return sum(int((sample["low"] != sample["high"]).sum()) for sample in self.samples)

    @property
    def seeds(self) -> str:
        if self.source == TASK_ALONE or not self.n:
            return ""
        return " / ".join(format_seeds(tuple(sorted(set(sample["seed"].astype(int))))) for sample in self.samples)

    @property
    def replicas(self) -> list[int]:
        return [int(i) for sample in self.samples for i in sample["replica"] if i >= 0]


Results: TypeAlias = Mapping[str, Result]  # claims beside ours, by id


def evaluate(paper: Paper, found: Collection) -> list[Result]:
    """The results for every claim, in the paper's order."""
    results = {claim.id: judge(claim, found) for claim in paper.claims}
    for result in results.values():
        if result.modes and result.claim.mean_of and result.claim.unit == "points":  # those of its accuracy
            same = results[result.claim.same_as]
            result.verdict, result.cause = same.verdict, same.cause
    return [*results.values()]


def judge(claim: Claim, found: Collection) -> Result:
    measure, kinds = claim.measure, [runs for _, runs in claim.measure.arms]
    result = Result(claim, measure.source, [measure.values(found, runs) for runs in kinds])
    if claim.before:
        result.before = judge(claim.before, found).verdict
    if isinstance(measure, ProbeColumn):
        theirs = [measure.theirs(found, runs) for runs in kinds]
        if all(map(len, theirs)):
            weights = (weight for weight, _ in measure.arms)
            result.theirs = sum(w * float(sample["low"].iloc[0]) for w, sample in zip(weights, theirs, strict=True))
            if result.n == 0:
                result.samples, result.source = theirs, AUTHORS
    if measure.source != TASK_ALONE:
        chosen = (found.chosen(runs) for runs in kinds)
        result.unfinished = sum(len(of[~of["finished"]].drop_duplicates(["trajectory", "seed"])) for of in chosen)
    if result.n == 0 and claim.compare != "ceiling":
        without = [runs for runs, sample in zip(kinds, result.samples, strict=True) if sample.empty]
        result.cause = "; ".join(dict.fromkeys(measure.missing(found, runs) for runs in without))
        return result
    result.modes = _modes(claim, found)
    if isinstance(measure, EpochsTo) and claim.compare == "median":
        result.averaged = measure.of_average(found, result.samples[0])
    if isinstance(measure, ProbeColumn) and claim.compare == "votes":
        result.votes, result.behind = _votes(result, measure, found)
    result.estimate = _estimate(result)
    result.verdict = _verdict(result, result.estimate)
    result.cause = _cause(result)
    return result


def _estimate(result: Result) -> Estimate:
    """The statistic of the claim, from its samples, or from the number of seeds that learn."""
    claim, measure, weights = result.claim, result.claim.measure, [weight for weight, _ in result.claim.measure.arms]
    bounds = [(sample["low"].to_numpy(), sample["high"].to_numpy()) for sample in result.samples]
    if isinstance(measure, Ceiling):
        return Estimate.exact(measure.limit())
    if claim.compare == "median":
        return Estimate.of_median(bounds[0], whole_range=claim.old)
    if claim.compare == "ratio":
        return Estimate.of_ratio(*bounds)
    terms = [Mean.of(low, weight) for (low, _), weight in zip(bounds, weights, strict=True)]
    if claim.compare == "value":
        return Estimate.exact(sum(term.weight * term.mean for term in terms))
    if modes := result.modes:
        # For a claim that one cost exceeds another only the sign matters: a cost is training minus validation.
        signs = [1.0] if len(modes) == 1 else [-weight for weight in weights]
        return Estimate.of_shares([(sign, of.learning, of.n) for sign, of in zip(signs, modes, strict=True)])
    if claim.compare == "prediction":
        return Estimate.of_prediction(terms[0], claim.mean_of, _span(claim, len(terms)))
    return Estimate.of_means(terms, _span(claim, len(terms)))


def _span(claim: Claim, terms: int) -> Interval:
    """The range of a weighted sum of ``terms`` means."""
    if terms == 1 and claim.unit in SPANS:
        return SPANS[claim.unit]
    reach = np.inf
    if claim.unit == "points":
        reach = (terms + 1) // 2  # accuracies differ by 1 at most, and two such differences by 2
    elif claim.unit == "correlation" and isinstance(claim.measure, ProbeColumn):
        reach = terms * (2 if claim.measure.reduce in ("dip", "bump") else 1)
    return -reach, reach


def _votes(result: Result, measure: ProbeColumn, found: Collection) -> tuple[dict[int, int], Estimate | None]:
    """Layer -> number of seeds that name it, and by how much the published layer is behind the best one."""
    votes = {int(layer): int(count) for layer, count in result.samples[0]["low"].value_counts().items()}
    behind = "behind_min" if measure.reduce == "argmin" else "behind_max"
    distance = measure.model_copy(update={"reduce": behind, "at": result.claim.value})
    distances = (distance.theirs if result.source == AUTHORS else distance.values)(found, measure.runs)["low"]
    return votes, Estimate.of_means([Mean.of(distances)], (0.0, 2.0)) if len(distances) else None


def _modes(claim: Claim, found: Collection) -> list[Modes]:
    """The numbers of seeds that learn, if some do not and the claim is about networks that do; else empty."""
    measure = claim.measure
    about = claim.value >= LEARNS if claim.unit == "accuracy" else claim.mean_of or len(measure.arms) > 1
    compared = claim.compare in ("mean", "prediction") and not claim.old
    if not compared or not isinstance(measure, Metrics) or not measure.tail or not about:
        return []
    accuracy = measure.model_copy(update={"column": "val_seq_acc", "minus_column": "", "tail": "median"})
    modes = [Modes.of(accuracy.values(found, runs)["low"].to_numpy()) for _, runs in measure.arms]
    return modes if any(of.learning < of.n for of in modes) else []


def _verdict(result: Result, estimate: Estimate) -> Verdict:
    claim, measure, interval = result.claim, result.claim.measure, estimate.interval
    if result.source == AUTHORS:
        return "inconclusive"
    if isinstance(measure, Ceiling):
        reached = result.samples[0]["low"].to_numpy()
        return of_ceiling(claim.accepted, estimate.low, measure.limit("validation"), reached)
    if claim.compare == "votes":
        if claim.old:
            return of_votes(int(claim.value), result.votes)
        return of_layer(int(claim.value), result.votes, result.behind.interval if result.behind else None)
    if len(result.modes) == 1:
        return of_share(claim.value, result.modes[0], interval or (0.0, 1.0))
    if result.modes and result.n < MIN_FOR_MEDIAN:
        return "inconclusive"
    if claim.compare == "prediction":
        return of_mean(claim.value, claim.value - claim.accepted[0], estimate.low, interval)
    return of_bound(claim.accepted, interval)


# The rules, from numbers alone


def of_bound(accepted: Interval, interval: Interval | None) -> Verdict:
    """Reproduced if the whole interval is within the accepted one, differs if it is outside."""
    if interval is None:
        return "inconclusive"
    slack = ROUNDING * max(1.0, *(abs(end) for end in accepted if np.isfinite(end)))
    low, high = accepted[0] - slack, accepted[1] + slack
    if low <= interval[0] and interval[1] <= high:
        return "reproduced"
    return "differs" if interval[1] < low or interval[0] > high else "inconclusive"


def of_mean(value: float, tolerance: float, ours: float, interval: Interval | None) -> Verdict:
    """Compare with a published mean: ours must be within the tolerance, and its interval within twice the tolerance."""
    if interval is None:
        return "inconclusive"
    slack = ROUNDING * max(1.0, abs(value))
    if abs(ours - value) <= tolerance + slack:
        return "reproduced" if _within(value, tolerance, interval) else "inconclusive"
    return "inconclusive" if interval[0] - slack <= value <= interval[1] + slack else "differs"


def _within(value: float, tolerance: float, interval: Interval) -> bool:
    return of_bound((value - 2 * tolerance, value + 2 * tolerance), interval) == "reproduced"


def of_share(value: float, modes: Modes, interval: Interval) -> Verdict:
    """Compare the share of seeds that learn with the share that the published mean of five runs implies."""
    if modes.n < MIN_FOR_MEDIAN:
        return "inconclusive"
    share, ours = modes.published(value), modes.learning / modes.n
    if abs(ours - share) <= SHARE + ROUNDING:
        return "reproduced" if _within(share, SHARE, interval) else "inconclusive"
    theirs = round(5 * share)
    table = [[modes.learning, modes.n - modes.learning], [theirs, 5 - theirs]]
    return "differs" if fisher_exact(table).pvalue <= LEVEL else "inconclusive"


def of_votes(layer: int, votes: Mapping[int, int]) -> Verdict:
    """Test the published layer's share of votes by exact binomial tests: against one in six, and against a half."""
    n, hits = sum(votes.values()), votes.get(layer, 0)
    others = max((count for other, count in votes.items() if other != layer), default=0)
    if n < MIN_SEEDS:
        return "inconclusive"
    if hits > others and binomtest(hits, n, 1 / 6, "greater").pvalue <= LEVEL:
        return "reproduced"
    return "differs" if binomtest(hits, n, 0.5, "less").pvalue <= LEVEL else "inconclusive"


def of_layer(layer: int, votes: Mapping[int, int], behind: Interval | None) -> Verdict:
    """Combine the votes with the published layer's distance to the best: reproduced also if it is near the best."""
    by_votes, by_distance = of_votes(layer, votes), of_bound((-np.inf, NEAR), behind)
    if "reproduced" in (by_votes, by_distance):
        return "reproduced"
    return "differs" if by_votes == by_distance == "differs" else "inconclusive"


def of_ceiling(accepted: Interval, exact: float, limit: float, reached: np.ndarray) -> Verdict:
    """Compare the exact ceiling with the published accuracy; at least three seeds must stay below their own limit."""
    if not accepted[0] <= exact <= accepted[1]:
        return "differs"
    if not len(reached):
        return "not run"
    return "reproduced" if len(reached) >= MIN_SEEDS and (reached <= limit + ROUNDING).all() else "inconclusive"


def _cause(result: Result) -> str:
    claim, measure = result.claim, result.claim.measure
    causes: list[str] = []
    if result.verdict == "differs":
        outside = "the whole interval lies outside the tolerance"
        if result.votes:
            outside = "too few seeds name the published layer for a majority"
        elif result.modes:
            outside = "the share of seeds that learn is not the published one"
        elif claim.compare == "prediction":
            outside = "the published number lies outside the prediction interval"
        causes += [claim.cause or ("" if result.exact else outside)]
    elif result.verdict == "inconclusive":
        if result.n < result.least:
            causes += [f"{result.n} seed{'s' if result.n != 1 else ''}, and a verdict takes {result.least}"]
        elif claim.compare == "ceiling":
            causes += ["a seed exceeds the ceiling of its validation set, so the argument is wrong"]
        else:
            few = result.estimate is None or result.estimate.interval is None
            crossing = "no layer wins clearly" if result.votes else "the interval crosses the tolerance"
            causes += ["too few seeds for an interval" if few else crossing]
    if isinstance(measure, Ceiling):
        causes += [f"exact ceiling; that of the validation set is {measure.limit('validation'):.2%}"]
    if result.censored:
        samples = pd.concat(result.samples)
        at = sorted(set(samples.loc[samples["high"] == np.inf, "low"].astype(int)))
        when = f"{getattr(measure, 'accuracy', 0.95):.3g} when their runs ended, at epoch {str(at)[1:-1]}"
        causes += [f"{result.censored} of {len(samples)} seeds censored: below {when}"]
    causes += ["measured on the authors' weights only" if result.source == AUTHORS else ""]
    causes += [f"{result.unfinished} more still training" if result.unfinished else ""]
    return "; ".join(filter(None, causes))


def missing(results: Sequence[Result], paper: Paper, runs: Path) -> dict[str, list[Result]]:
    """Command -> claims without data that it would measure, in the paper's order."""
    commands: dict[str, list[Result]] = {}
    for result in results:
        if result.verdict == "not run":
            commands.setdefault(paper.command(result.claim.make, runs), []).append(result)
    return commands


def tally(given: Iterable[str]) -> str:
    """Counts of verdicts as text: ``16 reproduced, 2 differ, 19 not run``."""
    many = Counter(given)
    words = {verdict: "differ" if verdict == "differs" and many[verdict] > 1 else verdict for verdict in VERDICTS}
    return ", ".join(f"{many[verdict]} {words[verdict]}" for verdict in VERDICTS if many[verdict])
