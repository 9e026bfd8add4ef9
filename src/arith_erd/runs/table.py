"""Runs as a pandas table with a row for each run and seed, and means over seeds."""

import math
import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from glob import glob
from pathlib import Path
from types import NoneType
from typing import Any

import pandas as pd

from ..errors import UNREADABLE, UserError
from ..stats import Estimate, Mean
from ..system.files import is_locked
from .directory import ADDED, DEFAULT_POSITIONS, FINISHED, METRICS, Run, identity, leaves
from .replicas import read_contents

TableRow = dict[str, Any]
"""A row of `load_table`."""
RESULTS = [name for name in METRICS if name.startswith(("train_", "val_"))]


def load_table(runs: str | Path | Iterable[Path | str | Run] = "runs", also: Sequence[str] = ()) -> pd.DataFrame:
    """A table of the runs in a folder, of a glob, or in a list of run directories: a row for each run and seed.

    Columns: ``run`` (its name), each setting that differs between the runs by its dotted key, ``seed``, ``epochs`` done
    of ``max_epochs``, the columns of ``metrics.csv`` after the last of them (accuracies are fractions), ``state``,
    ``device``, ``age`` (seconds since the last write) and ``path``. Settings that cannot change the weights are left
    out; those in ``also`` have a column even if all runs agree.

    The state is ``finished``, ``training``, ``failed`` or ``stopped``; ``damaged`` if a finished run's ``summary.json``
    does not fit its other files; ``unreadable`` if the configuration or metrics cannot be read, which gives a single
    row; ``replaced`` for the old run of ``overwrite=true``. If there is no run, it raises a `UserError`.

    >>> import arith_erd as ae
    >>> table = ae.load_table("runs/add-*")  # doctest: +SKIP
    >>> table.groupby("split.fraction")["val_seq_acc"].mean()  # doctest: +SKIP
    """
    if isinstance(runs, str | Path):
        inside = os.path.isdir(runs) and not _is_run(runs)
        paths = sorted(Path(runs).iterdir() if inside else map(Path, glob(str(runs))))
    else:
        paths = [run.path if isinstance(run, Run) else Path(run) for run in runs]
    directories = [Run(path) for path in paths if _is_run(path) and not path.name.startswith(".")]
    if not directories:
        raise UserError(f"{runs}: no run there; expected a folder of runs, or a glob of run directories in quotes")
    old = [run.backup for run in directories if _is_run(run.backup.path)]
    rows = [row for run in directories for row in _rows(run)]
    rows += [row | {"run": row["run"][1:-4], "state": "replaced"} for run in old for row in _rows(run)]
    table = pd.DataFrame(rows)
    readable = table[table["state"] != "unreadable"]
    shown = [key for key in settings_columns(table) if key in also or readable[key].map(str).nunique() > 1]
    whole = [key for key in shown if {type(row.get(key)) for row in rows} == {int, NoneType}]  # floats, beside a gap
    columns = ["run", *shown, "seed", "epochs", "max_epochs", *RESULTS, "state", "device", "age", "path"]
    return table.reindex(columns=columns).astype(dict.fromkeys(("seed", "epochs", "max_epochs", *whole), "Int64"))


def settings_columns(table: pd.DataFrame) -> list[str]:
    """The columns of a table of `load_table` that are settings."""
    return [key for key in table if "." in key]


def accuracy_by_slice(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """A row for each kind of example in ``slices.csv``, such as each ``length``, with its own ``val_seq_acc``."""
    parts = []
    for path, rows in table.groupby("path"):
        with suppress(OSError):
            slices = pd.read_csv(Run(Path(str(path))).slices_file).rename(columns={"value": name})
            last = slices[(slices["slice"] == name) & (slices["epoch"] == slices["epoch"].max())]
            parts.append(rows.drop(columns="val_seq_acc").merge(last[["seed", name, "val_seq_acc"]], on="seed"))
    return pd.concat(parts) if parts else table.iloc[:0].assign(**{name: []})


def mean_accuracies(table: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Group finished runs by some columns: a table with ``seeds``, ``accuracy``, ``low``, ``high``.

    The accuracy is the mean final validation sequence accuracy over the seeds, with a 95% interval from three seeds on
    (`stats`). A seed that is in several runs of the same settings counts once.
    """
    finished = table[table["state"] == FINISHED].drop_duplicates([*{*settings_columns(table), *keys, "seed"}])
    rows = []
    for values, part in finished.groupby([*keys], dropna=False):
        estimate = Estimate.of_means([Mean.of(part["val_seq_acc"])], (0.0, 1.0))
        low, high = estimate.interval or (None, None)
        row = {"seeds": len(part), "accuracy": estimate.value, "low": low, "high": high}
        rows.append(dict(zip(keys, values, strict=True)) | row)
    return pd.DataFrame(rows, columns=[*keys, "seeds", "accuracy", "low", "high"])


def percent(accuracy: float, low: float = math.nan, high: float = math.nan) -> str:
    """An accuracy as text: ``98.76% [97.30, 100.00]``, without the interval if it is NaN, empty if all are."""
    interval = "" if pd.isna(low) else f" [{100 * low:.2f}, {100 * high:.2f}]"
    return "" if pd.isna(accuracy) else f"{accuracy:.2%}{interval}"


def _is_run(path: Path | str) -> bool:
    return os.path.isfile(os.path.join(path, "config.yaml"))


def _rows(run: Run) -> list[TableRow]:
    row: TableRow = {"run": run.name, "path": str(run.path), "state": "unreadable", "age": 0.0}
    with suppress(*UNREADABLE, OSError):
        written = (run.config_file, run.metrics_file, run.summary_file, run.checkpoint)
        row["age"] = max(time.time() - max(path.stat().st_mtime for path in written if path.is_file()), 0.0)
        contents = read_contents(run)
        who = identity(contents.config)
        known = dict(leaves({**contents.config, "trainer": who["trainer"]}))
        positions = {"model.net.positions": DEFAULT_POSITIONS.get(known["model.net._target_"])}
        known = dict(leaves(ADDED)) | positions | {key: x for key, x in known.items() if key.split(".")[0] in who}
        shown = {k: value for k, value in known.items() if "." in k and not k.endswith("_target_")}
        # As texts, to group by.
        shown = {key: str(value) if isinstance(value, list | dict) else value for key, value in shown.items()}
        last = contents.metrics.drop_duplicates("seed", keep="last").set_index("seed")[RESULTS].to_dict("index")
        state = FINISHED if contents.replicas[0]["finished"] else _state(run, bool(contents.problem))
        of_run = row | shown | {"state": state}
        facts = ("seed", "epochs", "max_epochs", "device")
        return [of_run | {key: r.get(key) for key in facts} | last.get(r["seed"], {}) for r in contents.replicas]
    return [row]


def _state(run: Run, damaged: bool) -> str:
    if is_locked(run.path):
        return "training"
    return "damaged" if damaged else "failed" if run.error.is_file() else "stopped"
