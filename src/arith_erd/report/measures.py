"""How a claim is measured: one class for each way. Each gives one value per replica, and says what it lacks."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import pandas as pd
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from ..bits import VOCAB_SIZE
from ..plots.curves import carried
from ..splits import RandomSplit, TokenSplit, ValueSplit
from ..tasks import Add, Examples, Mul, RandomOutput
from ..tasks.ceilings import ceiling
from .collect import DEFAULTS, EXACT, GIVEN, OURS, Collection, kind_of

Runs: TypeAlias = Mapping[str, Any]  # options by which runs are chosen; what is not named has its default
CLOSED = ConfigDict(extra="forbid")
TAIL = 10  # epochs at the end of training


class Measure(ABC):
    """A way to measure; its fields are the keys of ``measure`` in ``paper.yaml``."""

    source: ClassVar[str] = OURS

    @abstractmethod
    def values(self, found: Collection, runs: Runs) -> pd.DataFrame:
        """One row per replica: ``replica, seed, low, high``; the bounds are equal unless the value is censored."""

    def missing(self, found: Collection, runs: Runs) -> str:
        """What keeps these runs from having a value; empty if nothing does."""
        return ""


class OfRuns(Measure):
    """A measure of finished runs."""

    shortest: ClassVar[bool] = False  # whether of replicas that differ only in length the shortest counts

    def values(self, found: Collection, runs: Runs) -> pd.DataFrame:
        replicas = found.chosen(runs, finished=True)
        if replicas.empty:
            return _one(np.nan)
        low, high = self.bounds(found, replicas)
        table = replicas[["seed", "trajectory", "epochs"]].join(pd.DataFrame({"low": low, "high": high}), how="inner")
        table = table.dropna().sort_values("epochs", ascending=self.shortest, kind="stable")
        table = table.drop_duplicates(["trajectory", "seed"]).sort_values(["seed", "trajectory"])
        return table.reset_index(names="replica")[["replica", "seed", "low", "high"]]

    @abstractmethod
    def bounds(self, found: Collection, replicas: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
        """Of finished replicas, as far as they have a value, the smallest and the largest that it can be."""

    def missing(self, found: Collection, runs: Runs) -> str:
        loose = {key: value for key, value in runs.items() if key != "min_epochs"}
        replicas = found.chosen(loose)
        if replicas.empty:
            others = found.replicas[found.replicas["kind"] == kind_of(loose)]
            but = f" (but {others.iloc[0]['run']} departs in {others.iloc[0]['departs']})" if len(others) else ""
            return f"no run of {describe(loose)}{but}"
        finished, needed = replicas[replicas["finished"]], self.epochs(runs)
        if finished.empty:
            return f"the run of {describe(loose)} is at epoch {replicas['epochs'].max()}, unfinished"
        if (longest := finished["epochs"].max()) < needed:
            return f"the longest run of {describe(runs)} has {longest} of {needed} epochs"
        return self.lacking(finished, describe(runs))

    def epochs(self, runs: Runs) -> int:
        return int(runs.get("min_epochs", 0))

    def lacking(self, finished: pd.DataFrame, what: str) -> str:
        """What finished replicas that are long enough still lack."""
        return ""


def describe(runs: Runs) -> str:
    """``mul, vs_v``: what differs from the defaults."""
    words = {f"{what}_order": f" {what}" for what in ("prompt", "completion")}
    shown = {key: value for key, value in runs.items() if key != "min_epochs" and value != DEFAULTS.get(key)}
    return ", ".join(f"{value}{words.get(key, '')}" for key, value in shown.items())


def _one(value: float) -> pd.DataFrame:
    """A value that belongs to no replica; none if it is not known."""
    known = np.isfinite(value)
    return pd.DataFrame({"replica": [-1], "seed": [0], "low": [value], "high": [value]}, dtype=float).iloc[: int(known)]


@dataclass(frozen=True, config=CLOSED)
class Metrics(OfRuns):
    """A column of ``metrics.csv`` at ``epoch``, or reduced over the epochs up to ``until``.

    ``reduce: fall`` is the largest fall below an accuracy reached before. ``tail`` is the median or the mean of
    the last ten epochs up to ``epoch``; a run must have all ten.
    """

    column: str
    epoch: int | None = None
    until: int | None = None
    minus_column: str = ""
    reduce: Literal["first", "max", "min", "fall"] = "first"
    tail: Literal["", "median", "mean"] = ""
    shortest: ClassVar[bool] = True

    @property
    def last(self) -> int:
        return self.until or self.epoch or 0

    def bounds(self, found: Collection, replicas: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
        first = 1 if self.until else self.last + 1 - (TAIL if self.tail else 1)
        rows = found.metrics[found.metrics["replica"].isin(replicas.index[replicas["epochs"] >= self.last])]
        rows = rows[rows["epoch"].between(first, self.last)]
        column = rows[self.column] - (rows[self.minus_column] if self.minus_column else 0)
        if self.reduce == "fall":
            column = column.groupby(rows["replica"]).cummax() - column
        groups = column.groupby(rows["replica"])
        reduced = groups.agg(self.tail or ("max" if self.reduce == "fall" else self.reduce))
        reduced = reduced[groups.size() == TAIL] if self.tail else reduced
        return reduced, reduced

    def epochs(self, runs: Runs) -> int:
        return self.last

    def lacking(self, finished: pd.DataFrame, what: str) -> str:
        return f"metrics.csv of {what} lacks some of the last {TAIL} epochs" if self.tail else ""


@dataclass(frozen=True, config=CLOSED)
class Ceiling(OfRuns):
    """The exact ceiling of an ablation; of each run of ``epochs`` or more, the largest validation accuracy.

    The networks cannot exceed the ceiling of their validation set, so they confirm that the argument holds.
    """

    epochs_at_least: int

    def bounds(self, found: Collection, replicas: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
        rows = found.metrics[found.metrics["replica"].isin(replicas.index[replicas["epochs"] >= self.epochs_at_least])]
        reached = rows.groupby("replica")["val_seq_acc"].max()
        return reached, reached

    def epochs(self, runs: Runs) -> int:
        return self.epochs_at_least

    def of(self, runs: Runs, subset: str = "") -> float:
        """The ceiling of all pairs, or of the validation pairs with the answers chosen for these."""
        examples, held_out = _table(str(runs["task"]), str(runs.get("split", "random")))
        chosen = held_out if subset else held_out | True
        return ceiling(examples.prompt[chosen], examples.completion[chosen], str(runs["ablation"]))


@dataclass(frozen=True, config=CLOSED)
class Summary(OfRuns):
    """A column of ``runs.csv``, of runs that ended at ``epoch`` if one is given."""

    column: str
    epoch: int | None = None

    def bounds(self, found: Collection, replicas: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
        ended = replicas if self.epoch is None else replicas[replicas["epochs"] == self.epoch]
        column = ended[self.column].astype(float)
        return column, column

    def lacking(self, finished: pd.DataFrame, what: str) -> str:
        return "" if self.epoch is None else f"no run of {what} ended at epoch {self.epoch}"


@dataclass(frozen=True, config=CLOSED)
class EpochsTo(OfRuns):
    """The first epoch with an accuracy; a seed that never gets there counts as later than its last epoch.

    Only runs that were to train for ``planned`` epochs or more count: a shorter trial could only be censored, or
    succeed, and would bias the seeds. Unsaid, it is the last epoch that counts as reproduced.
    """

    accuracy: float
    planned: int = 0
    column: str = "val_seq_acc"

    def bounds(self, found: Collection, replicas: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
        replicas = replicas[replicas["max_epochs"] >= self.planned]
        rows = found.metrics[found.metrics[self.column] >= self.accuracy]
        first = rows.groupby("replica")["epoch"].min().reindex(replicas.index).astype(float)
        if (self.accuracy, self.column) == (0.95, "val_seq_acc"):  # summaries know it where metrics.csv lacks epochs
            have = found.metrics.groupby("replica").size().reindex(replicas.index)
            first = first.where(have == replicas["epochs"], replicas["epochs_to_95"])
        return first.fillna(replicas["epochs"]), first.fillna(np.inf)

    def lacking(self, finished: pd.DataFrame, what: str) -> str:
        most = finished["max_epochs"].max()
        return f"the longest run of {what} was to end at epoch {most}" if most < self.planned else ""

    def of_average(self, found: Collection, values: pd.DataFrame) -> int | None:
        """The first epoch at which the mean over the seeds gets there; a seed that stopped keeps its last value."""
        curves = carried(found.metrics[found.metrics["replica"].isin(values["replica"])], self.column, "replica")
        complete = len(curves) > 0 and len(curves) == curves.index.max()
        reached = curves.index[curves.mean(axis=1, skipna=False) >= self.accuracy]
        return int(reached[0]) if complete and len(reached) else None


@dataclass(frozen=True, config=CLOSED)
class ProbeColumn(OfRuns):
    """A column of a probe's rows ``where`` other columns have these values, one value per replica.

    ``reduce`` brings several rows to one value: ``argmin`` and ``argmax`` the place ``along`` another column,
    ``behind_*`` how far ``at`` is from the extreme, ``dip`` how far the lowest inner place is below the lower end,
    ``bump`` the highest above the higher end, ``weighted`` the mean with the weights in ``along``.
    """

    probe: str
    column: str
    where: Mapping[str, Any] = field(default_factory=dict)
    reduce: Literal["", "max", "min", "argmin", "argmax", "behind_min", "behind_max", "dip", "bump", "weighted"] = ""
    along: str = ""
    at: float | None = None
    of: Literal["runs", "task"] = "runs"

    @property
    def source(self) -> str:  # type: ignore[override]
        return EXACT if self.of == "task" else OURS

    def values(self, found: Collection, runs: Runs) -> pd.DataFrame:
        if self.of == "runs":
            return super().values(found, runs)
        rows = self._rows(found, EXACT, str(runs["task"]))
        return _one(self._reduce(rows) if len(rows) else np.nan)

    def bounds(self, found: Collection, replicas: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
        rows = self._rows(found, OURS, str(replicas["task"].iloc[0]))
        groups = rows[rows["replica"].isin(replicas.index)].groupby("replica")
        reduced = pd.Series({replica: self._reduce(part) for replica, part in groups}, dtype=float)
        return reduced, reduced

    def theirs(self, found: Collection, runs: Runs) -> pd.DataFrame:
        """The same on the authors' weights, if that was asked."""
        wanted = set(runs) <= {"task", "min_epochs"} and self.of == "runs"
        rows = self._rows(found, GIVEN, str(runs["task"]))
        return _one(self._reduce(rows) if wanted and len(rows) else np.nan)

    def missing(self, found: Collection, runs: Runs) -> str:
        if self.of == "runs":
            return super().missing(found, runs)
        rows = found.probes.get(self.probe, pd.DataFrame(columns=["source", "task", "departs"]))
        asked = rows[(rows["source"] == EXACT) & (rows["task"] == runs["task"]) & (rows["departs"] != "")]
        but = f" (but one departs in {asked['departs'].min()})" if len(asked) else ""
        return f"{self.lacking(rows, describe(runs))}{but}"

    def lacking(self, finished: pd.DataFrame, what: str) -> str:
        return f"probe={self.probe} has not been asked about {what}"

    def _rows(self, found: Collection, source: str, task: str) -> pd.DataFrame:
        rows = found.probes.get(self.probe)
        if rows is None or not {*self.where, self.column, self.along or self.column} <= set(rows):
            return pd.DataFrame({"replica": []})
        rows = rows[(rows["source"] == source) & (rows["task"] == task) & (rows["departs"] == "")]
        for column, wanted in self.where.items():
            above = isinstance(wanted, str) and wanted.startswith("> ")
            rows = rows[rows[column] > float(wanted[2:]) if above else rows[column] == wanted]
        return rows

    def _reduce(self, rows: pd.DataFrame) -> float:
        column = rows[self.column]
        if self.reduce == "weighted":
            return float(np.average(column, weights=rows[self.along]))
        if not self.reduce:
            return float(column.iloc[0]) if len(column) == 1 else np.nan
        if not self.along:
            return float(column.agg(self.reduce))
        by_place = rows.groupby(self.along)[self.column].mean().dropna()
        if len(by_place) < 3:
            return np.nan
        if self.reduce.startswith("arg"):
            return float(by_place.agg(self.reduce.replace("arg", "idx")))
        if self.reduce.startswith("behind"):
            return float(abs(by_place.agg(self.reduce.removeprefix("behind_")) - by_place.get(self.at, np.nan)))
        ends, inner = by_place.iloc[[0, -1]], by_place.iloc[1:-1]
        return float(ends.min() - inner.min() if self.reduce == "dip" else inner.max() - ends.max())


