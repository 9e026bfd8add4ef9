"""Ranges and tables as the pages of ``paper/found`` print them."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

MODELS = {"transformer": "Transformer", "nanogpt": "nanoGPT"}
Labels = Mapping[Any, str]


def format_range(values: Iterable[float], form: str = ".2f") -> str:
    """``0.90 to 0.93``, or one number if both ends read alike; empty without a value."""
    if not (found := [float(value) for value in values]):
        return ""
    return " to ".join(dict.fromkeys(format(end, f"z{form}") for end in (min(found), max(found))))  # z: no -0.00


def markdown(*lines: Iterable[object]) -> str:
    """A table, its heading first."""
    head, *body = [f"| {' | '.join(map(str, line))} |" for line in lines]
    return "\n".join([head, f"|{' --- |' * (head.count(' | ') + 1)}", *body])


def grid(head: str, rows: Labels, columns: Labels, cell: Callable[[Any, Any], object]) -> str:
    """A table of ``cell(row, column)``, labelled."""
    lines = ([label, *(cell(row, column) for column in columns)] for row, label in rows.items())
    return markdown([head, *columns.values()], *lines)
