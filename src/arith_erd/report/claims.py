"""What the paper claims, measured on our runs: estimates over seeds, and a verdict from data alone."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd

from ..errors import printable
from ..intervals import MIN_SEEDS, bootstrap_interval
from ..seeds import format_seeds
from .collect import DEFAULTS, EXACT, GIVEN, OURS, Collection, matches
from .paper import Claim, Paper, number, paper_text

Verdict = Literal["reproduced", "differs", "not run"]
VERDICTS: tuple[Verdict, ...] = ("reproduced", "differs", "not run")
Interval: TypeAlias = tuple[float, float] | None

COUNTED = ("parameters", "operations", "tokens", "examples", "bits", "count", "minutes")
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


def evaluate(paper: Paper, found: Collection) -> list[Result]:
    """Every claim of the paper, in its order."""
    return [judge(claim, found) for claim in paper.claims]


def judge(claim: Claim, found: Collection) -> Result:
    """Measure one claim and compare.

    A seed of which only a bound is known takes part in the median as a bound, and in no mean. Where the bounds of the
    median leave open on which side of the tolerance it lies, there is no verdict yet.
    """
    values, source, unfinished = _measure(claim.measure, found)
    theirs = None
    if claim.measure["from"] == "probe":
        given = _probe_values(claim.measure, found, GIVEN)
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


def _measure(measure: Mapping[str, Any], found: Collection) -> tuple[pd.DataFrame, str, int]:
    """Values with columns ``replica, seed, low, high``; where they come from; and how many replicas still train."""
    if measure["from"] == "probe" and "runs" not in measure:
        return _probe_values(measure, found, EXACT), EXACT, 0
    wanted = found.replicas[matches(found.replicas, measure["runs"])]
    unfinished = len(wanted[~wanted["finished"]].drop_duplicates(["trajectory", "seed"]))
    values = _of_runs(measure, measure["runs"], found)
    for operation in ("minus", "over"):
        if operation in measure:
            other = _of_runs(measure, {**measure["runs"], **measure[operation]}, found)
            values = _pairs(values, other, operation)
    return values, OURS, unfinished


def _of_runs(measure: Mapping[str, Any], runs: Mapping[str, Any], found: Collection) -> pd.DataFrame:
    """The values of finished replicas. Of those that differ only in length, the one that ended at the epoch that is
    asked for, or the next; the longest where none is asked for."""
    replicas = found.replicas[matches(found.replicas, runs) & found.replicas["finished"]]
    match measure["from"]:
        case "summary":
            if "epoch" in measure:
                replicas = replicas[replicas["epochs"] == measure["epoch"]]
            low = high = replicas[measure["column"]].astype(float)
        case "metrics":
            low = high = _of_metrics(measure, replicas, found.metrics)
        case "epochs_to":
            rows = found.metrics[found.metrics["val_seq_acc"] >= measure["accuracy"]]
            low = high = rows.groupby("replica")["epoch"].min().reindex(replicas.index).astype(float)
            low, high = low.fillna(replicas["epochs"]), high.fillna(np.inf)
        case _:
            return _probe_values(measure, found, OURS, replicas)
    return _values(replicas, low, high, shortest=measure["from"] == "metrics")


def _of_metrics(measure: Mapping[str, Any], replicas: pd.DataFrame, metrics: pd.DataFrame) -> pd.Series:
    """A column at one epoch, or over all epochs up to one, of the replicas that got there."""
    last = measure.get("until", measure.get("epoch"))
    metrics = metrics[metrics["replica"].isin(replicas.index[replicas["epochs"] >= last])]
    metrics = metrics[metrics["epoch"] <= last] if "until" in measure else metrics[metrics["epoch"] == last]
    column = metrics[measure["column"]]
    if "minus_column" in measure:
        column = column - metrics[measure["minus_column"]]
    return column.groupby(metrics["replica"]).agg(measure.get("reduce", "first"))


def _values(replicas: pd.DataFrame, low: pd.Series, high: pd.Series, shortest: bool = False) -> pd.DataFrame:
    table = replicas[["seed", "trajectory", "epochs"]].join(pd.DataFrame({"low": low, "high": high}), how="inner")
    table = table.dropna().sort_values("epochs", ascending=shortest, kind="stable")
    table = table.drop_duplicates(["trajectory", "seed"]).sort_values(["seed", "trajectory"])
    return table.reset_index(names="replica")[["replica", "seed", "low", "high"]]


def _pairs(values: pd.DataFrame, other: pd.DataFrame, operation: str) -> pd.DataFrame:
    """Difference or ratio, seed by seed, of intervals."""
    both = values.merge(other, on="seed", suffixes=("", "_other"))
    if operation == "minus":
        low, high = both["low"] - both["high_other"], both["high"] - both["low_other"]
    else:
        low, high = both["low"] / both["high_other"], both["high"] / both["low_other"]
    return both.assign(low=low, high=high)[["replica", "seed", "low", "high"]]


def _probe_values(
    measure: Mapping[str, Any], found: Collection, source: str, replicas: pd.DataFrame | None = None
) -> pd.DataFrame:
    """What a probe found of finished replicas, of the authors' weights, or of a task."""
    nothing = pd.DataFrame({"replica": [], "seed": [], "low": [], "high": []}, dtype=float)
    rows = found.probes.get(measure["probe"])
    columns = np.atleast_1d(measure.get("column", [])).tolist()
    if rows is None or not {*measure["where"], *columns} <= set(rows):
        return nothing
    if source == GIVEN:
        if "runs" not in measure or set(measure["runs"]) - {"task", "min_epochs"}:
            return nothing
        rows = rows[rows["task"] == measure["runs"]["task"]]
    rows = rows[rows["source"] == source]
    for column, wanted in measure["where"].items():
        above = isinstance(wanted, str) and wanted.startswith("> ")
        rows = rows[rows[column] > float(wanted[2:]) if above else rows[column] == wanted]
    if replicas is not None:
        rows = rows[rows["replica"].isin(replicas.index)]
    if rows.empty:
        return nothing
    found_values = pd.Series({replica: _reduce(group, measure) for replica, group in rows.groupby("replica")})
    if replicas is not None:
        return _values(replicas, found_values, found_values)
    return pd.DataFrame({"replica": -1, "seed": 0, "low": found_values, "high": found_values})


