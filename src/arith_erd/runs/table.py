"""Read run directories: a row for each run and seed, a pandas table of them, and means over seeds."""

import math
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from glob import glob
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np
import pandas as pd

from ..checks import user_path
from ..errors import UserError, counted, excerpt, file_may_be_intact, first_line, warn
from ..seeds import format_ranges, parse_seeds
from ..stats import Estimate, Moments
from ..system.files import is_locked, run_path
from .directory import FINISHED, METRIC_COLUMNS, Row, Run, as_written, is_run, matching_runs
from .identity import NAMED_GROUPS, flat_settings, identity_settings, require_name, short_hash, weights_config

ORDER_KEYS = ("prompt_order", "completion_order")
VERSIONS = ("arith_erd", "commit", "python", "torch", "lightning")
ACCURACY_COLUMNS = [name for name in METRIC_COLUMNS if name.startswith(("train_", "val_"))]
SUMMARY_COLUMNS = (
    *("train_seq_acc", "val_seq_acc", "val_token_acc", "val_token_acc_autoregressive", "val_mae", "epochs_to_95"),
    *("params", "train_flops", "train_tokens", "minutes"),
)


def read_replicas(run: Run) -> tuple[list[Row], pd.DataFrame]:
    """Read a run directory: a row for each seed, and ``metrics.csv`` with a row for each epoch and seed.

    The ``state`` is ``finished`` if the summary has all seeds of the configuration, and ``metrics.csv`` all epochs of
    the summary. Weights may be missing, as most are in ``paper/results/runs/``. If the summary is damaged, ``problem``
    describes this. A damaged configuration or ``metrics.csv``, or a file that we may not read, raises an error.
    """
    config, written = run.config(), run.metrics()
    try:
        seeds, columns = parse_seeds(config["seed"]), _config_columns(config)
    except Exception as error:
        raise UserError(f"config.yaml: not that of a run ({type(error).__name__}: {error})") from error
    metrics = pd.DataFrame(written, columns=list(METRIC_COLUMNS), dtype="float64")
    metrics = metrics.astype({"epoch": "int64", "seed": "int64"}).drop_duplicates(["epoch", "seed"], keep="last")
    summaries: dict[int, Row] = {}
    state, problem = "failed" if run.error_file.is_file() else "stopped", ""
    if os.path.lexists(run.summary_file):
        try:
            last_epochs = metrics.groupby("seed")["epoch"].last()
            summaries, state = _summary_columns(run.summary(), seeds, last_epochs), FINISHED
        except Exception as error:
            if file_may_be_intact(error):
                raise
            state, problem = "damaged", f"summary.json: not that of a finished run ({excerpt(str(error))})"
    columns |= {"state": "training" if state != FINISHED and is_locked(run.path) else state, "problem": problem}
    if not math.isnan(columns["stop_at"]):  # in a pack a seed that stopped repeats its row until the others stop, too
        reached = metrics["val_seq_acc"] >= as_written(columns["stop_at"])
        stopped = reached.groupby(metrics["seed"]).transform(lambda at: at.shift(fill_value=False).cummax())
        metrics = metrics[~stopped]
    last = metrics.drop_duplicates("seed", keep="last").set_index("seed")
    ends = last.rename(columns={"epoch": "epochs"})[["epochs", *ACCURACY_COLUMNS]].to_dict("index")
    return [columns | {"seed": s, "epochs": 0} | ends.get(s, {}) | summaries.get(s, {}) for s in seeds], metrics


def _config_columns(config: Mapping[str, Any]) -> Row:
    settings, hashed = flat_settings(config), weights_config(config)
    del hashed["seed"]
    # Equal for runs that follow the same weights, whatever their length.
    trajectory = hashed | {"trainer": {"precision": hashed["trainer"]["precision"]}}
    return {
        **{group: require_name(f"{group}.name", settings[f"{group}.name"]) for group in NAMED_GROUPS},
        **{key: require_name(f"task.{key}", settings.get(f"task.{key}", "reverse")) for key in ORDER_KEYS},
        "max_epochs": np.int64(settings["trainer.max_epochs"]),
        "stop_at": float("nan" if (stop_at := settings["trainer.stop_at"]) is None else stop_at),
        "config_hash": short_hash(hashed, 12),
        "trajectory_hash": short_hash(trajectory, 12),
        "settings": settings,
    }


