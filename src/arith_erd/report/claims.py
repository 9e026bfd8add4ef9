"""The paper's claims beside our measurements: an estimate over seeds, and a verdict from its interval alone.

The rules are those of ``docs/verdicts.md``. A claim is also judged by the rules before 2026-11-24, on the same runs.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from ..seeds import format_seeds
from ..stats import MIN_FOR_MEDIAN, MIN_SEEDS, Estimate, Interval, Mean
from . import verdicts
from .collect import EXACT, GIVEN, Collection
from .measures import Ceiling, Metrics, ProbeColumn
from .paper import Claim, Paper
from .verdicts import VERDICTS, Modes, Verdict

SEEDS_TRIED = (*range(MIN_SEEDS, 31), 40, 50, 75, 100, 150, 200, 300, 500, 1000)
SPANS: Mapping[str, Interval] = {"accuracy": (0, 1), "value": (0, np.inf), "minutes": (0, np.inf)}  # of single means


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
        behind: by how much the published layer is behind the best one.
        modes: of each kind of run, if some seed of any does not learn.
        before: the verdict by the rules before 2026-11-24.
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
    behind: Estimate | None = None
    modes: Sequence[Modes] = ()
    before: Verdict = "not run"

    @property
    def n(self) -> int:  # of the kind of run that has the fewest
        return min(map(len, self.samples))

    @property
    def exact(self) -> bool:
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
        return [int(i) for sample in self.samples for i in sample["replica"] if i >= 0]


Results: TypeAlias = Mapping[str, Result]  # claims beside ours, by id


def evaluate(paper: Paper, found: Collection) -> list[Result]:
    """Every claim of the paper, in its order."""
    results = {claim.id: judge(claim, found) for claim in paper.claims}
    for name, result in results.items():
        if result.modes and result.claim.mean_of and result.claim.unit == "points":  # those of its accuracy
            of = results[result.claim.same_as]
            results[name] = replace(result, verdict=of.verdict, cause=of.cause, seeds_needed=of.seeds_needed)
    return [*results.values()]


def judge(claim: Claim, found: Collection) -> Result:
    """Measure one claim and compare."""
    measure, kinds = claim.measure, [runs for _, runs in claim.arms]
    result = Result(claim, "not run", measure.source, [measure.values(found, runs) for runs in kinds])
    if claim.before:
        result = replace(result, before=judge(claim.before, found).verdict)
    if isinstance(measure, ProbeColumn):
        given = [measure.theirs(found, runs) for runs in kinds]
        if all(map(len, given)):
            weighted = (weight * float(g["low"].iloc[0]) for (weight, _), g in zip(claim.arms, given, strict=True))
            result = replace(result, theirs=sum(weighted))
            if result.n == 0:
                result = replace(result, samples=given, source=GIVEN)
    if measure.source != EXACT:
        wanted = [found.chosen(runs) for runs in kinds]
        training = [of[~of["finished"]].drop_duplicates(["trajectory", "seed"]) for of in wanted]
        result = replace(result, unfinished=sum(map(len, training)))
    if result.n == 0 and claim.compare != "ceiling":
        lacking = dict.fromkeys(filter(None, (measure.missing(found, runs) for runs in kinds)))
        return replace(result, cause="; ".join(lacking))
    result = replace(result, **_measured(result, found))
    result = replace(result, verdict=_verdict(result, result.estimate.interval if result.estimate else None))
    if result.verdict == "inconclusive":
        result = replace(result, seeds_needed=_seeds_needed(result))
    return replace(result, cause=_cause(result, found))


def _measured(result: Result, found: Collection) -> dict[str, Any]:
    claim, measure = result.claim, result.claim.measure
    bounds = [(sample["low"].to_numpy(), sample["high"].to_numpy()) for sample in result.samples]
    if isinstance(measure, Ceiling):
        return {"estimate": Estimate.exact(measure.of(claim.runs))}
    if claim.compare == "median":
        estimate = Estimate.of_median(bounds[0], whole_range=claim.old)
        return {"estimate": estimate, "averaged": measure.of_average(found, result.samples[0])}  # type: ignore[attr-defined]
    if claim.compare == "ratio":
        return {"estimate": Estimate.of_ratio(*bounds)}
    terms = [Mean.of(low, weight) for (low, _), (weight, _) in zip(bounds, claim.arms, strict=True)]
    if claim.compare == "value":
        return {"estimate": Estimate.exact(sum(term.weight * term.mean for term in terms))}
    if modes := _modes(claim, found):
        # Of one above another, what is left of the costs is their sign: a cost is training minus validation.
        signs = [1.0] if len(modes) == 1 else [-weight for weight, _ in claim.arms]
        shares = [(sign, of.learning, of.n) for sign, of in zip(signs, modes, strict=True)]
        return {"estimate": Estimate.of_shares(shares), "modes": modes}
    reach = (len(terms) + 1) // 2  # accuracies differ by 1 at most, and two such differences by 2
    spans = SPANS if len(terms) == 1 else {}
    span = spans.get(claim.unit, (-reach, reach) if claim.unit == "points" else (-np.inf, np.inf))
    if claim.unit == "correlation" and isinstance(measure, ProbeColumn):
        reach = len(terms) * (2 if measure.reduce in ("dip", "bump") else 1)
        span = (-reach, reach)
    if claim.compare == "prediction":
        return {"estimate": Estimate.of_prediction(terms[0], claim.mean_of, span)}
    about: dict[str, Any] = {"estimate": Estimate.of_means(terms, span)}
    if claim.compare == "votes" and isinstance(measure, ProbeColumn):
        votes = result.samples[0]["low"].value_counts()
        about["votes"] = {int(layer): int(count) for layer, count in votes.items()}
        reduce: Any = measure.reduce.replace("arg", "behind_")
        distance = replace(measure, reduce=reduce, at=claim.value)
        behind = (distance.theirs if result.source == GIVEN else distance.values)(found, claim.runs)["low"]
        about["behind"] = Estimate.of_means([Mean.of(behind)], (0.0, 2.0)) if len(behind) else None
    return about


def _modes(claim: Claim, found: Collection) -> list[Modes]:
    """How many seeds learn, if some do not and the claim is about networks that do."""
    measure = claim.measure
    about = claim.value >= verdicts.LEARNS if claim.unit == "accuracy" else claim.mean_of or len(claim.arms) > 1
    if claim.old or not isinstance(measure, Metrics) or not measure.tail or not about:
        return []
    accuracy = Metrics(column="val_seq_acc", epoch=measure.epoch, tail="median")
    modes = [Modes.of(accuracy.values(found, runs)["low"].to_numpy()) for _, runs in claim.arms]
    return modes if any(of.learning < of.n for of in modes) else []


def _verdict(result: Result, interval: Interval | None) -> Verdict:
    """The verdict if the interval of the estimate were this one."""
    claim, estimate = result.claim, result.estimate
    if estimate is None or (result.source == GIVEN and claim.kind == "result"):
        return "inconclusive"
    if isinstance(claim.measure, Ceiling):
        limit = claim.measure.of(claim.runs, "validation")
        return verdicts.of_ceiling(claim.span, estimate.low, limit, result.samples[0]["low"].to_numpy())
    if claim.compare == "votes":
        if claim.old:
            return verdicts.of_votes(int(claim.value), result.votes)
        return verdicts.of_layer(int(claim.value), result.votes, result.behind.interval if result.behind else None)
    if len(result.modes) == 1:
        return verdicts.of_share(claim.value, result.modes[0], interval or (0.0, 1.0))
    if result.modes and result.n < MIN_FOR_MEDIAN:
        return "inconclusive"
    if claim.compare == "prediction":
        return verdicts.near(claim.value, claim.value - claim.span[0], estimate.low, interval)
    return verdicts.side(claim.span, interval)


def _least(result: Result) -> int:
    return MIN_FOR_MEDIAN if result.claim.compare == "median" or result.modes else MIN_SEEDS


def _seeds_needed(result: Result) -> int | None:
    """The fewest seeds that decide, were further ones like these; None from too few of them, or if no number would."""
    if result.n < _least(result) or not result.estimate or result.claim.compare == "ceiling":
        return None
    for n in (n for n in SEEDS_TRIED if n > result.n):
        like = result
        if result.votes:
            scaled = {layer: int(count * n / result.n) for layer, count in result.votes.items()}
            scaled[max(scaled, key=lambda layer: scaled[layer])] += n - sum(scaled.values())
            like = replace(result, votes=scaled)
        if result.modes:
            like = replace(result, modes=[m._replace(learning=round(m.learning * n / m.n), n=n) for m in result.modes])
        if _verdict(like, result.estimate.of_seeds(n)) != "inconclusive":
            return n
    return None


def _cause(result: Result, found: Collection) -> str:
    """Why the verdict is what it is, as far as the data tell."""
    claim, needed = result.claim, result.seeds_needed
    why = ""
    if result.verdict == "differs":
        devices = ", ".join(sorted(set(found.replicas.loc[result.replicas, "device"].dropna())))
        outside = "the published number lies outside the prediction interval"
        outside = outside if claim.compare == "prediction" else "the whole interval lies outside the tolerance"
        if result.votes:
            outside = "too few seeds name the published layer for a majority"
        elif result.modes:
            outside = "the share of seeds that learn is not the published one"
        why = claim.cause.format(device=devices or "another device") or ("" if result.exact else outside)
    if result.verdict == "inconclusive":
        few = result.estimate is None or result.estimate.interval is None
        why = "too few seeds for an interval" if few else "" if result.votes else "the interval crosses the tolerance"
        enough = f"about {needed} seeds like these would" if needed else "more seeds like these would not"
        why = "; ".join(filter(None, (why, f"{enough} decide it")))
        if result.n < (least := _least(result)):
            why = f"{result.n} seed{'s' if result.n != 1 else ''}, and a verdict takes {least}"
        elif claim.compare == "ceiling":
            why = "a seed exceeds the ceiling of its validation set, so the argument is wrong"
    if isinstance(claim.measure, Ceiling):
        limit = claim.measure.of(claim.runs, "validation")
        why = "; ".join(filter(None, (why, f"exact ceiling; that of the validation set is {limit:.2%}")))
    censored = ""
    if result.censored:
        samples = pd.concat(result.samples)
        at = sorted(set(samples.loc[samples["high"] == np.inf, "low"].astype(int)))
        when = f"{getattr(claim.measure, 'accuracy', 0.95):.3g} when their runs ended, at epoch {str(at)[1:-1]}"
        censored = f"{result.censored} of {len(samples)} seeds censored: below {when}"
    given = "measured on the authors' weights only" if result.source == GIVEN else ""
    training = f"{result.unfinished} more still training" if result.unfinished else ""
    return "; ".join(filter(None, (why, censored, given, training)))


def missing(results: Sequence[Result], paper: Paper, runs: Path) -> dict[str, list[Result]]:
    """The claims without data, by the command that makes them, in the paper's order."""
    commands: dict[str, list[Result]] = {}
    for result in results:
        if result.verdict == "not run" or (result.claim.compare == "ceiling" and result.n == 0):
            commands.setdefault(paper.command(result.claim.make, runs), []).append(result)
    return commands


def tally(given: Iterable[str]) -> str:
    """``16 reproduced, 2 differ, 19 not run``."""
    many = Counter(given)
    words = {verdict: "differ" if verdict == "differs" and many[verdict] > 1 else verdict for verdict in VERDICTS}
    return ", ".join(f"{many[verdict]} {words[verdict]}" for verdict in VERDICTS if many[verdict])