def _reduce(rows: pd.DataFrame, measure: Mapping[str, Any]) -> float:
    if (how := measure.get("reduce", "")) == "count":
        return float(len(rows))
    if how == "length":
        lengths = sum(rows[column].str.len() for column in measure["column"])
        assert isinstance(lengths, pd.Series)
        return float(lengths.iloc[0]) if lengths.nunique() == 1 else np.nan
    column = rows[measure["column"]]
    if how.startswith("arg"):
        if column.isna().all():
            return np.nan
        return float(rows.loc[column.idxmin() if how == "argmin" else column.idxmax(), measure["along"]])
    return float(column.agg(how)) if how else float(column.iloc[0]) if len(column) == 1 else np.nan


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
        needed = measure.get("epoch", measure.get("until", runs.get("min_epochs", 0)))
        finished = replicas[replicas["finished"]]
        if replicas.empty:
            others = found.replicas[matches(found.replicas.assign(departs=""), loose)]
            but = f" (but {others.iloc[0]['run']} departs in {others.iloc[0]['departs']})" if len(others) else ""
            parts.append(f"no run of {_describe(loose)}{but}")
        elif finished.empty:
            parts.append(f"the run of {_describe(loose)} is at epoch {replicas['epochs'].max()}, unfinished")
        elif measure["from"] == "summary" and "epoch" in measure and (finished["epochs"] != needed).all():
            parts.append(f"no run of {_describe(loose)} ended at epoch {needed}")
        elif finished["epochs"].max() < needed:
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


def table(results: list[Result], found: Collection, paper: Paper, runs: Path) -> pd.DataFrame:
    """``claims.csv``: a row a claim; numbers are in the claim's unit and empty where there are none."""
    return pd.DataFrame([_row(result, found, paper, runs) for result in results])


