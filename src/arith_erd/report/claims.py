"""What the paper claims beside what we measured: estimates over seeds, and a verdict from data alone."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd

from ..seeds import format_seeds
from ..stats import MIN_SEEDS, bootstrap_interval
from .collect import EXACT, GIVEN, OURS, Collection, matches
from .measures import measure_claim, probe_values
from .paper import Claim, Paper
from .replicas import DEFAULTS

Verdict = Literal["reproduced", "differs", "not run"]
VERDICTS: tuple[Verdict, ...] = ("reproduced", "differs", "not run")
Interval: TypeAlias = tuple[float, float] | None
ROUNDING = 1e-9  # 0.9 - 0.88 is within 0.02


@dataclass(frozen=True)
class Result:
    """A claim beside what we measured.

    Attributes:
        values: of each replica that counts, lowest and highest that it can be: the same unless censored.
        censored: replicas of which only a bound is known.
        source: our runs, the authors' weights, or the task alone, which needs no run.
        theirs: the same, measured on the authors' weights.
        unfinished: replicas that are still training.
    """

    claim: Claim
    verdict: Verdict
    cause: str
    source: str
    values: pd.DataFrame
    theirs: float | None = None
    unfinished: int = 0
    median: float | None = None
    mean: float | None = None
    median_interval: Interval = None
    mean_interval: Interval = None

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def censored(self) -> int:
        return int((self.values["low"] != self.values["high"]).sum())

    @property
    def estimate(self) -> float | None:
        return self.median if self.claim.statistic == "median" else self.mean

    @property
    def interval(self) -> Interval:
        return self.median_interval if self.claim.statistic == "median" else self.mean_interval

    @property
    def seeds(self) -> str:
        return "" if self.source == EXACT or not self.n else format_seeds(tuple(sorted(set(self.values["seed"]))))


Results = Mapping[str, Result]
"""Claims beside ours, by id."""


def evaluate(paper: Paper, found: Collection) -> list[Result]:
    """Every claim of the paper, in its order."""
    return [judge(claim, found) for claim in paper.claims]


def judge(claim: Claim, found: Collection) -> Result:
    """Measure one claim and compare.

    A seed of which only a bound is known takes part in the median as a bound, and in no mean. Where the bounds of the
    median leave open on which side of the tolerance it lies, there is no verdict yet.
    """
    values, source, unfinished = measure_claim(claim.measure, found)
    theirs = None
    if claim.measure["from"] == "probe":
        given = probe_values(claim.measure, found, GIVEN)
        theirs = float(given["low"].mean()) if len(given) else None
        if values.empty and len(given):
            values, source = given, GIVEN
    if values.empty:
        return Result(claim, "not run", _what_is_missing(claim, found), source, values, theirs, unfinished)
    low, high = float(np.median(values["low"])), float(np.median(values["high"]))
    exact = (values["low"] == values["high"]).all()
    mean = float(values["low"].mean()) if exact else None
    median = low if low == high else None
    with_intervals = exact and source != EXACT
    sample = values["low"].to_list()
    intervals = [bootstrap_interval(sample, statistic=s) if with_intervals else None for s in (np.median, np.mean)]
    if exact and claim.statistic == "mean":
        low = high = float(values["low"].mean())
    verdict = _verdict(claim, low, high)
    result = Result(claim, verdict, "", source, values, theirs, unfinished, median, mean, *intervals)
    return replace(result, cause=_cause(result, found))


def _verdict(claim: Claim, low: float, high: float) -> Verdict:
    """Of a number that is known to lie from ``low`` to ``high``."""
    slack = ROUNDING * max(1.0, abs(claim.value))
    if low >= claim.lowest - slack and high <= claim.highest + slack:
        return "reproduced"
    if high < claim.lowest - slack or low > claim.highest + slack:
        return "differs"
    return "not run"


def _what_is_missing(claim: Claim, found: Collection) -> str:
    """What stands between the runs that are there and a verdict."""
    measure = claim.measure
    if "runs" not in measure:
        return f"probe={measure['probe']} has not been asked"
    parts = []
    for runs in [measure["runs"], *({**measure["runs"], **measure[k]} for k in ("minus", "over") if k in measure)]:
        replicas = found.replicas
        loose = {key: value for key, value in runs.items() if key != "min_epochs"}
        replicas = replicas[matches(replicas, loose)]
        needed = measure.get("epoch", measure.get("until", measure.get("planned", runs.get("min_epochs", 0))))
        finished = replicas[replicas["finished"]]
        if replicas.empty:
            others = found.replicas[matches(found.replicas.assign(departs=""), loose)]
            but = f" (but {others.iloc[0]['run']} departs in {others.iloc[0]['departs']})" if len(others) else ""
            parts.append(f"no run of {_describe(loose)}{but}")
        elif finished.empty:
            parts.append(f"the run of {_describe(loose)} is at epoch {replicas['epochs'].max()}, unfinished")
        elif measure["from"] == "summary" and "epoch" in measure and (finished["epochs"] != needed).all():
            parts.append(f"no run of {_describe(loose)} ended at epoch {needed}")
        elif measure["from"] == "epochs_to" and finished["max_epochs"].max() < needed:
            parts.append(f"the longest run of {_describe(loose)} was to end at epoch {finished['max_epochs'].max()}")
        elif measure["from"] != "epochs_to" and finished["epochs"].max() < needed:
            parts.append(f"the longest run of {_describe(loose)} has {finished['epochs'].max()} of {needed} epochs")
        elif measure["from"] == "probe":
            parts.append(f"probe={measure['probe']} has not been asked about {_describe(loose)}")
    return "; ".join(dict.fromkeys(parts)) or "its seeds have no partner of the same seed"


def _describe(runs: Mapping[str, Any]) -> str:
    words = {f"{what}_order": f" {what}" for what in ("prompt", "completion")}
    return ", ".join(f"{value}{words.get(key, '')}" for key, value in runs.items() if value != DEFAULTS.get(key))


def _cause(result: Result, found: Collection) -> str:
    """Why the verdict is what it is, as far as the data tell, after what is known beforehand."""
    claim, parts = result.claim, []
    if result.verdict == "differs":
        used = found.replicas.loc[result.values["replica"][result.values["replica"] >= 0]]
        devices = ", ".join(sorted(set(used["device"].dropna())))
        if claim.cause:
            parts.append(claim.cause.format(device=devices or "another device"))
        elif result.interval and result.interval[0] <= claim.highest and result.interval[1] >= claim.lowest:
            parts.append("seed noise can explain it: the interval reaches the tolerance")
        elif result.interval:
            parts.append("no known cause: more than seed noise")
        elif result.source == OURS and result.n < MIN_SEEDS:
            parts.append(f"seed noise cannot be ruled out from {result.n} seed{'s' if result.n > 1 else ''}")
    if result.censored:
        parts.append(f"{result.censored} of {result.n} seeds censored: {_censoring(result)}")
    if result.verdict == "not run":
        parts.append("too many to tell on which side of the tolerance the median lies")
    if result.source == GIVEN:
        parts.append("measured on the authors' weights only")
    if result.unfinished:
        parts.append(f"{result.unfinished} more still training")
    return "; ".join(parts)


def _censoring(result: Result) -> str:
    if result.claim.unit != "epochs":
        return "one of the two never got there"
    accuracy = result.claim.measure["accuracy"]
    at = sorted(set(result.values.loc[result.values["high"] == np.inf, "low"].astype(int)))
    return f"below {accuracy:.0%} when their runs ended, at epoch {', '.join(map(str, at))}"


def missing(results: list[Result], paper: Paper, runs: Path) -> dict[str, list[Result]]:
    """The claims without a verdict, by the command that makes their data, in the paper's order."""
    commands: dict[str, list[Result]] = {}
    for result in results:
        if result.verdict == "not run":
            commands.setdefault(paper.command(result.claim.make, runs), []).append(result)
    return commands
