"""``paper.yaml``: every published number, how it is measured, and what counts as the same."""

import math
import shlex
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import yaml
from pydantic import ConfigDict, Field, Strict, ValidationError
from pydantic.dataclasses import dataclass

from ..config.explain import as_text
from ..errors import UserError
from ..plots.numbers import UNITS, number
from .collect import OURS
from .measures import CLOSED, MEASURES, Ceiling, EpochsTo, Measure, Metrics, ProbeColumn, Runs

PAPER = Path(__file__).with_name("paper.yaml")
VARYING = ("minutes", "accuracy")  # units of set-up checks that are measured; all others count or define
BOUNDS = {"at_most": (-math.inf, 0.0), "at_least": (0.0, math.inf), "above": (1e-6, math.inf)}
ARMS = ("runs", "minus", "over", "more_than")  # keys of ``measure`` that choose runs
Text: TypeAlias = Annotated[str, Field(min_length=1)]
Compare: TypeAlias = Literal["value", "mean", "prediction", "median", "ratio", "votes", "ceiling"]


@dataclass(frozen=True, config=ConfigDict(extra="forbid", arbitrary_types_allowed=True))
class Claim:
    """One published number.

    Attributes:
        value: the paper's, in ``unit``.
        tolerance: how far from it a number may be that counts as reproduced, a percentage of it if it is text; and
            ``bound``: on which side of it it may be at any distance.
        runs: what was trained.
        minus: options by which other runs differ, whose measure is subtracted; ``over``: by which it is divided.
        more_than: options of runs whose own difference is subtracted again.
        mean_of: runs of which the published number is a mean, where it is judged as one.
        before: the same claim as it was judged before 2026-11-24; ``old`` is true of that one.
        kind: a result, or a check of the set-up: a definition, or a number that cannot fail.
        same_as: the claim that states the same fact; only that one is counted.
        paper: the number in the paper's own words.
    """

    id: str
    section: str
    place: Text
    statement: Text
    value: Annotated[float, Strict()]
    unit: Literal[UNITS]  # type: ignore[valid-type]
    measure: Measure
    runs: Runs
    tolerance: float | Annotated[str, Field(pattern=r"^[\d.]+%$")] | None = None
    bound: Literal["at_most", "at_least", "above"] | None = None
    minus: Runs | None = None
    over: Runs | None = None
    more_than: Runs | None = None
    mean_of: int = 0
    old: bool = False
    before: "Claim | None" = None
    make: str = ""
    kind: Literal["result", "setup"] = "result"
    same_as: str = ""
    paper: str = ""
    figure: str = ""
    erratum: str = ""
    cause: str = ""

    def __post_init__(self) -> None:
        if self.tolerance is None and self.bound is None:
            raise ValueError("expected a tolerance or a bound")
        if "task" not in self.runs:
            raise ValueError("expected measure.runs: a task")
        if isinstance(self.measure, EpochsTo) and not self.measure.planned:
            planned = math.ceil(self.span[1]) if math.isfinite(self.span[1]) else 1
            object.__setattr__(self, "measure", replace(self.measure, planned=planned))

    @property
    def span(self) -> tuple[float, float]:
        """The smallest and the largest value that count as reproduced; infinite where there is no such bound."""
        margin = float(str(self.tolerance or 0).removesuffix("%"))
        margin = abs(self.value) * margin / 100 if isinstance(self.tolerance, str) else margin
        low, high = BOUNDS[self.bound] if self.bound else (0.0, 0.0)
        return self.value + low - margin, self.value + high + margin

    @property
    def arms(self) -> list[tuple[float, Runs]]:
        """Each kind of run with its weight in the difference; the second one is the divisor of a ratio."""
        other = self.minus or self.over
        arms = [(1.0, self.runs)] + ([(-1.0, {**self.runs, **other})] if other else [])
        return arms + [(-weight, {**runs, **self.more_than}) for weight, runs in arms if self.more_than]

    @property
    def counted(self) -> bool:
        """Whether it is a result of its own, not a set-up check or the same fact as another claim."""
        return self.kind == "result" and not self.same_as

    @property
    def compare(self) -> Compare:
        """The statistic that is compared with the paper's number; see ``docs/verdicts.md``."""
        if self.measure.source != OURS or (self.kind == "setup" and self.unit not in VARYING):
            return "value"
        if isinstance(self.measure, ProbeColumn) and self.measure.reduce.startswith("arg"):
            return "votes"
        if isinstance(self.measure, EpochsTo):
            return "ratio" if self.over else "median"
        return "ceiling" if isinstance(self.measure, Ceiling) else "prediction" if self.mean_of else "mean"

    @property
    def text(self) -> str:
        """The paper's number as people write it: ``93.7%``, ``4.6 points``, ``701K``; or its own words."""
        bound = {"at_most": "≤ ", "at_least": "≥ "}.get(self.bound or "", "") if self.tolerance is None else ""
        return self.paper or bound + number(self.value, self.unit, brief=True)