def _row(result: Result, found: Collection, paper: Paper, runs: Path) -> dict[str, Any]:
    claim = result.claim
    used = found.replicas.loc[result.values["replica"][result.values["replica"] >= 0].astype(int)]
    ours: dict[str, float | None] = {}
    for name in ("median", "mean"):
        low, high = getattr(result, f"{name}_interval") or (None, None)
        ours |= {name: getattr(result, name), f"{name}_low": low, f"{name}_high": high}
    return {
        **{key: getattr(claim, key) for key in ("id", "section", "place", "statement", "unit")},
        "paper": claim.value,
        "paper_says": paper_text(claim),
        "lowest": claim.lowest,
        "highest": claim.highest,
        "compared": claim.statistic,
        **ours,
        "n": result.n,
        "seeds": result.seeds,
        "censored": result.censored,
        "unfinished": result.unfinished,
        "verdict": result.verdict,
        "cause": result.cause,
        "erratum": claim.erratum,
        "measured_on": result.source if result.n else "",
        "authors_weights": result.theirs,
        **{key: ", ".join(sorted(set(used[key].dropna()))) for key in ("device", "torch", "arith_erd", "commit")},
        "command": paper.command(claim.make, runs),
    }


def ours_text(result: Result, statistic: str = "") -> str:
    """Ours: ``99.9% [99.8%, 100%]``, ``> 50 epochs``, or nothing. By default of the statistic that is compared."""
    claim, statistic = result.claim, statistic or result.claim.statistic
    value: float | None = getattr(result, statistic)
    if value is not None:
        return number(value, claim.unit) + interval_text(getattr(result, f"{statistic}_interval"), claim.unit)
    if result.n and statistic == "median":
        low, high = float(np.median(result.values["low"])), float(np.median(result.values["high"]))
        return f"> {number(low, claim.unit)}" if np.isinf(high) else f"< {number(high, claim.unit)}"
    return ""


def theirs_text(result: Result) -> str:
    """What the same measurement gives on the authors' weights, where that was asked too."""
    if result.theirs is None or result.source == GIVEN:
        return ""
    return f"{number(result.theirs, result.claim.unit)} on the authors' weights"


def interval_text(interval: Interval, unit: str) -> str:
    if interval is None or (interval[0] == interval[1] and unit in COUNTED):
        return ""
    low, high = (number(end, unit).removeprefix("layer ").split(" ")[0].rstrip("%") for end in interval)
    return f" [{low}, {high}]"


def markdown(results: list[Result], paper: Paper, runs: Path) -> str:
    """``claims.md``: the claims as tables, and what to run for those without data."""
    count = {verdict: sum(result.verdict == verdict for result in results) for verdict in VERDICTS}
    lines = [
        "# The paper beside ours",
        "",
        f"{paper.authors}, *{paper.title}*, {paper.journal}: {len(results)} claims, "
        + ", ".join(f"{many} {verdict}" for verdict, many in count.items())
        + ".",
        "",
        "Ours: mean and median over seeds, each with its 95% bootstrap interval; none from fewer than "
        f"{MIN_SEEDS} seeds. In bold the one that is compared: the mean, as in the paper, but for epochs the median.",
    ]
    for section, where in paper.sections.items():
        lines += ["", f"## {section}", "", f"*{where}*", "", "| claim | paper | mean | median | n | verdict | cause |"]
        lines += ["| --- | --- | --- | --- | --- | --- | --- |"]
        for result in results:
            if result.claim.section == section:
                notes = "; ".join(filter(None, (result.cause, theirs_text(result), result.claim.erratum)))
                n = "exact" if result.source == EXACT and result.n else str(result.n or "")
                ours = {name: ours_text(result, name) for name in ("mean", "median")}
                if ours[result.claim.statistic]:
                    ours[result.claim.statistic] = f"**{ours[result.claim.statistic]}**"
                cells = (result.claim.statement, paper_text(result.claim), *ours.values(), n)
                lines.append("| " + " | ".join(_cell(text) for text in (*cells, result.verdict, notes)) + " |")
    wanted = missing(results, paper, runs)
    if wanted:
        lines += ["", "## What is missing", ""]
        lines += [f"- {len(claims)} of the claims: `{command}`" for command, claims in wanted.items()]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Text in a table: no new column, no new line, no HTML."""
    return printable(text).replace("|", "\\|").replace("<", "&lt;")


def missing(results: list[Result], paper: Paper, runs: Path) -> dict[str, list[Result]]:
    """The claims without a verdict, by the command that makes their data, in the paper's order."""
    commands: dict[str, list[Result]] = {}
    for result in results:
        if result.verdict == "not run":
            commands.setdefault(paper.command(result.claim.make, runs), []).append(result)
    return commands
