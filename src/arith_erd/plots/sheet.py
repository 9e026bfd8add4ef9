"""Measures as text: description and table of a probe's rows, and a report's numbers with their units."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, field, replace
from typing import Any

import numpy as np
import pandas as pd
from pydantic import TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from ..errors import excerpt
from ..stats import MIN_SEEDS, Estimate, Interval, mean_interval

TEXT, INTEGER, NUMBER = "text", "integer", "number"
UNITS = (
    *("accuracy", "points", "percent", "epochs", "ratio", "layer", "value", "correlation", "minutes"),
    *("count", "tokens", "examples", "bits", "parameters", "operations"),
)
UNIT_NAMES = {"points": " points", "ratio": " times", "epochs": " epochs", "minutes": " min"}
UNIT_NAMES |= {unit: f" {unit}" for unit in ("tokens", "examples", "bits")}
SPANS = {"accuracy": (0.0, 1.0), "correlation": (-1.0, 1.0), "value": (0.0, np.inf), "minutes": (0.0, np.inf)}
"""Unit -> range of its means, to which intervals are clipped. A value is an error."""
DIGITS = {"percent": 1, "accuracy": 1, "correlation": 2, NUMBER: 3}
"""Decimals by unit; an accuracy is written in percent."""


@dataclass(frozen=True)
class Sheet:
    """The description that a probe writes beside its rows, to ``probe.json``.

    ``columns`` maps each column to its kind. ``text`` and ``integer`` identify a row; ``number`` or a unit
    (``accuracy``, ``correlation``, ``percent``) marks a measure. The values of columns in ``across`` become columns of
    the table. If rows are single cases, such as wrong answers, the table counts them by the columns ``counted``.
    ``settings`` are those of the probe and, without a run, of task and split.
    """

    name: str
    columns: Mapping[str, str]
    across: tuple[str, ...] = ()
    counted: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, rows: pd.DataFrame, units: Mapping[str, str], **layout: Any) -> "Sheet":
        """Describe rows. A column of floats without a unit is a plain number; other columns identify a row."""
        kinds = {"f": NUMBER, "i": INTEGER, "u": INTEGER}
        return cls(name, {str(c): units.get(str(c), kinds.get(rows[c].dtype.kind, TEXT)) for c in rows}, **layout)

    @classmethod
    def from_json(cls, text: str) -> "Sheet":
        """The inverse of `to_json`; a `ValueError` if the text is not a description."""
        try:
            sheet = TypeAdapter(cls).validate_json(text)
        except ValidationError as error:
            raise ValueError(f"not the description of a probe ({error.errors()[0]['msg']})") from error
        return replace(sheet, name=excerpt(sheet.name))

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"

    @property
    def keys(self) -> list[str]:
        return [column for column, kind in self.columns.items() if kind in (TEXT, INTEGER) and column != "seed"]

    @property
    def measures(self) -> list[str]:
        return [column for column, kind in self.columns.items() if kind not in (TEXT, INTEGER)]

    def within(self, rows: pd.DataFrame) -> "Sheet":
        """This sheet without the columns that the rows lack or leave empty."""
        columns = {c: kind for c, kind in self.columns.items() if c in rows and rows[c].notna().any()}
        across, counted = (tuple(c for c in chosen if c in columns) for chosen in (self.across, self.counted))
        return replace(self, columns=columns, across=across, counted=counted)


def tabulate(rows: pd.DataFrame, sheet: Sheet) -> pd.DataFrame:
    """The table of a probe, as text: each measure's mean over the seeds with its 95% interval.

    ``0.889 [0.871, 0.902]``; there is no interval for fewer than three seeds, or if all are equal. Unknown means are
    empty.
    """
    texts = [column for column in sheet.keys if sheet.columns[column] == TEXT]
    rows = rows.assign(**{column: rows[column].fillna("").astype(str) for column in texts})
    if sheet.counted:
        return _count(rows.groupby([*sheet.counted], sort=False), sheet)
    keys = [column for column in sheet.keys if column not in sheet.across]
    lines: dict[tuple[Any, ...], dict[str, str]] = {}
    places: dict[str, tuple[Any, ...]] = {}
    groups = rows.groupby(sheet.keys, sort=False, dropna=False) if sheet.keys else [((), rows)]
    for values, part in groups:
        where = dict(zip(sheet.keys, values, strict=True))
        place = tuple(where.pop(column) for column in sheet.across)
        heading = " ".join(map(str, place))
        line = lines.setdefault(tuple(where.values()), {str(key): str(value) for key, value in where.items()})
        for measure in sheet.measures:
            name = heading if heading and len(sheet.measures) == 1 else f"{heading} {measure}".strip()
            line[name] = mean_text(part[measure].to_numpy(dtype=float), sheet.columns[measure])
            places[name] = place
    columns = [*keys, *sorted(places, key=lambda n: places[n])]
    return pd.DataFrame([*lines.values()], columns=columns).fillna("")


def _count(groups: Any, sheet: Sheet) -> pd.DataFrame:
    others = [column for column in sheet.keys if column not in sheet.counted and sheet.columns[column] == TEXT]
    lines = []
    for values, part in groups:
        line = {**dict(zip(sheet.counted, map(str, values), strict=True)), "cases": f"{len(part):,}"}
        line |= {f"mean |{measure}|": f"{part[measure].abs().mean():.2f}" for measure in sheet.measures}
        lines.append(line | {f"first {column}": str(part[column].iloc[0]) for column in others})
    return pd.DataFrame(lines)


def mean_text(values: "np.ndarray[Any, Any]", unit: str = NUMBER) -> str:
    """A mean with its interval: ``0.889 [0.871, 0.902]``, ``88.9% [87.1, 90.2]``; empty if a value is NaN."""
    if np.isnan(values).any():
        return ""
    scale, sign = (100, "%") if unit == "accuracy" else (1, "")
    digits = DIGITS.get(unit, DIGITS[NUMBER])
    interval = mean_interval(values)
    if unit in SPANS and interval:
        low, high = SPANS[unit]
        interval = max(interval[0], low), min(interval[1], high)
    text = f"{scale * values.mean():.{digits}f}{sign}"
    if interval is None or interval[0] == interval[1]:
        return text
    return f"{text} [{scale * interval[0]:.{digits}f}, {scale * interval[1]:.{digits}f}]"


def seeds_note(seeds: int) -> str:
    return "1 seed" if seeds == 1 else f"mean of {seeds} seeds" + (" and 95% interval" if seeds >= MIN_SEEDS else "")


def number(value: float, unit: str, brief: bool = False) -> str:
    """A number with its unit: ``99.98%``, ``6.31 points``. ``brief`` has fewer digits, as the paper's numbers do."""
    digits = bare(value, unit, brief)
    return f"layer {digits}" if unit == "layer" else f"{digits}{UNIT_NAMES.get(unit, '')}"