@dataclass(frozen=True, config=CLOSED)
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


@dataclass(frozen=True, config=CLOSED)
class Paper:
    """``paper.yaml``; ``sections`` says where each stands in the paper, by title."""

    title: str
    authors: str
    journal: str
    doi: str
    setup: Mapping[str, Any]
    commands: Mapping[str, str]
    ablations: Mapping[str, str]
    figures: tuple[PaperFigure, ...]
    sections: Mapping[str, str]
    claims: tuple[Any, ...]

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
    """Read and check ``paper.yaml``; a `UserError` names the claim and the key."""
    raw = yaml.safe_load(path.read_text())
    sections = raw.pop("sections")
    claims = [_claim(entry, section["title"], path.name) for section in sections for entry in section["claims"]]
    heads = {claim.id for claim in claims if not claim.same_as}
    for claim in claims:
        if [other.id for other in claims].count(claim.id) > 1:
            raise UserError(f"{path.name}: two claims have the id {claim.id}")
        if claim.make not in {*raw["commands"], ""}:
            raise UserError(f"{path.name}: claim {claim.id}: make={claim.make}: expected {', '.join(raw['commands'])}")
        if claim.same_as and claim.same_as not in heads:
            raise UserError(f"{path.name}: claim {claim.id}: expected same_as: a claim that is counted itself")
    figures = tuple(PaperFigure(name, **figure) for name, figure in raw["figures"].items())
    where = {section["title"]: section["where"] for section in sections}
    return Paper(**raw | {"figures": figures, "sections": where, "claims": tuple(claims)})


def _claim(entry: Mapping[str, Any], section: str, file: str) -> Claim:
    """One entry of ``claims``; its ``measure`` holds the keys of the measure and of the runs."""
    said = dict(entry)
    changed = said.pop("before", {})
    before = _read(said | changed, section, file)
    measure = replace(before.measure, tail="") if isinstance(before.measure, Metrics) else before.measure
    return replace(_read(said, section, file), before=replace(before, measure=measure, mean_of=0, old=True))


def _read(entry: Mapping[str, Any], section: str, file: str) -> Claim:
    where, said = f"{file}: claim {entry.get('id', '?')}", dict(entry.get("measure", {}))
    way = said.pop("from", None)
    if way not in MEASURES:
        raise UserError(f"{where}: measure.from={way}: expected {', '.join(MEASURES)}")
    runs = {key: said.pop(key) for key in ARMS if key in said}
    try:
        return Claim(**{**entry, "section": section, "measure": MEASURES[way](**said), **runs})
    except ValidationError as error:
        first = error.errors()[0]
        given = "" if first["type"] == "missing" else f"={first['input']}"
        key = "".join(f"{part}{given}: " for part in first["loc"][:1])
        raise UserError(f"{where}: {key}{first['msg']}") from error
