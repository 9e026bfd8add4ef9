"""``arith-runs [GLOB]`` lists runs and how far each has got, as a table, CSV or JSON."""

import argparse
import csv
import fcntl
import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass, fields, replace
from glob import glob
from pathlib import Path

from ..errors import UNREADABLE, UserError, bad_value, excerpt, printable
from ..system.boundary import one_line_errors
from .directory import Run


@dataclass(frozen=True)
class Listed:
    """One line of the list. None where something is not known."""

    run: str
    state: str
    """``finished``, ``training``, ``failed``, ``killed`` or ``stopped``; ``unreadable`` for a damaged folder, and
    ``replaced`` for the old run of ``overwrite=true``, which is listed beside the new one."""
    epochs: int | None = None
    """That have ended."""
    max_epochs: int | None = None
    val_seq_acc: float | None = None
    """Validation sequence accuracy after the last of them, the mean over the seeds; a fraction."""
    worst: float | None = None
    """The same of the worst seed."""
    device: str | None = None
    age: float = 0.0
    """Seconds since something was written."""


KEYS = tuple(field.name for field in fields(Listed))
HEADINGS = ("state", "epochs", "accuracy", "worst", "age", "device", "run")
"""Of the table. The name is last: it is long, and a terminal may wrap it."""


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
            print(json.dumps([asdict(run) for run in listed], indent=2))
        elif options.csv:
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow(KEYS)
            writer.writerows(map(astuple, listed))
        else:
            print("\n".join(table(listed)))


def list_runs(pattern: str, sort: str = "run", reverse: bool = False) -> list[Listed]:
    """The runs that a glob names, or those inside a folder of runs; unknown values come last.

    Args:
        pattern: the glob, or the folder.
        sort: one of `KEYS`, or of `HEADINGS`.
        reverse: largest first.

    Raises:
        UserError: if there are none, or no such key.
    """
    key = "val_seq_acc" if sort == "accuracy" else sort
    if key not in KEYS:
        raise bad_value("--sort", sort, f"one of {', '.join((*KEYS, 'accuracy'))}")
    inside = os.path.isdir(pattern) and not os.path.isfile(os.path.join(pattern, "config.yaml"))
    names = [os.path.join(pattern, name) for name in os.listdir(pattern) if name[0] != "."] if inside else glob(pattern)
    runs = [Run(name) for name in names if os.path.isfile(os.path.join(name, "config.yaml"))]
    old = [run for run in runs if run.name and os.path.isfile(run.replaced.config_file)]
    listed = [*map(_listed, runs), *(replace(_listed(run.replaced), run=run.name, state="replaced") for run in old)]
    if not listed:
        raise UserError(f"{pattern}: no run there; expected a folder of runs, or a glob of run directories in quotes")
    known = sorted((x for x in listed if getattr(x, key) is not None), key=lambda x: getattr(x, key), reverse=reverse)
    return known + [x for x in listed if getattr(x, key) is None]


def _listed(run: Run) -> Listed:
    age = 0.0
    try:
        written = (run.config_file, run.metrics_file, run.summary_file, run.checkpoint)
        age = max(time.time() - max(path.stat().st_mtime for path in written if path.is_file()), 0.0)
        rows, config = run.metrics(), run.config()
        epochs = max((row["epoch"] for row in rows), default=0)
        last = [row["val_seq_acc"] for row in rows if row["epoch"] == epochs]
        return Listed(
            run=run.name,
            state=_state(run),
            epochs=epochs,
            max_epochs=int(config["trainer"]["max_epochs"]),
            val_seq_acc=sum(last) / len(last) if last else None,
            worst=min(last, default=None),
            device=str(run.summary()["device"]) if run.finished else None,
            age=age,
        )
    except (*UNREADABLE, OSError):
        return Listed(run.name, "unreadable", age=age)


def _state(run: Run) -> str:
    if run.finished:
        return "finished"
    if _is_locked(run):
        return "training"
    return "failed" if run.error.is_file() else "killed" if run.killed else "stopped"


def _is_locked(run: Run) -> bool:
    """Whether a process holds the lock of the run; the file is only read."""
    with suppress(OSError), (run.path / ".lock").open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def table(listed: Sequence[Listed]) -> list[str]:
    """The lines of a table."""
    rows = [
        (
            run.state,
            "" if run.epochs is None else f"{run.epochs}/{run.max_epochs}",
            *("" if x is None else f"{x:.2%}" for x in (run.val_seq_acc, run.worst)),
            age(run.age),
            excerpt(run.device or "")[:40],
            printable(run.run),
        )
        for run in listed
    ]
    widths = [max(map(len, column)) for column in zip(HEADINGS, *rows, strict=True)]
    left = ("state", "device", "run")
    return [
        "  ".join(
            text.ljust(width) if name in left else text.rjust(width)
            for name, text, width in zip(HEADINGS, row, widths, strict=True)
        ).rstrip()
        for row in (HEADINGS, *rows)
    ]


def age(seconds: float) -> str:
    """``40 s``, ``12 min``, ``3 h``, ``9 d``."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


if __name__ == "__main__":
    main()
