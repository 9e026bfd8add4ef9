"""A CSV that a script continues: what is in it already is not measured again."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path


class ContinuedTable:
    """Rows below a header, appended in groups.

    Args:
        path: made, with its header, when the first group is added.
        columns: of the table.
        key: the columns that name a group.
    """

    def __init__(self, path: Path, columns: Sequence[str], key: Sequence[str]) -> None:
        self.path = path
        self.columns = columns
        self.done: set[tuple[str, ...]] = set()
        """Keys of what is in the table."""
        if path.is_file():
            with path.open(newline="") as file:
                self.done = {tuple(row[name] for name in key) for row in csv.DictReader(file)}

    def add(self, rows: Iterable[Sequence[object]]) -> None:
        """Append a group and print it. Nothing is written before its last row is there."""
        measured = list(rows)
        header = [] if self.path.is_file() else [self.columns]
        with self.path.open("a", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([*header, *measured])
        for row in measured:
            print(*row, flush=True)
