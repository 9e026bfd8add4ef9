"""Measures of claims, a class for each kind. A measure has one value per replica, and says which data are missing."""

import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, model_validator

from ..errors import unknown_name
from ..plots.curves import pivot_forward_filled
from ..stats import TARGET_ACCURACY
from .collect import AUTHORS_WEIGHTS, DEFAULT_OPTIONS, OUR_RUNS, TASK_ALONE, RunData

RunOptions: TypeAlias = Mapping[str, Any]  # options that choose runs; other options have their defaults
SeedBounds: TypeAlias = tuple[pd.Series, pd.Series]  # lower and upper bounds of a value, by replica
TAIL_EPOCHS = 10  # epochs at the end of training


class StrictModel(BaseModel):
    """A part of a claims file, whose keys are the fields of the class."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Derived(NamedTuple):
    """A number that follows without a run, the accuracy that no seed can then exceed, and a note about both."""

    value: float
    limit: float
    note: str


class Measure(StrictModel):
    """A kind of measurement, and the runs to measure.

    A subclass defines `value`. The fields that it adds are keys of the claims file.
    """

    runs: RunOptions
    minus: RunOptions | None = None  # options of other runs, whose measure is subtracted
    over: RunOptions | None = None  # options of the runs whose measure is the divisor
    more_than: RunOptions | None = None  # options of further runs, whose difference is subtracted from the first one
    planned: int = 0  # epochs that a run must have done; for `EpochsTo`, epochs that it was planned for
    source: ClassVar[str] = OUR_RUNS
    prefers_shortest: ClassVar[bool] = False  # whether to take the shortest of runs that differ only in length
    missing_message: ClassVar[str] = "no value in the runs of {runs}"  # message if they are finished and long enough

    @property
    def weighted_runs(self) -> list[tuple[float, RunOptions]]:
        """Each kind of run with its weight in the difference. In a ratio the second kind is the divisor."""
        other = self.minus or self.over
        terms = [(1.0, self.runs)] + ([(-1.0, {**self.runs, **other})] if other else [])
        return terms + [(-weight, {**runs, **self.more_than}) for weight, runs in terms if self.more_than]

    def values(self, data: RunData, runs: RunOptions) -> pd.DataFrame:
        """A row ``replica, seed, low, high`` for each replica. The bounds are equal unless the value is censored."""
        replicas = data.select(runs, finished=True)
        if replicas.empty:
            return _single_value(np.nan)
        low, high = self.bounds(data, replicas)
        table = replicas[["seed", "trajectory_hash", "epochs"]]
        table = table.join(pd.DataFrame({"low": low, "high": high}), how="inner").dropna()
        table = table.sort_values("epochs", ascending=self.prefers_shortest, kind="stable")
        table = table.drop_duplicates(["trajectory_hash", "seed"]).sort_values(["seed", "trajectory_hash"])
        return table.reset_index(names="replica")[["replica", "seed", "low", "high"]]

    def bounds(self, data: RunData, replicas: pd.DataFrame) -> SeedBounds:
        """Lower and upper bounds of the value, for each finished replica that has one; equal unless it is censored."""
        value = self.value(data, replicas)
        return value, value

    def value(self, data: RunData, replicas: pd.DataFrame) -> pd.Series:
        """The value of each finished replica that has one, by the index of ``replicas``, rows of `RunData.replicas`."""
        raise NotImplementedError

    def derived(self) -> Derived | None:
        """The claim's number if it is derived; then `value` only confirms that it is a limit."""
        return None

    def missing_reason(self, data: RunData, runs: RunOptions) -> str:
        options = {key: value for key, value in runs.items() if key != "min_epochs"}
        replicas, description = data.select(options), describe_options(runs)
        if self.source == TASK_ALONE:
            return self.missing_message.format(measure=self, runs=description)
        if replicas.empty:
            others = data.with_options(options)
            but = " (but {run} has {unpublished_settings} instead of the paper's)"
            but = "" if others.empty else but.format(**others.iloc[0])
            return f"no run of {description}{but}"
        finished = replicas[replicas["finished"]]
        if finished.empty:
            return f"the run of {description} is at epoch {replicas['epochs'].max()}, unfinished"
        if self.required_epochs and finished["stop_at"].notna().all():
            return f"all runs of {description} stop at an accuracy (trainer.stop_at), so they have no value at an epoch"
        if (longest := finished["epochs"].max()) < (needed := self.required_epochs or runs.get("min_epochs", 0)):
            return f"the longest run of {description} has {longest} of {needed} epochs"
        return self.missing_message.format(measure=self, runs=description)

    @property
    def required_epochs(self) -> int:
        """The number of epochs that a run needs to have a value; 0 if any length will do."""
        return self.planned


def describe_options(runs: RunOptions) -> str:
    """The options that differ from the defaults: ``mul, vs_v``."""
    words = {"prompt_order": " prompt", "completion_order": " completion"}
    shown = {key: value for key, value in runs.items() if key != "min_epochs" and value != DEFAULT_OPTIONS.get(key)}
    return ", ".join(f"{value}{words.get(key, '')}" for key, value in shown.items())


