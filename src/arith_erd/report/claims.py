"""Compare the paper's claims with our measurements: an estimate over seeds, and a verdict from its interval."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pandas as pd

from ..errors import counted
from ..plots.tables import UNIT_RANGES
from ..seeds import format_ranges
from ..stats import LEARNING_ACCURACY, MIN_FOR_MEDIAN, MIN_SEEDS, TARGET_ACCURACY, Estimate, Interval, Moments
from .claims_file import Claim, Paper, explain_errors_of_user_code
from .collect import AUTHORS_WEIGHTS, TASK_ALONE, RunData
from .measures import EpochsTo, Metrics, ProbeColumn
from .verdicts import (
    LearningCounts,
    Verdict,
    derived_verdict,
    interval_verdict,
    layer_verdict,
    mean_verdict,
    share_verdict,
)


@dataclass(eq=False)
class Result:
    """A claim, our measurement of it, and the verdict."""

    claim: Claim
    source: str  # our runs, the authors' weights, or the task, which needs no run
    samples: list[pd.DataFrame]  # for each kind of run, a row per replica: ``replica, seed, low, high``
    verdict: Verdict = "not run"
    cause: str = ""
    estimate: Estimate | None = None
    authors_value: float | None = None  # measured on the authors' weights
    num_unfinished: int = 0
    averaged_curve_epoch: int | None = None  # first epoch at which the mean curve over seeds reaches the accuracy
    votes: Mapping[int, int] = field(default_factory=dict)  # layer -> number of seeds that name it, most first
    num_layers: int = 0  # layers to choose from
    layer_gap: Estimate | None = None  # how far the published layer is behind the best one
    learning_counts: Sequence[LearningCounts] = ()  # one for each kind of run, if any seed does not learn

    @property
    def num_seeds(self) -> int:  # the fewest seeds of any kind of run
        return min(map(len, self.samples))

    @property
    def required_seeds(self) -> int:  # seeds that a verdict needs
        return MIN_FOR_MEDIAN if self.claim.statistic == "median" or self.learning_counts else MIN_SEEDS

    @property
    def exact(self) -> bool:
        return self.claim.statistic == "value"

    @property
    def num_censored(self) -> int:
        return sum(int((sample["low"] != sample["high"]).sum()) for sample in self.samples)

    @property
    def seeds(self) -> str:
        if self.source == TASK_ALONE or not self.num_seeds:
            return ""
        return " / ".join(format_ranges(tuple(sorted(set(sample["seed"].astype(int))))) for sample in self.samples)

    @property
    def replicas(self) -> list[int]:
        return [int(i) for sample in self.samples for i in sample["replica"] if i >= 0]


Results: TypeAlias = Mapping[str, Result]  # claims beside ours, by id


def evaluate_claims(paper: Paper, data: RunData) -> list[Result]:
    results = {}
    for claim in paper.claims:
        with explain_errors_of_user_code(claim.measure, f"{paper.file}: claim {claim.id}"):
            results[claim.id] = evaluate_claim(claim, data)
    for result in results.values():
        if result.learning_counts and result.claim.same_as and result.claim.mean_of and result.claim.unit == "points":
            same = results[result.claim.same_as]  # a claim on lost points takes the verdict of its accuracy claim
            result.verdict, result.cause = same.verdict, same.cause
    return [*results.values()]


def evaluate_claim(claim: Claim, data: RunData) -> Result:
    measure, run_options = claim.measure, [runs for _, runs in claim.measure.weighted_runs]
    result = Result(claim, measure.source, [measure.values(data, runs) for runs in run_options])
    if isinstance(measure, ProbeColumn):
        authors_samples = [measure.authors_values(data, runs) for runs in run_options]
        if all(map(len, authors_samples)):
            terms = zip(measure.weighted_runs, authors_samples, strict=True)
            result.authors_value = sum(weight * float(sample["low"].iloc[0]) for (weight, _), sample in terms)
            if result.num_seeds == 0:
                result.samples, result.source = authors_samples, AUTHORS_WEIGHTS
    if measure.source != TASK_ALONE:
        replicas = (data.select(runs).query("not finished") for runs in run_options)
        result.num_unfinished = sum(len(rows.drop_duplicates(["trajectory_hash", "seed"])) for rows in replicas)
    if result.num_seeds == 0 and claim.statistic != "derived":
        runs_without_value = [runs for runs, sample in zip(run_options, result.samples, strict=True) if sample.empty]
        result.cause = "; ".join(dict.fromkeys(measure.missing_reason(data, runs) for runs in runs_without_value))
        return result
    pooling = _describe_pooling(result, data)
    if claim.statistic == "votes":  # a mean of layers is no layer
        result.samples = [sample.drop_duplicates("seed") for sample in result.samples]
    else:
        result.samples = [_mean_by_seed(sample) for sample in result.samples]
    result.learning_counts = _count_learning(claim, data)
    if isinstance(measure, EpochsTo) and claim.statistic == "median":
        result.averaged_curve_epoch = measure.first_epoch_of_mean(data, result.samples[0])
    if isinstance(measure, ProbeColumn) and claim.statistic == "votes":
        result.votes, result.num_layers, result.layer_gap = _count_votes(result, measure, data)
    result.estimate = _estimate(result)
    result.verdict = _decide_verdict(result, result.estimate)
    result.cause = "; ".join(filter(None, [_describe_cause(result), pooling]))
    return result


def _describe_pooling(result: Result, data: RunData) -> str:
    """Names the runs of the first sample in which settings differ; empty if there is none."""
    for sample in result.samples:
        used = data.replicas.loc[sample.loc[sample["replica"] >= 0, "replica"]]
        if used["trajectory_hash"].nunique() > 1:
            return f"averaged over runs with other settings: {', '.join(used['run'].drop_duplicates())}"
    return ""


def _mean_by_seed(sample: pd.DataFrame) -> pd.DataFrame:
    """A row for each seed: the mean over its runs, since runs of one seed are no sample of seeds."""
    mean = sample.groupby("seed", as_index=False)[["low", "high"]].mean()
    return mean.merge(sample.drop_duplicates("seed")[["seed", "replica"]])[[*sample.columns]]


def _estimate(result: Result) -> Estimate:
    """The claim's statistic, from its samples or from the number of seeds that learn."""
    claim, measure = result.claim, result.claim.measure
    weights = [weight for weight, _ in measure.weighted_runs]
    bounds = [(sample["low"].to_numpy(), sample["high"].to_numpy()) for sample in result.samples]
    if derived := measure.derived():
        return Estimate.exact(derived.value)
    if claim.statistic == "median":
        return Estimate.of_median(bounds[0])
    if claim.statistic == "ratio":
        return Estimate.of_ratio(*bounds)
    terms = [Moments.from_values(low, weight) for (low, _), weight in zip(bounds, weights, strict=True)]
    if claim.statistic == "value":
        return Estimate.exact(sum(term.weight * term.mean for term in terms))
    if result.learning_counts:
        # With several kinds of run the measure is a cost, training minus validation accuracy. If more seeds learn, the
        # cost is lower, so we reverse the sign.
        signs = [1.0] if len(weights) == 1 else [-weight for weight in weights]
        counts = zip(signs, result.learning_counts, strict=True)
        return Estimate.of_shares([(sign, count.learning, count.n) for sign, count in counts])
    if claim.statistic == "prediction":
        return Estimate.of_prediction(terms[0], claim.mean_of, _value_range(claim, len(terms)))
    return Estimate.of_means(terms, _value_range(claim, len(terms)))


