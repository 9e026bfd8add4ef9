"""A probe on the terminal: its progress, then its table. Numbers are never cut: a wide table continues below."""

import re
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pandas as pd
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

MAX_ROWS = 40
EVERY = 30.0  # seconds between lines where there is no terminal
GAP = 2  # spaces between columns
MEASURED = re.compile(r"[-+]?[\d,]*(\.\d+(e[-+]?\d+)?%?|\d%)( \[.*\])?|nan|-|", re.IGNORECASE)
"""A measured number. Whole numbers without a unit name a row, as layers and positions do."""


def with_progress(rows: Iterable[dict[str, Any]], name: str, networks: int) -> list[dict[str, Any]]:
    """The rows of a probe. Meanwhile there is a bar on a terminal, elsewhere a line every 30 s, on standard error."""
    console = Console(stderr=True)
    measured: list[dict[str, Any]] = []
    begun: set[Any] = set()
    started, ended = time.monotonic(), threading.Event()

    def text() -> str:
        done = f", {max(len(begun) - 1, 0)} of {networks} networks done" if networks > 1 else ""
        site = measured[-1].get("site") if measured else None
        return f"{name}{done}{f', at {site}' if site else ''}, {len(measured):,} rows"

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task(text(), total=networks if networks > 1 else None)  # of one network the share is not known

    def tell() -> None:  # in a thread, since a probe can take minutes from one row to the next
        while not ended.wait(0.2 if console.is_terminal else EVERY):
            bar.update(task, description=text(), completed=len(begun) - 1)
            if not console.is_terminal:
                console.print(f"{text()} after {time.monotonic() - started:.0f} s", highlight=False, markup=False)

    threading.Thread(target=tell, daemon=True).start()
    try:
        with bar:
            for row in rows:
                measured.append(row)
                begun.add(row.get("seed"))
    finally:
        ended.set()
    return measured


def show(table: pd.DataFrame, notes: Sequence[str], summary: Sequence[str] = ()) -> None:
    """Print the summary, a table as wide as the terminal, at most forty of its rows, and the notes."""
    console = Console()
    for line in summary:
        console.print(line, highlight=False, markup=False)
    text = table.head(MAX_ROWS).map(str)
    text.columns = text.columns.map(str)
    for number, columns in enumerate(blocks(text, console.width)):
        if number:
            console.print()
        drawn = Table(box=None, header_style="bold", pad_edge=False, padding=(0, GAP, 0, 0))
        for column in columns:
            drawn.add_column(Text(column), no_wrap=True)
        for values in text[columns].itertuples(index=False):
            drawn.add_row(*map(Text, values))
        needed = sum(_needed(text[column]) for column in columns)
        Console(width=max(console.width, needed)).print(drawn)
    if len(table) > MAX_ROWS:
        console.print(f"... and {len(table) - MAX_ROWS} more")
    for note in notes:
        console.print(f"note: {note}", style="yellow")


def blocks(text: pd.DataFrame, width: int) -> Iterator[list[str]]:
    """The columns of each block, in order.

    Every block begins with the columns that name a row: those before the first column of measured numbers.

    >>> table = pd.DataFrame({"stack": ["dec"], "layer": ["1"], "value": ["0.889 [0.871, 0.902]"], "token": ["0.61"]})
    >>> list(blocks(table, 80)), list(blocks(table, 40))
    ([['stack', 'layer', 'value', 'token']], [['stack', 'layer', 'value'], ['stack', 'layer', 'token']])
    """
    columns = list(text.columns)
    first = next((i for i, column in enumerate(columns) if i and _is_measured(text[column])), len(columns) - 1)
    keys, block = columns[:first], list[str]()
    for column in columns[first:]:
        needed = sum(_needed(text[c]) for c in (*keys, *block, column))
        if block and needed > width + GAP:  # the last column needs no gap
            yield keys + block
            block = []
        block.append(column)
    yield keys + block


def _needed(column: "pd.Series[str]") -> int:
    return GAP + max([len(str(column.name)), *map(len, column)])


def _is_measured(column: "pd.Series[str]") -> bool:
    return all(MEASURED.fullmatch(value) for value in column)