def estimated(estimate: Estimate, unit: str) -> str:
    """An estimate as text: ``99.9%``, ``> 50 epochs``, ``1.20 to 1.25 times``."""
    if estimate.value is not None:
        return number(estimate.value, unit)
    if math.isinf(estimate.high):
        return f"> {number(estimate.low, unit)}"
    return f"{bare(estimate.low, unit)} to {number(estimate.high, unit)}"


def interval_text(interval: Interval | None, unit: str) -> str:
    """An interval as text, ``[99.7, 100]``, in the unit of its estimate; empty for None."""
    return "" if interval is None else f"[{', '.join(bare(end, unit).rstrip('%') for end in interval)}]"


def bare(value: float, unit: str, brief: bool = False) -> str:
    """A number without the name of its unit, but with a percent sign."""
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    match unit:
        case "accuracy":
            digits = 1 if brief or round(100 * value, 2) in (0, 100) else 2
            digits = 2 if 0 < value < 0.005 else digits
            return f"{100 * value:.{digits}f}".removesuffix(".0") + "%"
        case "points":
            text = f"{100 * value:.{1 if brief else 2}f}"
            return text.removeprefix("-") if float(text) == 0 else text
        case "percent":
            return f"{value:.{1 if brief else 2}f}%"
        case "ratio" | "epochs":
            return f"{value:.2f}" if unit == "ratio" else f"{value:.4g}"
        case "operations":
            return f"{value / 1e12:.{0 if brief else 1}f}e12"
        case "parameters":
            return f"{value / 1000:.0f}K" if brief else f"{value:,.0f}"
        case "tokens" | "examples" | "bits" | "count" | "layer":
            if value >= 1e6:
                return f"{value / 1e6:.{0 if brief else 2}f}M"
            return f"{value:,.10g}" if value == int(value) else f"{value:.2f}"
        case _:
            return f"{value:.3g}"
