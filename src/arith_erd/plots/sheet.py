"""The description of a probe's rows: measures, units, and the layout of their table."""

import json
from collections.abc import Mapping
from dataclasses import asdict, field, replace
from typing import Any

import numpy as np
import pandas as pd
from pydantic import TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from ..errors import excerpt
from ..stats import MIN_SEEDS, mean_interval

TEXT, INTEGER, NUMBER = "text", "integer", "number"
SPANS = {"accuracy": (0.0, 1.0), "correlation": (-1.0, 1.0), "value": (0.0, np.inf), "minutes": (0.0, np.inf)}
"""What means in these units can be: no interval leaves them. A value is an error."""
DIGITS = {"percent": 1, "accuracy": 1, "correlation": 2, NUMBER: 3}
"""Decimals by unit; an accuracy is written in percent."""


@dataclass(frozen=True)
class Sheet:
    """The description that a probe writes beside its rows, to ``probe.json``.

    ``columns`` gives the kind of each column: ``text`` and ``integer`` say what was measured; ``number`` or a unit
    (``accuracy``, ``correlation``, ``percent``) is a measure. The values of those in ``across`` become columns of the
    table. Where a row is a single case, such as a wrong answer, the table counts cases by the columns in ``counted``.
    ``settings`` are those of probe, task and split, as far as rows do not come from a run.
    """

    name: str
    columns: Mapping[str, str]
    across: tuple[str, ...] = ()
    counted: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, rows: pd.DataFrame, units: Mapping[str, str], **layout: Any) -> "Sheet":
        """Describe rows. A column of floats without a unit is a plain number; other columns name the case."""
        kinds = {
            str(c): NUMBER if kind == "f" else INTEGER if kind in "iu" else TEXT
            for c, kind in ((c, getattr(rows[c].dtype, "kind", "O")) for c in rows)
        }
        return cls(name, {c: units.get(c, kind) for c, kind in kinds.items()}, **layout)

    @classmethod
    def from_json(cls, text: str) -> "Sheet":
        """The inverse of `to_json`; a `ValueError` if the text is no such description."""
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

    ``0.889 [0.871, 0.902]``; without the brackets from fewer than three seeds, or where all are equal. What is not
    known is empty.
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
    """``0.889 [0.871, 0.902]``, ``88.9% [87.1, 90.2]``; empty if a value is not known."""
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