def _value_range(claim: Claim, terms: int) -> Interval:
    if terms == 1 and claim.unit in UNIT_RANGES:
        return UNIT_RANGES[claim.unit]
    limit = np.inf
    if claim.unit == "points":
        limit = (terms + 1) // 2  # accuracies differ by 1 at most, and two such differences by 2
    elif claim.unit == "correlation" and isinstance(claim.measure, ProbeColumn):
        limit = terms * (2 if claim.measure.reduce in ("dip", "bump") else 1)
    return -limit, limit


def _count_votes(result: Result, measure: ProbeColumn, data: RunData) -> tuple[dict[int, int], int, Estimate | None]:
    """Votes (layer -> number of seeds), the number of layers, and how far the published layer is behind the best."""
    votes = {int(layer): int(count) for layer, count in result.samples[0]["low"].value_counts().items()}

    def reduced(reduce: str) -> pd.Series:
        other = measure.model_copy(update={"reduce": reduce, "at": result.claim.value})
        values = other.authors_values if result.source == AUTHORS_WEIGHTS else other.values
        return _mean_by_seed(values(data, measure.runs))["low"]

    distances = reduced("behind_min" if measure.reduce == "argmin" else "behind_max")
    gap = Estimate.of_means([Moments.from_values(distances)], (0.0, 2.0)) if len(distances) else None
    return votes, int(reduced("count").min()), gap


