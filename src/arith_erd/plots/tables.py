"""Measures as text: the kinds of columns in a probe's rows, their table, and a report's numbers with units."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from ..errors import printable
from ..stats import Estimate, Interval, Moments

COLUMN_GAP = 2  # spaces between the columns of a printed table
TEXT, INTEGER, NUMBER = "text", "integer", "number"
UNITS = ("accuracy", "points", "percent", "epochs", "ratio", "layer", "value", "correlation", "bits")
UNIT_NAMES = {"points": " points", "ratio": " times", "epochs": " epochs", "bits": " bits"}
UNIT_RANGES = {"accuracy": (0.0, 1.0), "share": (0.0, 1.0), "correlation": (-1.0, 1.0), "value": (0.0, np.inf)}
"""Unit -> range of its means, to which intervals are clipped. The unit ``value`` is that of errors."""


def column_kinds(rows: pd.DataFrame, units: Mapping[str, str]) -> dict[str, str]:
    """Column -> its kind, which a probe writes beside its rows, to ``probe.json``.

    ``text`` and ``integer`` identify a row; a column of floats is a measure, with its unit (``accuracy``,
    ``correlation``, ``percent``) or as a plain ``number``.
    """
    kinds = {"f": NUMBER, "i": INTEGER, "u": INTEGER}
    return {str(c): units.get(str(c), kinds.get(rows[c].dtype.kind, TEXT)) for c in rows}


def split_columns(kinds: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The columns that identify a row, apart from ``seed``, and the measures."""
    keys = [column for column, kind in kinds.items() if kind in (TEXT, INTEGER)]
    return [column for column in keys if column != "seed"], [column for column in kinds if column not in keys]


def summary_table(rows: pd.DataFrame, kinds: Mapping[str, str], across: Sequence[str] = ()) -> pd.DataFrame:
    """The table of a probe, as text: each measure's mean over the seeds with its 95% interval.

    ``0.889 [0.871, 0.902]``. The brackets are missing with fewer than three seeds, or if all are equal. ``kinds`` come
    from `column_kinds`. The values of columns in ``across`` become columns of the table.
    """
    keys, measures = split_columns(kinds)
    rows = rows.assign(**{column: rows[column].fillna("").astype(str) for column in keys if kinds[column] == TEXT})
    lines: dict[tuple[Any, ...], dict[str, str]] = {}
    column_keys: dict[str, tuple[Any, ...]] = {}
    for values, part in rows.groupby(keys, sort=False, dropna=False, observed=True) if keys else [((), rows)]:
        key_values = dict(zip(keys, values, strict=True))
        column_key = tuple(key_values.pop(column) for column in across)
        prefix = " ".join(map(str, column_key))
        line = lines.setdefault(tuple(key_values.values()), {key: str(value) for key, value in key_values.items()})
        for measure in measures:
            name = prefix if prefix and len(measures) == 1 else f"{prefix} {measure}".strip()
            line[name] = format_mean(part[measure].to_numpy(dtype=float), kinds[measure])
            column_keys[name] = column_key
    columns = [*(key for key in keys if key not in across), *sorted(column_keys, key=lambda n: column_keys[n])]
    return pd.DataFrame([*lines.values()], columns=columns).fillna("")


def format_mean(values: "np.ndarray[Any, Any]", unit: str) -> str:
    """The mean of one value per seed; empty if there are none, or if one is unknown."""
    if not len(values):
        return ""
    estimate = Estimate.of_means([Moments.from_values(values)], UNIT_RANGES.get(unit, (-math.inf, math.inf)))
    return format_measure(estimate.low, *(estimate.interval or (math.nan, math.nan)), unit)


def format_measure(value: float, low: float = math.nan, high: float = math.nan, unit: str = "accuracy") -> str:
    """``98.76% [97.30, 100]``, without an interval if it is unknown or a single point; empty without a value."""
    if pd.isna(value):
        return ""
    interval = "" if pd.isna(low) or low == high else f" {format_interval((low, high), unit)}"
    return format_digits(value, unit) + interval


def csv_text(table: pd.DataFrame, **options: Any) -> str:
    """A table as CSV. Texts are safe to print: formulas of spreadsheets get an apostrophe (``-1 [-2]`` does not)."""

    def safe(cell: Any) -> Any:
        return re.sub(r"^(?=[=+@]|-(?!\d[^=+@|!(]*$))", "'", printable(cell)) if isinstance(cell, str) else cell

    texts = table.select_dtypes(exclude="number").map(safe)
    return table.assign(**dict(texts.items())).to_csv(index=False, **options)


def print_table(table: pd.DataFrame, fold: bool = False) -> None:
    """Print a table in columns, two spaces apart.

    With ``fold`` cells break at spaces to fit the terminal. No word is cut, so a table can still be wider.
    """
    drawn = Table(box=None, header_style="bold", pad_edge=False, padding=(0, COLUMN_GAP, 0, 0))
    text, min_width = table.map(str).rename(columns=str), 0
    for column in text:
        parts = [part for cell in (column, *text[column]) for part in (cell.split() if fold else [cell])]
        widest = max(map(len, parts))
        drawn.add_column(column, no_wrap=not fold or len(parts) <= 1 + len(text), min_width=widest)
        min_width += widest + COLUMN_GAP
    for values in text.itertuples(index=False):
        drawn.add_row(*values)
    console = Console(markup=False, highlight=False)
    Console(width=max(console.width, min_width), markup=False, highlight=False).print(drawn)


def format_number(value: float, unit: str, as_published: bool = False) -> str:
    """A number with its unit: ``99.98%``, ``6.31 points``. ``as_published``: with fewer digits."""
    digits = format_digits(value, unit, as_published)
    return f"layer {digits}" if unit == "layer" else f"{digits}{UNIT_NAMES.get(unit, '')}"


def format_estimate(estimate: Estimate, unit: str) -> str:
    """An estimate as text: ``99.9%``, ``> 50 epochs``, ``1.20 to 1.25 times``."""
    if estimate.value is not None:
        return format_number(estimate.value, unit)
    if math.isinf(estimate.high):
        return f"> {format_number(estimate.low, unit)}"
    return f"{format_digits(estimate.low, unit)} to {format_number(estimate.high, unit)}"


def format_interval(interval: Interval | None, unit: str) -> str:
    """An interval as text, ``[99.7, 100]``, in the unit of its estimate; empty for None."""
    return "" if interval is None else f"[{', '.join(format_digits(end, unit).rstrip('%') for end in interval)}]"


def format_digits(value: float, unit: str, as_published: bool = False) -> str:
    """A number without the name of its unit, but with a percent sign."""
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    match unit:
        case "accuracy":
            digits = 1 if as_published or round(100 * value, 2) in (0, 100) else 2
            digits = 2 if 0 < value < 0.005 else digits
            return f"{100 * value:.{digits}f}".removesuffix(".0") + "%"
        case "points":
            text = f"{100 * value:.{1 if as_published else 2}f}"
            return text.removeprefix("-") if float(text) == 0 else text
        case "percent":
            return f"{value:.{1 if as_published else 2}f}%"
        case "ratio":
            return f"{value:.2f}"
        case "bits" | "layer":
            return f"{value:.10g}" if value == int(value) else f"{value:.2f}"
        case "number" | "share":
            return f"{value:.3f}"
        case _:
            digits = 4 if unit == "epochs" else 3
            return np.format_float_positional(value, digits, fractional=False, trim="-")  # 0.00001, not 1e-05
