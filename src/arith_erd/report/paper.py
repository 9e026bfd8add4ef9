"""``paper.yaml``: every published number, how it is measured, and what counts as the same."""

import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

import yaml

from ..config.explain import as_text
from ..errors import UserError
from ..plots.numbers import UNITS, number
from .collect import OURS
from .measures import MEASURES, EpochsTo, Measure, OfExamples, ProbeColumn, Runs

PAPER = Path(__file__).with_name("paper.yaml")
KINDS = ("result", "setup")
VARYING = ("minutes", "accuracy")  # units of set-up checks that are measured; all others count or define
BOUNDS = {"at_most": (-math.inf, 0.0), "at_least": (0.0, math.inf), "above": (1e-6, math.inf)}
Compare: TypeAlias = Literal["value", "mean", "median", "ratio", "votes"]


@dataclass(frozen=True)
class Claim:
    """One published number.

    Attributes:
        value: the paper's, in ``unit``.
        lowest, highest: of the values that count as reproduced; infinite where there is no such bound.
        runs: what was trained.
        minus: options by which other runs differ, whose measure is subtracted; ``over``: by which it is divided.
        more_than: options of runs whose own difference is subtracted again.
        kind: a result, or a check of the set-up: a definition, or a number that cannot fail.
        same_as: the claim that states the same fact; only that one is counted.
        paper: the number in the paper's own words.
    """

    id: str
    section: str
    place: str
    statement: str
    value: float
    unit: str
    measure: Measure
    lowest: float
    highest: float
    runs: Runs
    minus: Runs | None = None
    over: Runs | None = None
    more_than: Runs | None = None
    make: str = ""
    kind: str = "result"
    same_as: str = ""
    paper: str = ""
    figure: str = ""
    erratum: str = ""
    cause: str = ""

    @property
    def arms(self) -> list[tuple[float, Runs]]:
        """Each kind of run with its weight in the difference; the second one is the divisor of a ratio."""
        other = self.minus or self.over
        arms = [(1.0, self.runs)] + ([(-1.0, {**self.runs, **other})] if other else [])
        return arms + [(-weight, {**runs, **self.more_than}) for weight, runs in arms if self.more_than]

    @property
    def compare(self) -> Compare:
        """What is compared with the paper's number; see ``docs/verdicts.md``."""
        if self.measure.source != OURS or (self.kind == "setup" and self.unit not in VARYING):
            return "value"
        if isinstance(self.measure, ProbeColumn) and self.measure.reduce.startswith("arg"):
            return "votes"
        return "ratio" if self.over else "median" if isinstance(self.measure, EpochsTo) else "mean"

    @property
    def text(self) -> str:
        """The paper's number as people write it: ``93.7%``, ``4.6 points``, ``701K``; or its own words."""
        bound = "≤ " if self.lowest == -math.inf else "≥ " if self.highest == math.inf else ""
        return self.paper or bound + number(self.value, self.unit, brief=True)


@dataclass(frozen=True)
class PaperFigure:
    """One of the paper's figures or tables.

    Attributes:
        make: the commands that make its data.
        curves: if it shows learning curves, its panels and lines; see ``paper.yaml``.
    """

    name: str
    title: str
    caption: str
    make: tuple[str, ...]
    curves: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Paper:
    """``paper.yaml``."""

    title: str
    authors: str
    journal: str
    doi: str
    setup: Mapping[str, Any]
    commands: Mapping[str, str]
    ablations: Mapping[str, str]
    """Names of those in table 3, for people."""
    figures: tuple[PaperFigure, ...]
    sections: Mapping[str, str]
    """Where each stands in the paper, by title."""
    claims: tuple[Claim, ...]

    def __getitem__(self, claim: str) -> Claim:
        return next(c for c in self.claims if c.id == claim)

    def command(self, make: str, runs: Path) -> str:
        """The command that makes some data, for a folder of runs; empty where the data need no command."""
        command = self.commands.get(make, "")
        if command and str(runs) != "runs" and "{runs}" not in command:
            command += " runs_dir={runs}"
        words = (word.partition("=") for word in command.split())
        filled = ((key, as_text(value.format(runs=runs)) if "{" in value else value) for key, _, value in words)
        return " ".join(f"{key}={shlex.quote(value)}" if value else key for key, value in filled)