def _summary_columns(summary: Row, seeds: tuple[int, ...], last_epochs: "pd.Series[int]") -> dict[int, Row]:
    """Seed -> columns from the summary; ``last_epochs`` are those in ``metrics.csv``, by seed."""
    columns: Row = {"device": summary["device"], **{key: summary["versions"].get(key) for key in VERSIONS}}
    columns = {key: None if value is None else excerpt(str(value)) for key, value in columns.items()}
    columns |= {key: float(summary[key]) for key in ("params", "train_flops")}
    columns["train_tokens"] = summary["train_flops"] / (6 * summary["params"])
    columns["minutes"] = summary["wall_seconds"] / 60 / len(seeds)  # per replica
    if {row["seed"] for row in summary["seeds"]} != set(seeds):
        raise ValueError(f"its seeds are not those of config.yaml, {format_ranges(seeds)}")
    if set(last_epochs.index) != set(seeds) or (last_epochs != summary["epochs"]).any():
        raise ValueError("metrics.csv does not hold all its epochs")
    by_seed: dict[int, Row] = {}
    for row in summary["seeds"]:
        present = {key: row[key] for key in (*SUMMARY_COLUMNS, *ACCURACY_COLUMNS) if key in row}
        numbers = {key: math.nan if x is None else float(x) for key, x in present.items()}  # null means unknown
        by_seed[row["seed"]] = numbers | {"never_learnt": excerpt(", ".join(row.get("never_learnt", ())))} | columns
    return by_seed


def _runs_in(listed: Sequence[str | Path | Run]) -> list[Run]:
    """The runs in folders, of globs and by path, each once; a warning, or a `UserError`, as in `load_table`."""
    sources = [user_path(run.path if isinstance(run, Run) else run, "runs") for run in listed]
    directories: dict[Path, Run] = {}
    empty: list[Path] = []
    missing: list[Path] = []
    for source in sources:
        inside = os.path.isdir(source) and not is_run(source)
        paths = sorted(source.iterdir()) if inside else matching_runs(str(source))  # an error if it may not be read
        found = {path.resolve(): Run(path) for path in paths if is_run(path) and not path.name.startswith(".")}
        directories |= found
        if not found:
            empty += [] if os.path.isfile(source) else [source]
            missing += [] if os.path.lexists(source) or glob(str(source)) else [source]
    if not directories:
        received = ", ".join(map(str, listed)) or "[]"
        raise UserError(f"{received}: no run there; expected a folder of runs, or a glob of run directories in quotes")
    if missing:
        raise UserError(f"{missing[0]}: no such folder; expected only folders that exist, or globs in quotes")
    if empty:
        warn(f"left out {counted(len(empty), 'path')} without a run: {excerpt(', '.join(map(str, empty)))}")
    return [*directories.values()]


def load_table(runs: str | Path | Iterable[Path | str | Run] = "runs", also: Sequence[str] = ()) -> pd.DataFrame:
    """A table of the runs in a folder, of a glob, or in a list of these: a row for each run and seed.

    Columns: ``run`` (its name), each setting that differs between the runs by its dotted key, ``seed``, ``epochs`` done
    of ``max_epochs``, the columns of ``metrics.csv`` after the last of them (accuracies are fractions), ``state``,
    ``problem`` (what is wrong with its files, or empty), ``device``, ``age`` (seconds since the last write) and
    ``path``. Settings that cannot change the weights are left out; those in ``also`` have a column even if all runs
    agree.

    The state is ``finished``, ``training``, ``failed`` or ``stopped``; ``damaged`` if a finished run's ``summary.json``
    does not fit its other files; ``unreadable`` if the configuration or metrics cannot be read, which gives a single
    row; ``replaced`` for the old run of ``overwrite=true``. A warning names folders without a run. If no
    folder has a run, it raises a `UserError`.

    >>> import arith_erd as ae
    >>> table = ae.load_table("runs/add-*")  # doctest: +SKIP
    >>> table.groupby("split.fraction")["val_seq_acc"].mean()  # doctest: +SKIP
    """
    found = _runs_in([*runs] if isinstance(runs, Iterable) and not isinstance(runs, str) else [runs])
    backups = [run.backup for run in found if is_run(run.backup.path)]
    rows = [row for run in found for row in _run_rows(run)]
    rows += [row | {"run": row["run"][1:-4], "state": "replaced"} for run in backups for row in _run_rows(run)]
    table = pd.DataFrame(rows)
    readable = table[table["state"] != "unreadable"]
    varying = [key for key in settings_columns(table) if key in also or readable[key].map(str).nunique() > 1]
    integers = [key for key in varying if {type(row.get(key)) for row in rows} == {int, NoneType}]  # floats with gaps
    columns = ["run", *varying, "seed", "epochs", "max_epochs", *ACCURACY_COLUMNS]
    columns += ["state", "problem", "device", "age", "path"]
    return table.reindex(columns=columns).astype(dict.fromkeys(("seed", "epochs", "max_epochs", *integers), "Int64"))


