"""``arith-runs [GLOB]`` lists runs and how far each has got, as a table, CSV or JSON."""

import argparse
import fcntl
import os
import time
from contextlib import suppress
from glob import glob
from typing import Any

import pandas as pd

from ..errors import UNREADABLE, UserError, bad_value, excerpt, printable
from ..system.boundary import one_line_errors
from .directory import Run

COLUMNS = ("run", "state", "epochs", "max_epochs", "val_seq_acc", "worst", "device", "age")
"""Validation sequence accuracies after the last epoch, the mean over the seeds and the worst one, are fractions; the
age is in seconds since something was written."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="arith-runs", description=__doc__)
    parser.add_argument("glob", nargs="?", default="runs", help="a folder of runs, or a glob in quotes; default: runs")
    parser.add_argument("--sort", metavar="COLUMN", default="run", help="by which column; default: run")
    parser.add_argument("--reverse", action="store_true", help="largest first")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="print CSV: accuracies as fractions, ages in seconds")
    form.add_argument("--json", action="store_true", help="print JSON, likewise")
    options = parser.parse_args()
    with one_line_errors():
        listed = list_runs(options.glob, options.sort, options.reverse)
        if options.json:
            print(listed.to_json(orient="records", indent=2))
        elif options.csv:
            print(listed.to_csv(index=False), end="")
        else:
            print(table(listed))


def list_runs(pattern: str, sort: str = "run", reverse: bool = False) -> pd.DataFrame:
    """The runs that a glob names, or those inside a folder of runs: `COLUMNS`; unknown values come last.

    The state is ``finished``, ``training``, ``failed``, ``killed`` or ``stopped``; ``unreadable`` for a damaged folder;
    ``replaced`` for the old run of ``overwrite=true``. Sorting by ``accuracy`` means ``val_seq_acc``.
    """
    column = "val_seq_acc" if sort == "accuracy" else sort
    if column not in COLUMNS:
        raise bad_value("--sort", sort, f"one of {', '.join((*COLUMNS, 'accuracy'))}")
    inside = os.path.isdir(pattern) and not _is_run(pattern)
    paths = [os.path.join(pattern, name) for name in os.listdir(pattern) if name[0] != "."] if inside else glob(pattern)
    runs = [Run(path) for path in paths if _is_run(path)]
    old = [{**_row(run.replaced), "run": run.name, "state": "replaced"} for run in runs if _is_run(run.replaced.path)]
    if not runs:
        raise UserError(f"{pattern}: no run there; expected a folder of runs, or a glob of run directories in quotes")
    listed = pd.DataFrame([*map(_row, runs), *old], columns=list(COLUMNS)).astype(
        {"epochs": "Int64", "max_epochs": "Int64"}
    )
    return listed.sort_values([column, "run"], ascending=[not reverse, True], ignore_index=True)


def _is_run(path: Any) -> bool:
    return os.path.isfile(os.path.join(path, "config.yaml"))


def _row(run: Run) -> dict[str, Any]:
    row: dict[str, Any] = {"run": run.name, "state": "unreadable", "age": 0.0}
    with suppress(*UNREADABLE, OSError):
        written = (run.config_file, run.metrics_file, run.summary_file, run.checkpoint)
        row["age"] = max(time.time() - max(path.stat().st_mtime for path in written if path.is_file()), 0.0)
        rows, longest = run.metrics(), int(run.config()["trainer"]["max_epochs"])
        epochs = max((row["epoch"] for row in rows), default=0)
        last = pd.Series([row["val_seq_acc"] for row in rows if row["epoch"] == epochs], dtype="float64")
        device = excerpt(str(run.summary()["device"])) if run.finished else None
        row |= {"epochs": epochs, "max_epochs": longest, "val_seq_acc": last.mean(), "worst": last.min()}
        row |= {"device": device, "state": _state(run)}
    return row


def _state(run: Run) -> str:
    if run.finished:
        return "finished"
    with suppress(OSError), (run.path / ".lock").open() as file:  # the file is only read
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return "training"
    return "failed" if run.error.is_file() else "killed" if run.killed else "stopped"


def table(listed: pd.DataFrame) -> str:
    """The list for people. Names are last: they are long, and a terminal may wrap them."""
    shown = pd.DataFrame(
        {
            "epochs": [f"{a}/{b}" if pd.notna(a) else "" for a, b in listed[["epochs", "max_epochs"]].to_numpy()],
            "accuracy": ["" if pd.isna(x) else f"{x:.2%}" for x in listed["val_seq_acc"]],
            "worst": ["" if pd.isna(x) else f"{x:.2%}" for x in listed["worst"]],
            "age": listed["age"].map(age),
            "state": listed["state"],
            "device": listed["device"].fillna("").str[:40],
            "run": listed["run"].map(printable),
        }
    )
    for column in ("state", "device", "run"):  # to the left
        shown[column] = shown[column].str.ljust(max(len(column), shown[column].str.len().max()))
    lines = shown.to_string(index=False, justify="left", max_colwidth=None, line_width=None).splitlines()
    return "\n".join(line.rstrip() for line in lines)


def age(seconds: float) -> str:
    """``40 s``, ``12 min``, ``3 h``, ``9 d``."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


if __name__ == "__main__":
    main()
