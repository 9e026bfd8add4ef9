"""``paper.yaml``: every published number, what counts as the same, and how people write it."""

import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml

from ..errors import UserError

PAPER = Path(__file__).with_name("paper.yaml")
UNITS = (
    *("accuracy", "points", "percent", "epochs", "ratio", "layer", "value", "minutes"),
    *("count", "tokens", "examples", "bits", "parameters", "operations"),
)
SOURCES = ("metrics", "summary", "epochs_to", "probe")
REDUCTIONS = ("", "max", "min", "count", "length", "argmin", "argmax")


@dataclass(frozen=True)
class Claim:
    """One published number.

    Attributes:
        value: the paper's, in ``unit``.
        lowest: of the values that count as reproduced; minus infinity if any that is low enough does.
        highest: of them.
        measure: how to have it from runs; the keys are explained at the head of ``paper.yaml``.
        statistic: mean or median, which of ours is compared.
    """

    id: str
    section: str
    place: str
    statement: str
    value: float
    unit: str
    lowest: float
    highest: float
    measure: Mapping[str, Any]
    statistic: Literal["mean", "median"]
    make: str
    paper: str
    figure: str
    erratum: str
    cause: str


@dataclass(frozen=True)
class Paper:
    """``paper.yaml``."""

    title: str
    authors: str
    journal: str
    doi: str
    setup: Mapping[str, Any]
    commands: Mapping[str, str]
    sections: Mapping[str, str]
    """Where each stands in the paper, by title."""
    claims: tuple[Claim, ...]

    def __getitem__(self, claim: str) -> Claim:
        return next(c for c in self.claims if c.id == claim)

    def command(self, make: str, runs: Path) -> str:
        """The command that makes some data, for a folder of runs."""
        command = self.commands[make]
        if str(runs) != "runs" and "{runs}" not in command:
            command += " runs_dir={runs}"
        tokens = [token.format(runs=runs).partition("=") for token in command.split()]
        return " ".join(f"{key}{equals}{shlex.quote(value) if equals else ''}" for key, equals, value in tokens)


@cache
def load_paper(path: Path = PAPER) -> Paper:
    """Read and check ``paper.yaml``.

    Raises:
        UserError: naming the claim and the key.
    """
    raw = yaml.safe_load(path.read_text())
    claims = [
        _claim(entry, section["title"], raw["commands"]) for section in raw["sections"] for entry in section["claims"]
    ]
    names = [claim.id for claim in claims]
    if len(set(names)) < len(names):
        raise UserError(f"{path.name}: an id stands there twice")
    sections = {section["title"]: section["where"] for section in raw["sections"]}
    about = {key: str(raw[key]) for key in ("title", "authors", "journal", "doi")}
    return Paper(**about, setup=raw["setup"], commands=raw["commands"], sections=sections, claims=tuple(claims))


def _claim(entry: Mapping[str, Any], section: str, commands: Mapping[str, str]) -> Claim:
    name = entry.get("id", "?")
    unknown = set(entry) - set(Claim.__dataclass_fields__) - {"tolerance", "bound"}
    measure = entry.get("measure", {})
    for wrong, what in (
        (bool(unknown), f"no such key: {', '.join(sorted(unknown))}"),
        (isinstance(entry.get("value"), bool) or not isinstance(entry.get("value"), int | float), "value: a number"),
        (entry.get("unit") not in UNITS, f"unit: one of {', '.join(UNITS)}"),
        (("bound" in entry) == ("tolerance" in entry), "either a tolerance or a bound"),
        (entry.get("bound", "at_most") not in ("at_most", "at_least"), "bound: at_most or at_least"),
        (measure.get("from") not in SOURCES, f"measure.from: one of {', '.join(SOURCES)}"),
        (measure.get("reduce", "") not in REDUCTIONS, f"measure.reduce: one of {', '.join(REDUCTIONS[1:])}"),
        (entry.get("make") not in commands, f"make: one of {', '.join(commands)}"),
        (not entry.get("statement") or not entry.get("place"), "a statement and its place in the paper"),
    ):
        if wrong:
            raise UserError(f"{PAPER.name}: claim {name}: expected {what}")
    value = float(entry["value"])
    lowest, highest = -np.inf, np.inf
    if "tolerance" in entry:
        margin = entry["tolerance"]
        margin = abs(value) * float(margin[:-1]) / 100 if isinstance(margin, str) else float(margin)
        lowest, highest = value - margin, value + margin
    elif entry["bound"] == "at_most":
        highest = value
    else:
        lowest = value
    if measure["from"] == "epochs_to" and "planned" not in measure:
        measure = {**measure, "planned": math.ceil(highest) if math.isfinite(highest) else 1}
    statistic = "median" if measure["from"] == "epochs_to" else "mean"
    optional = {key: str(entry.get(key, "")) for key in ("paper", "figure", "erratum", "cause")}
    return Claim(
        id=name,
        section=section,
        place=entry["place"],
        statement=entry["statement"],
        value=value,
        unit=entry["unit"],
        lowest=lowest,
        highest=highest,
        measure=measure,
        statistic=entry.get("statistic", statistic),
        make=entry["make"],
        **optional,
    )


def paper_text(claim: Claim) -> str:
    """The paper's number as people write it: ``93.7%``, ``4.6 points``, ``701K``; or its own words."""
    if claim.paper:
        return claim.paper
    bound = "≤ " if claim.lowest == -np.inf else "≥ " if claim.highest == np.inf else ""
    return bound + number(claim.value, claim.unit, brief=True)


def number(value: float, unit: str, brief: bool = False) -> str:
    """A number with its unit. ``brief`` is for the paper's, which has fewer digits."""
    match unit:
        case "accuracy":
            digits = 1 if brief or round(100 * value, 2) in (0, 100) else 2
            digits = 2 if 0 < value < 0.005 else digits
            return f"{100 * value:.{digits}f}".removesuffix(".0") + "%"
        case "points":
            return f"{100 * value:.{1 if brief else 2}f} points".replace("-0.00", "0.00").replace("-0.0 ", "0.0 ")
        case "percent":
            return f"{value:.{1 if brief else 2}f}%"
        case "ratio":
            return f"{value:.2f} times"
        case "epochs":
            return f"{value:g} epochs"
        case "minutes":
            return f"{value:.3g} min"
        case "operations":
            return f"{value / 1e12:.{0 if brief else 1}f}e12"
        case "parameters":
            return f"{value / 1000:.0f}K" if brief else f"{value:,.0f}"
        case "tokens" | "examples" | "bits" | "count" | "layer":
            name = {"count": "", "layer": ""}.get(unit, f" {unit}")
            prefix = "layer " if unit == "layer" else ""
            if value >= 1e6:
                return f"{value / 1e6:.{0 if brief else 2}f}M{name}"
            return f"{prefix}{value:,.10g}{name}" if value == int(value) else f"{prefix}{value:.2f}{name}"
        case _:
            return f"{value:.3g}"