def _single_value(value: float) -> pd.DataFrame:
    """A table with one value that belongs to no replica; empty for NaN."""
    return pd.DataFrame({"replica": [-1], "seed": [0], "low": [value], "high": [value]}, dtype=float).dropna()


class Metrics(Measure):
    """A column of ``metrics.csv`` at ``epoch``, or reduced over the epochs up to ``until``.

    ``reduce: fall`` is the largest fall below an earlier accuracy. ``tail`` takes the median or the mean of the last
    ten epochs up to ``epoch``, all of which a run must have.
    """

    column: str
    epoch: int | None = Field(default=None, ge=1)
    until: int | None = Field(default=None, ge=1)
    minus_column: str = ""
    reduce: Literal["first", "max", "fall"] = "first"
    tail: Literal["", "median", "mean"] = ""
    prefers_shortest: ClassVar[bool] = True

    @model_validator(mode="after")
    def _check_epochs(self) -> "Metrics":
        if (self.epoch is None) == (self.until is None):
            raise ValueError("expected either measure.epoch or measure.until")
        if (self.until is None) == (self.reduce != "first"):
            raise ValueError("expected measure.reduce: max or fall with measure.until, and only with it")
        if self.tail and self.until:
            raise ValueError("expected measure.tail only with measure.epoch")
        return self

    @property
    def required_epochs(self) -> int:
        return self.until or self.epoch or 0

    def value(self, data: RunData, replicas: pd.DataFrame) -> pd.Series:
        # With trainer.stop_at only seeds that learn late train so long, so none of such a run has a value at an epoch.
        counted = replicas.index[(replicas["epochs"] >= self.required_epochs) & replicas["stop_at"].isna()]
        first = 1 if self.until else self.required_epochs + 1 - (TAIL_EPOCHS if self.tail else 1)
        rows = data.metrics[data.metrics["replica"].isin(counted)]
        rows = rows[rows["epoch"].between(first, self.required_epochs)]
        column = rows[self.column]
        if self.minus_column:
            column = column - rows[self.minus_column]
        if self.reduce == "fall":
            column = column.groupby(rows["replica"]).cummax() - column
        groups = column.groupby(rows["replica"])
        reduced = groups.agg(self.tail or ("max" if self.reduce == "fall" else self.reduce))
        return reduced[groups.size() == TAIL_EPOCHS] if self.tail else reduced


class Summary(Measure):
    """A column of ``runs.csv``; with ``epoch``, only of runs that ended at that epoch."""

    column: str
    epoch: int | None = Field(default=None, ge=0)

    def value(self, data: RunData, replicas: pd.DataFrame) -> pd.Series:
        ended = replicas if self.epoch is None else replicas[replicas["epochs"] == self.epoch]
        return ended[self.column].astype(float)


class EpochsTo(Measure):
    """The first epoch with an accuracy. A seed that never reaches it counts as later than its last epoch.

    Only runs planned for ``planned`` epochs or more count, since shorter ones can only succeed early or be censored,
    which would bias the seeds. By default ``planned`` is the last epoch that counts as reproduced.
    """

    accuracy: float
    column: str = "val_seq_acc"

    def bounds(self, data: RunData, replicas: pd.DataFrame) -> SeedBounds:
        replicas = replicas[replicas["max_epochs"] >= self.planned]
        rows = data.metrics[data.metrics[self.column] >= self.accuracy]
        first = rows.groupby("replica")["epoch"].min().reindex(replicas.index).astype(float)
        if (self.accuracy, self.column) == (TARGET_ACCURACY, "val_seq_acc"):
            # Summaries know it where metrics.csv lacks epochs.
            num_rows = data.metrics.groupby("replica").size().reindex(replicas.index)
            first = first.where(num_rows == replicas["epochs"], replicas["epochs_to_95"])
        return first.fillna(replicas["epochs"]), first.fillna(np.inf)

    def first_epoch_of_mean(self, data: RunData, values: pd.DataFrame) -> int | None:
        """The first epoch at which the mean over seeds reaches the accuracy; stopped seeds keep their last value."""
        rows = data.metrics[data.metrics["replica"].isin(values["replica"])]
        curves = pivot_forward_filled(rows, self.column, "replica")
        complete = len(curves) > 0 and len(curves) == curves.index.max()
        reached = curves.index[curves.mean(axis=1, skipna=False) >= self.accuracy]
        return int(reached[0]) if complete and len(reached) else None


def _numeric_column(table: pd.DataFrame, column: str, key: str = "column") -> pd.Series:
    """A column of a probe's rows; a `UserError` that starts with the key unless it has numbers."""
    known = [name for name in table if pd.api.types.is_numeric_dtype(table[name])]
    if column not in known:
        raise unknown_name(f"measure.{key}", column, known, f"a column of numbers: {', '.join(known)}")
    return table[column]