@dataclass(frozen=True, config=CLOSED)
class OfExamples(Measure):
    """A number that follows from the definition of a task and a split: no run is needed."""

    count: Literal["pairs", "prompt_tokens", "completion_tokens", "tokens", "vocabulary", "largest_operand"]
    subset: Literal["", "train", "validation"] = ""
    source: ClassVar[str] = EXACT

    def values(self, found: Collection, runs: Runs) -> pd.DataFrame:
        examples, held_out = _table(str(runs["task"]), str(runs.get("split", "random")))
        pairs = {"": len(examples), "train": (~held_out).sum(), "validation": held_out.sum()}
        prompt, completion = examples.prompt.shape[1], examples.completion.shape[1]
        number = {"pairs": pairs[self.subset], "prompt_tokens": prompt, "completion_tokens": completion}
        number |= {"tokens": prompt + completion, "vocabulary": VOCAB_SIZE, "largest_operand": examples.a.max()}
        return _one(float(number[self.count]))


@cache
def _table(task: str, split: str) -> tuple[Examples, np.ndarray[Any, Any]]:
    examples = {"add": Add, "mul": Mul, "random_output": RandomOutput}[task]().examples()
    return examples, {"random": RandomSplit, "vs_t": TokenSplit, "vs_v": ValueSplit}[split]()(examples)


MEASURES: Mapping[str, type[Measure]] = {
    "metrics": Metrics,
    "ceiling": Ceiling,
    "summary": Summary,
    "epochs_to": EpochsTo,
    "probe": ProbeColumn,
    "examples": OfExamples,
}