def settings_columns(table: pd.DataFrame) -> list[str]:
    """The columns of a table of `load_table` that are settings."""
    return [key for key in table if "." in key]


def accuracy_by_slice(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """A row for each kind of example in ``slices.csv``, such as each ``length``, with its own ``val_seq_acc``."""
    parts = []
    for path, rows in table.groupby("path"):
        try:
            file = run_path(Run(Path(str(path))).slices_file)
            slices = pd.read_csv(file, dtype={"value": int, "val_seq_acc": float}).rename(columns={"value": name})
            slices = slices[slices["slice"] == name]
            last = slices[slices["epoch"] == rows["epochs"].max()]
            if len(slices) and not {*rows["seed"]} <= {*last["seed"]}:
                raise ValueError("does not hold the last epoch of all seeds")
            parts.append(rows.drop(columns="val_seq_acc").merge(last[["seed", name, "val_seq_acc"]], on="seed"))
        except Exception as error:  # a damaged file; without a file the examples are not drawn
            if not isinstance(error, FileNotFoundError):
                print(f"left out {path}: slices.csv: {first_line(error)}", file=sys.stderr)
    return pd.concat(parts) if parts else table.iloc[:0].assign(**{name: []})


def mean_accuracies(table: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Group finished runs by some columns: ``seeds``, the mean final ``accuracy`` and its interval ``ci_low, ci_high``.

    A seed in several runs of the same settings counts once. Those of a seed in several settings are averaged first.
    """
    finished = table[table["state"] == FINISHED].drop_duplicates([*{*settings_columns(table), *keys, "seed"}])
    rows = []
    for values, part in finished.groupby([*keys], dropna=False):
        by_seed = part.groupby("seed")["val_seq_acc"].mean()
        estimate = Estimate.of_means([Moments.from_values(by_seed)], (0.0, 1.0))
        low, high = estimate.interval or (None, None)
        row = {"seeds": len(by_seed), "accuracy": estimate.value, "ci_low": low, "ci_high": high}
        rows.append(dict(zip(keys, values, strict=True)) | row)
    return pd.DataFrame(rows, columns=[*keys, "seeds", "accuracy", "ci_low", "ci_high"])


def _run_rows(run: Run) -> list[Row]:
    row: Row = {"run": run.name, "path": str(run.path), "state": "unreadable", "age": 0.0}
    try:
        written = (run.config_file, run.metrics_file, run.summary_file, run.checkpoint_file)
        row["age"] = max(time.time() - max(path.stat().st_mtime for path in written if path.is_file()), 0.0)
        return [row | replica | identity_settings(replica["settings"]) for replica in read_replicas(run)[0]]
    except Exception as error:  # list the other runs, whatever is wrong with this one
        return [row | {"problem": describe_damage(run, error)}]


def describe_damage(run: Run, error: Exception) -> str:
    """Why a run cannot be read, without its path: ``summary.json: Permission denied; ..``."""
    return excerpt(first_line(error).removeprefix(f"{run.path}: ").removeprefix(f"{run.path}/"))
