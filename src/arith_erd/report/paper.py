"""``paper.yaml``: every published number, how it is measured, and what counts as the same."""

import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import yaml

from ..errors import UserError
from .collect import OURS
from .measures import MEASURES, EpochsTo, Measure, OfExamples, ProbeColumn, Runs
from .numbers import UNITS, number

PAPER = Path(__file__).with_name("paper.yaml")
KINDS = ("result", "setup")
BOUNDS = ("at_most", "at_least", "above")
ABOVE = 1e-6
Compare: TypeAlias = Literal["value", "mean", "median", "ratio", "votes"]
OTHERS = ("minus", "over", "more_than")


@dataclass(frozen=True)
class Claim:
    """One published number.

    Attributes:
        kind: a result, or a check of the set-up: a definition, or a number that cannot fail.
        same_as: the claim that states the same fact; only that one is counted.
        value: the paper's, in ``unit``.
        lowest: of the values that count as reproduced; minus infinity if any that is low enough does.
        highest: of them.
        runs: what was trained.
        other: how ``minus`` or ``over`` these other runs are used, and by which options they differ.
        more_than: options of runs whose own difference is subtracted again.
    """

    id: str
    section: str
    place: str
    statement: str
    value: float
    unit: str
    lowest: float
    highest: float
    measure: Measure
    runs: Runs
    other: tuple[str, Runs] | None
    more_than: Runs | None
    make: str
    kind: str
    same_as: str
    paper: str
    figure: str
    erratum: str
    cause: str

    @property
    def arms(self) -> list[tuple[float, Runs]]:
        """Each kind of run with its weight in the difference; the second one is the divisor of a ratio."""
        arms = [(1.0, self.runs)] + ([(-1.0, {**self.runs, **self.other[1]})] if self.other else [])
        if self.more_than:
            arms += [(-weight, {**runs, **self.more_than}) for weight, runs in arms]
        return arms

    @property
    def compare(self) -> Compare:
        """What is compared with the paper's number; see ``docs/verdicts.md``."""
        if self.kind == "setup" or self.measure.source != OURS:
            return "value"
        if isinstance(self.measure, ProbeColumn) and self.measure.reduce.startswith("arg"):
            return "votes"
        if self.other and self.other[0] == "over":
            return "ratio"
        return "median" if isinstance(self.measure, EpochsTo) else "mean"

    @property
    def text(self) -> str:
        """The paper's number as people write it: ``93.7%``, ``4.6 points``, ``701K``; or its own words."""
        if self.paper:
            return self.paper
        bound = "≤ " if self.lowest == -np.inf else "≥ " if self.highest == np.inf else ""
        return bound + number(self.value, self.unit, brief=True)


@dataclass(frozen=True)
class PaperFigure:
    """One of the paper's figures or tables.

    Attributes:
        make: the commands that make its data.
    """

    name: str
    title: str
    caption: str
    make: tuple[str, ...]


@dataclass(frozen=True)
class Paper:
    """``paper.yaml``."""

    title: str
    authors: str
    journal: str
    doi: str
    setup: Mapping[str, Any]
    commands: Mapping[str, str]
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
        tokens = [token.format(runs=runs).partition("=") for token in command.split()]
        return " ".join(f"{key}{equals}{shlex.quote(value) if equals else ''}" for key, equals, value in tokens)


@cache
def load_paper(path: Path = PAPER) -> Paper:
    """Read and check ``paper.yaml``.

    Raises:
        UserError: naming the claim and the key.
    """
    raw = yaml.safe_load(path.read_text())
    entries = [(section["title"], entry) for section in raw["sections"] for entry in section["claims"]]
    claims = [_claim(entry, section, raw["commands"]) for section, entry in entries]
    names = [claim.id for claim in claims]
    if len(set(names)) < len(names):
        raise UserError(f"{path.name}: two claims have the same id")
    heads = {claim.id for claim in claims if not claim.same_as}
    for claim in claims:
        if claim.same_as and claim.same_as not in heads:
            raise UserError(f"{path.name}: claim {claim.id}: expected same_as: a claim that is counted itself")
    figures = tuple(PaperFigure(name, f["title"], f["caption"], (*f["make"],)) for name, f in raw["figures"].items())
    sections = {section["title"]: section["where"] for section in raw["sections"]}
    about = {key: str(raw[key]) for key in ("title", "authors", "journal", "doi")}
    return Paper(
        **about,
        setup=raw["setup"],
        commands=raw["commands"],
        figures=figures,
        sections=sections,
        claims=tuple(claims),
    )


def _claim(entry: Mapping[str, Any], section: str, commands: Mapping[str, str]) -> Claim:
    name = entry.get("id", "?")
    known = set(Claim.__dataclass_fields__) - {"section", "lowest", "highest", "runs", "other", "more_than"}
    unknown = set(entry) - known - {"tolerance", "bound"}
    measure = dict(entry.get("measure", {}))
    runs, more_than = measure.pop("runs", {}), measure.pop("more_than", None)
    others = [(key, measure.pop(key)) for key in ("minus", "over") if key in measure]
    way = MEASURES.get(measure.pop("from", ""))
    keys = {f.name for f in fields(way)} if way else set()  # type: ignore[arg-type]
    for wrong, what in (
        (bool(unknown), f"no such key: {', '.join(sorted(unknown))}"),
        (isinstance(entry.get("value"), bool) or not isinstance(entry.get("value"), int | float), "value: a number"),
        (entry.get("unit") not in UNITS, f"unit: one of {', '.join(UNITS)}"),
        (entry.get("kind", "result") not in KINDS, f"kind: one of {', '.join(KINDS)}"),
        (("bound" in entry) == ("tolerance" in entry), "either a tolerance or a bound"),
        (entry.get("bound", "above") not in BOUNDS, f"bound: one of {', '.join(BOUNDS)}"),
        (way is None, f"measure.from: one of {', '.join(MEASURES)}"),
        (not set(measure) <= keys, f"measure: keys among {', '.join(sorted(keys))}"),
        ("task" not in runs, "measure.runs: a task"),
        ("make" in entry and entry["make"] not in commands, f"make: one of {', '.join(commands)}"),
        ("make" not in entry and way is not OfExamples, f"make: one of {', '.join(commands)}"),
        (not entry.get("statement") or not entry.get("place"), "a statement and its place in the paper"),
    ):
        if wrong:
            raise UserError(f"{PAPER.name}: claim {name}: expected {what}")
    assert way is not None
    lowest, highest = _bounds(entry)
    if way is EpochsTo and "planned" not in measure:
        measure["planned"] = math.ceil(highest) if math.isfinite(highest) else 1
    optional = {key: str(entry.get(key, "")) for key in ("make", "same_as", "paper", "figure", "erratum", "cause")}
    return Claim(
        **{key: entry[key] for key in ("id", "place", "statement", "unit")},
        section=section,
        value=float(entry["value"]),
        lowest=lowest,
        highest=highest,
        measure=way(**measure),
        runs=runs,
        other=others[0] if others else None,
        more_than=more_than,
        kind=entry.get("kind", "result"),
        **optional,
    )


def _bounds(entry: Mapping[str, Any]) -> tuple[float, float]:
    """The smallest and the largest value that count as reproduced."""
    value = float(entry["value"])
    if "tolerance" in entry:
        margin = entry["tolerance"]
        margin = abs(value) * float(margin[:-1]) / 100 if isinstance(margin, str) else float(margin)
        return value - margin, value + margin
    return {"at_most": (-np.inf, value), "at_least": (value, np.inf), "above": (value + ABOVE, np.inf)}[entry["bound"]]
