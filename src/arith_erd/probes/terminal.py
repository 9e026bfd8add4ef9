"""The table of a probe on the terminal. Numbers are never cut: a table that is too wide continues below."""

import re
from collections.abc import Iterator, Sequence

import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

MAX_ROWS = 40
GAP = 2  # spaces between columns
NUMBER = re.compile(r"[-+]?[\d,.]+(e[-+]?\d+)?%?( \[.*\])?|nan|-|", re.IGNORECASE)


def show(
    table: pd.DataFrame, notes: Sequence[str], summary: Sequence[str] = (), console: Console | None = None
) -> None:
    """Print the summary, a table as wide as the terminal, at most forty of its rows, and the notes."""
    console = console or Console()
    for line in summary:
        console.print(line, highlight=False, markup=False)
    text = table.head(MAX_ROWS).map(str).rename(columns=str)
    for number, columns in enumerate(blocks(text, console.width)):
        if number:
            console.print()
        drawn = Table(box=None, header_style="bold", pad_edge=False, padding=(0, GAP, 0, 0))
        for column in columns:
            drawn.add_column(Text(column), no_wrap=True)
        for values in text[columns].itertuples(index=False):
            drawn.add_row(*map(Text, values))
        needed = sum(_needed(text[column]) for column in columns)
        Console(file=console.file, width=max(console.width, needed)).print(drawn)
    if len(table) > MAX_ROWS:
        console.print(f"... and {len(table) - MAX_ROWS} more")
    for note in notes:
        console.print(f"note: {note}", style="yellow")


def blocks(text: pd.DataFrame, width: int) -> Iterator[list[str]]:
    """The columns of each block, in order.

    Every block begins with the columns that name a row: those before the first column of numbers.

    >>> table = pd.DataFrame({"site": ["dec.1"], "value": ["0.889 [0.871, 0.902]"], "token": ["0.61"]})
    >>> list(blocks(table, 80)), list(blocks(table, 30))
    ([['site', 'value', 'token']], [['site', 'value'], ['site', 'token']])
    """
    columns = list(text.columns)
    numbers = [column for column in columns[1:] if all(map(NUMBER.fullmatch, text[column]))]
    first = columns.index(numbers[0]) if numbers else len(columns) - 1
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
