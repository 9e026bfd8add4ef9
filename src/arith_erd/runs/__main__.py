"""``python -m arith_erd.runs [GLOB]``: a list of runs, as a table, CSV or JSON."""

import argparse
import csv
import sys
from collections.abc import Sequence
from dataclasses import astuple

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..errors import printable
from ..system.boundary import one_line_errors
from .listing import KEYS, Listed, as_json, list_runs


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m arith_erd.runs", description=__doc__)
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
            print(as_json(listed))
        elif options.csv:
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow(KEYS)
            writer.writerows(map(astuple, listed))
        else:
            show(listed)


COLUMNS = ("run", "state", "epochs", "accuracy", "worst", "age", "device")
GAP = 2


def show(listed: list[Listed]) -> None:
    """Print a table. Where a terminal is too narrow, each name is on a line of its own, above the other columns."""
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
    rows = [tuple(map(printable, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(COLUMNS, *rows, strict=True)]
    console = Console()
    if sum(widths) + GAP * (len(widths) - 1) <= console.width:
        console.print(_grid([COLUMNS, *rows], widths))
        return
    console.print(Text(COLUMNS[0], style="bold"))
    console.print(_indented(COLUMNS, widths))
    for row in rows:
        console.print(Text(row[0]), soft_wrap=True)
        console.print(_indented(row, widths))


def _indented(row: Sequence[str], widths: Sequence[int]) -> Padding:
    """The columns beside the name."""
    return Padding(_grid([row[1:]], widths[1:]), (0, 0, 0, GAP))


def _grid(rows: Sequence[Sequence[str]], widths: Sequence[int]) -> Table:
    """Columns of given widths; only the last one, the device, is folded."""
    grid = Table.grid(padding=(0, GAP, 0, 0))
    names = COLUMNS[-len(widths) :]
    for name, width in zip(names[:-1], widths[:-1], strict=True):
        grid.add_column(width=width, no_wrap=True, justify="left" if name in ("run", "state") else "right")
    grid.add_column(overflow="fold")
    for row in rows:
        grid.add_row(*map(Text, row), style="bold" if tuple(row) == names else "")
    return grid


def age(seconds: float) -> str:
    """``40 s``, ``12 min``, ``3 h``, ``9 d``."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


if __name__ == "__main__":
    main()