LAYER_REDUCTIONS: Mapping[str, Callable[[pd.Series, Any], Any]] = {  # functions of (values by layer, ``at``)
    "argmin": lambda values, at: values.idxmin(),
    "argmax": lambda values, at: values.idxmax(),
    "count": lambda values, at: len(values),
    "behind_min": lambda values, at: abs(values.min() - values.get(at, np.nan)),
    "behind_max": lambda values, at: abs(values.max() - values.get(at, np.nan)),
    "dip": lambda values, at: values.iloc[[0, -1]].min() - values.iloc[1:-1].min(),
    "bump": lambda values, at: values.iloc[1:-1].max() - values.iloc[[0, -1]].max(),
}


class ProbeColumn(Measure):
    """A column of a probe's rows ``where`` other columns have these values, one value per replica.

    ``reduce`` makes one value from several rows: the largest, the mean ``weighted`` by the column ``along``, or a
    function of `LAYER_REDUCTIONS`, where the column ``along`` has the layers and ``at`` is one of them.
    """

    probe: str
    column: str
    where: Mapping[str, str | bool | int | float] = Field(default_factory=dict)
    reduce: Literal["", "max", "argmin", "argmax", "behind_min", "behind_max", "dip", "bump", "weighted"] = ""
    along: str = ""
    at: float | None = None
    of: Literal["runs", "task"] = "runs"
    missing_message: ClassVar[str] = "probe={measure.probe} has not been run on {runs}"

    @model_validator(mode="after")
    def _check_reduced(self) -> "ProbeColumn":
        if self.reduce not in ("", "max") and not self.along:
            raise ValueError(f"expected measure.along with measure.reduce: {self.reduce}")
        if self.reduce.startswith("behind") and self.at is None:
            raise ValueError(f"expected measure.at with measure.reduce: {self.reduce}")
        return self

    @property
    def source(self) -> str:  # type: ignore[override]
        return TASK_ALONE if self.of == "task" else OUR_RUNS

    def values(self, data: RunData, runs: RunOptions) -> pd.DataFrame:
        return super().values(data, runs) if self.of == "runs" else self._outside_runs(data, runs, TASK_ALONE)

    def authors_values(self, data: RunData, runs: RunOptions) -> pd.DataFrame:
        """`values` of the authors' weights, if they were probed."""
        wanted = set(runs) <= {"task", "min_epochs"} and self.of == "runs"
        return self._outside_runs(data, runs, AUTHORS_WEIGHTS) if wanted else _single_value(np.nan)

    def _outside_runs(self, data: RunData, runs: RunOptions, source: str) -> pd.DataFrame:
        rows = self._rows(data, source, runs["task"])
        return _single_value(self._reduce(rows) if len(rows) else np.nan)

    def value(self, data: RunData, replicas: pd.DataFrame) -> pd.Series:
        rows = self._rows(data, OUR_RUNS, replicas["task"].iloc[0])
        groups = rows[rows["replica"].isin(replicas.index)].groupby("replica")
        return pd.Series({replica: self._reduce(part) for replica, part in groups}, dtype=float)

    def missing_reason(self, data: RunData, runs: RunOptions) -> str:
        rows = data.probes.get(self.probe)
        if rows is None or not ((rows["source"] == self.source) & (rows["task"] == runs["task"])).any():
            return super().missing_reason(data, runs)
        return f"{super().missing_reason(data, runs)}, or its rows have no such column, where or along"

    def _rows(self, data: RunData, source: str, task: str) -> pd.DataFrame:
        rows = data.probes.get(self.probe)
        if rows is None or not {*self.where, self.column, self.along or self.column} <= set(rows):
            return pd.DataFrame({"replica": []})
        rows = rows[(rows["source"] == source) & (rows["task"] == task) & (rows["unpublished_settings"] == "")]
        for column, wanted in self.where.items():
            above = re.fullmatch(r">\s*(-?\d*\.?\d+)", wanted) if isinstance(wanted, str) else None
            rows = rows[_numeric_column(rows, column, "where") > float(above[1]) if above else rows[column] == wanted]
        return rows

    def _reduce(self, rows: pd.DataFrame) -> float:
        column = _numeric_column(rows, self.column)
        if self.reduce == "weighted":
            weights = _numeric_column(rows, self.along, "along")
            return float(np.average(column, weights=weights)) if weights.sum() else np.nan
        if not self.reduce:
            return float(column.iloc[0]) if len(column) == 1 else np.nan
        if self.reduce == "max":
            return float(column.max())
        by_layer = rows.groupby(_numeric_column(rows, self.along, "along"))[self.column].mean().dropna()
        return float(LAYER_REDUCTIONS[self.reduce](by_layer, self.at)) if len(by_layer) >= 3 else np.nan


MEASURES: Mapping[str, type[Measure]] = {
    "metrics": Metrics,
    "summary": Summary,
    "epochs_to": EpochsTo,
    "probe": ProbeColumn,
}
"""The measures that a claim can name as ``from``, besides classes of a Python file beside the claims file."""