@cache
def load_paper(path: Path = PAPER) -> Paper:
    """Read and check ``paper.yaml``.

    Raises:
        UserError: naming the claim and the key.
    """
    raw = yaml.safe_load(path.read_text())
    sections = raw.pop("sections")
    claims = [_claim(entry, section["title"], raw["commands"]) for section in sections for entry in section["claims"]]
    if len({claim.id for claim in claims}) < len(claims):
        raise UserError(f"{path.name}: two claims have the same id")
    heads = {claim.id for claim in claims if not claim.same_as}
    for claim in claims:
        if claim.same_as and claim.same_as not in heads:
            raise UserError(f"{path.name}: claim {claim.id}: expected same_as: a claim that is counted itself")
    figures = (PaperFigure(name, **figure | {"make": (*figure["make"],)}) for name, figure in raw["figures"].items())
    where = {section["title"]: section["where"] for section in sections}
    return Paper(**raw | {"figures": (*figures,), "sections": where, "claims": (*claims,)})


def _claim(entry: Mapping[str, Any], section: str, commands: Mapping[str, str]) -> Claim:
    """One entry of ``claims``; ``measure`` holds the keys of the measure and of the runs."""
    told = {key: value for key, value in entry.items() if key not in ("measure", "tolerance", "bound")}
    measure = dict(entry.get("measure", {}))
    runs = {key: measure.pop(key) for key in ("runs", "minus", "over", "more_than") if key in measure}
    way = MEASURES.get(measure.pop("from", ""))
    keys = {f.name for f in fields(way)} if way else set()  # type: ignore[arg-type]
    internal = {"section", "lowest", "highest", "runs", "minus", "over", "more_than"}
    unknown = set(told) - ({f.name for f in fields(Claim)} - internal)
    for wrong, what in (
        (bool(unknown), f"no such key: {', '.join(sorted(unknown))}"),
        (isinstance(entry.get("value"), bool) or not isinstance(entry.get("value"), int | float), "value: a number"),
        (entry.get("unit") not in UNITS, f"unit: one of {', '.join(UNITS)}"),
        (entry.get("kind", "result") not in KINDS, f"kind: one of {', '.join(KINDS)}"),
        (("bound" in entry) == ("tolerance" in entry), "either a tolerance or a bound"),
        (entry.get("bound", "above") not in BOUNDS, f"bound: one of {', '.join(BOUNDS)}"),
        (way is None, f"measure.from: one of {', '.join(MEASURES)}"),
        (not set(measure) <= keys, f"measure: keys among {', '.join(sorted(keys))}"),
        ("task" not in runs.get("runs", {}), "measure.runs: a task"),
        (entry.get("make", "" if way is OfExamples else None) not in {*commands, ""}, f"make: {', '.join(commands)}"),
        (not entry.get("statement") or not entry.get("place"), "a statement and its place in the paper"),
    ):
        if wrong:
            raise UserError(f"{PAPER.name}: claim {entry.get('id', '?')}: expected {what}")
    assert way is not None
    lowest, highest = _bounds(entry)
    if way is EpochsTo:
        measure.setdefault("planned", math.ceil(highest) if math.isfinite(highest) else 1)
    told |= {"value": float(entry["value"]), "section": section, "measure": way(**measure)}
    return Claim(**told, **runs, lowest=lowest, highest=highest)


def _bounds(entry: Mapping[str, Any]) -> tuple[float, float]:
    """The smallest and the largest value that count as reproduced."""
    value = float(entry["value"])
    if "tolerance" in entry:
        margin = entry["tolerance"]
        margin = abs(value) * float(margin[:-1]) / 100 if isinstance(margin, str) else float(margin)
        return value - margin, value + margin
    low, high = BOUNDS[entry["bound"]]
    return value + low, value + high
