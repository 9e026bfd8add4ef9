"""What a claim asks for, measured on runs: a value of every replica, or the bounds of one that is censored."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from .collect import EXACT, GIVEN, OURS, Collection, matches


def measure_claim(measure: Mapping[str, Any], found: Collection) -> tuple[pd.DataFrame, str, int]:
    """Values with columns ``replica, seed, low, high``; where they come from; and how many replicas still train."""
    if measure["from"] == "probe" and "runs" not in measure:
        return probe_values(measure, found, EXACT), EXACT, 0
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
            replicas = replicas[replicas["max_epochs"] >= measure["planned"]]
            rows = found.metrics[found.metrics["val_seq_acc"] >= measure["accuracy"]]
            low = high = rows.groupby("replica")["epoch"].min().reindex(replicas.index).astype(float)
            low, high = low.fillna(replicas["epochs"]), high.fillna(np.inf)
        case _:
            return probe_values(measure, found, OURS, replicas)
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


def probe_values(
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