def _count_learning(claim: Claim, data: RunData) -> list[LearningCounts]:
    """How many seeds learn, if some do not and the claim is about networks that learn; else empty."""
    measure = claim.measure
    several = claim.mean_of or len(measure.weighted_runs) > 1
    learned = claim.value >= LEARNING_ACCURACY and claim.bound != "at_most"  # an upper bound says nothing of learning
    applies = learned if claim.unit == "accuracy" else several
    of_mean = claim.statistic in ("mean", "prediction")
    if not of_mean or not isinstance(measure, Metrics) or not measure.tail or not applies:
        return []
    accuracy = measure.model_copy(update={"column": "val_seq_acc", "minus_column": "", "tail": "median"})
    samples = [_mean_by_seed(accuracy.values(data, runs))["low"].to_numpy() for _, runs in measure.weighted_runs]
    counts = [LearningCounts.from_accuracies(sample) for sample in samples]
    return counts if any(count.learning < count.n for count in counts) else []


def _decide_verdict(result: Result, estimate: Estimate) -> Verdict:
    claim, measure, interval = result.claim, result.claim.measure, estimate.interval
    if result.source == AUTHORS_WEIGHTS:
        return "inconclusive"
    if derived := measure.derived():
        return derived_verdict(claim.accepted_range, derived.value, derived.limit, result.samples[0]["low"].to_numpy())
    if claim.statistic == "votes":
        gap = result.layer_gap.interval if result.layer_gap else None
        return layer_verdict(int(claim.value), result.num_layers, result.votes, gap)
    if len(result.learning_counts) == 1:
        counts, runs = result.learning_counts[0], claim.mean_of or 5
        return share_verdict(claim.value, counts, interval or (0.0, 1.0), runs, one_sided=bool(claim.bound))
    if result.learning_counts and result.num_seeds < MIN_FOR_MEDIAN:
        return "inconclusive"
    if claim.statistic == "prediction":
        return mean_verdict(claim.value, claim.value - claim.accepted_range[0], estimate.low, interval)
    return interval_verdict(claim.accepted_range, interval)


def _describe_cause(result: Result) -> str:
    claim, measure = result.claim, result.claim.measure
    causes: list[str] = []
    if result.verdict == "differs":
        outside = "the whole interval lies outside the tolerance"
        if result.votes:
            outside = "too few seeds name the published layer for a majority"
        elif result.learning_counts:
            outside = "the share of seeds that learn is not the published one"
        elif claim.statistic == "prediction":
            outside = "the published number lies outside the prediction interval"
        causes += [claim.cause or ("" if result.exact else outside)]
    elif result.verdict == "inconclusive":
        if result.num_seeds < result.required_seeds:
            causes += [f"{counted(result.num_seeds, 'seed')}, and a verdict takes {result.required_seeds}"]
        elif claim.statistic == "derived":
            causes += ["a seed exceeds the limit, so the argument is wrong"]
        else:
            no_interval = result.estimate is None or result.estimate.interval is None
            crossing = "no layer wins clearly" if result.votes else "the interval crosses the tolerance"
            causes += ["too few seeds for an interval" if no_interval else crossing]
    if derived := measure.derived():
        causes += [derived.note]
    if result.num_censored:
        samples = pd.concat(result.samples)
        last_epochs = sorted(set(samples.loc[samples["high"] == np.inf, "low"].astype(int)))
        target = getattr(measure, "accuracy", TARGET_ACCURACY)
        limit = f"{target:.3g} when their runs ended, at epoch {str(last_epochs)[1:-1]}"
        causes += [f"{result.num_censored} of {len(samples)} seeds censored: below {limit}"]
    causes += ["measured on the authors' weights only" if result.source == AUTHORS_WEIGHTS else ""]
    causes += [f"{result.num_unfinished} more unfinished" if result.num_unfinished else ""]
    return "; ".join(filter(None, causes))


def missing_commands(results: Sequence[Result], paper: Paper, runs: Path) -> dict[str, list[Result]]:
    """Command -> claims without data that it would measure, in the paper's order; without a command the cause."""
    commands: dict[str, list[Result]] = {}
    for result in results:
        if result.verdict == "not run":
            commands.setdefault(paper.command(result.claim.make, runs) or result.cause, []).append(result)
    return commands
