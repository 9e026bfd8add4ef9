"""``python -m arith_erd.runs [GLOB]``: a list of runs, as a table, CSV or JSON."""

import argparse
import csv
import sys
from dataclasses import astuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..errors import printable
from ..system.boundary import one_line_errors
from .listing import KEYS, Listed, as_json, list_runs


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m arith_erd.runs", description=__doc__)
    parser.add_argument("glob", nargs="?", default="runs", help="a folder of runs, or a glob in quotes; default: runs")
    parser.add_argument("--sort", choices=KEYS, default="run", help="by which column; default: run")
    parser.add_argument("--reverse", action="store_true", help="largest first")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="print CSV: accuracies as fractions, ages in seconds")
    form.add_argument("--json", action="store_true", help="print JSON, likewise")
    options = parser.parse_args()
    with one_line_errors():
        listed = list_runs(options.glob, options.sort, options.reverse)
        if options.json:
            print(as_json(listed))
        elif options.csv:
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow(KEYS)
            writer.writerows(map(astuple, listed))
        else:
            show(listed)


def show(listed: list[Listed]) -> None:
    """Print a table. A narrow terminal folds the names of runs and devices, never the numbers."""
    rows = [
        (
            run.run,
            run.state,
            "" if run.epochs is None else f"{run.epochs}/{run.max_epochs}",
            *("" if x is None else f"{x:.2%}" for x in (run.val_seq_acc, run.worst)),
            age(run.age),
            run.device or "",
        )
        for run in listed
    ]
    table = Table(box=None, header_style="bold", pad_edge=False)
    for number, name in enumerate(("run", "state", "epochs", "accuracy", "worst", "age", "device")):
        if name in ("run", "device"):
            table.add_column(name, overflow="fold")
        else:
            width = max(len(name), *(len(row[number]) for row in rows))
            table.add_column(name, no_wrap=True, min_width=width, justify="left" if name == "state" else "right")
    for row in rows:
        table.add_row(*(Text(printable(word)) for word in row))
    Console().print(table)


def age(seconds: float) -> str:
    """``40 s``, ``12 min``, ``3 h``, ``9 d``."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


if __name__ == "__main__":
    main()
