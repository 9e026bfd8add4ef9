"""Read ``claims.yaml`` and ``mini.yaml``: every claim, its measure, and the tolerance for reproducing it."""

import math
import shlex
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import yaml
from pydantic import Field, Strict, ValidationError, model_validator

from .. import bundled
from ..config.compose import hydra_quoted
from ..errors import UserError, excerpt
from ..plots.tables import UNITS, format_number
from .collect import OUR_RUNS
from .measures import AnyMeasure, Ceiling, EpochsTo, ProbeColumn, StrictModel

PAPER, MINI = (bundled.PAPER / f"{name}.yaml" for name in ("claims", "mini"))
BOUND_RANGES = {"at_most": (-math.inf, 0.0), "at_least": (0.0, math.inf), "above": (1e-6, math.inf)}
Text: TypeAlias = Annotated[str, Field(min_length=1)]
Statistic: TypeAlias = Literal["value", "mean", "prediction", "median", "ratio", "votes", "ceiling"]


class Claim(StrictModel):
    """One published number. The head of ``claims.yaml`` explains its keys."""

    id: str
    section: str
    place: Text
    statement: Text
    value: Annotated[float, Strict()]
    unit: Literal[UNITS]  # type: ignore[valid-type]
    measure: AnyMeasure
    tolerance: float | Annotated[str, Field(pattern=r"^[\d.]+%$")] | None = None
    bound: Literal["at_most", "at_least", "above"] | None = None
    mean_of: int = 0
    make: str = ""
    same_as: str = ""
    paper: str = ""
    figure: str = ""
    erratum: str = ""
    cause: str = ""

    @model_validator(mode="after")
    def _check_complete(self) -> "Claim":
        if "task" not in self.measure.runs:
            raise ValueError("expected measure.runs: a task")
        if self.tolerance is None and self.bound is None:
            raise ValueError("expected a tolerance or a bound")
        return self

    @property
    def accepted_range(self) -> tuple[float, float]:
        """The smallest and largest value that count as reproduced; infinite without such a bound."""
        margin = float(str(self.tolerance or 0).removesuffix("%"))
        margin = abs(self.value) * margin / 100 if isinstance(self.tolerance, str) else margin
        low, high = BOUND_RANGES[self.bound] if self.bound else (0.0, 0.0)
        return self.value + low - margin, self.value + high + margin

    @property
    def counted(self) -> bool:
        """Whether it is a result of its own, not the same fact as another claim."""
        return not self.same_as

    @property
    def statistic(self) -> Statistic:
        """The statistic to compare with the paper's number; see ``docs/verdicts.md``."""
        if self.measure.source != OUR_RUNS:
            return "value"
        if isinstance(self.measure, ProbeColumn) and self.measure.reduce in ("argmin", "argmax"):
            return "votes"
        if isinstance(self.measure, EpochsTo):
            return "ratio" if self.measure.over else "median"
        return "ceiling" if isinstance(self.measure, Ceiling) else "prediction" if self.mean_of else "mean"

    @property
    def published_text(self) -> str:
        """The paper's number, ``93.7%``, ``4.6 points`` or ``701K``; or its own words."""
        bound = {"at_most": "≤ ", "at_least": "≥ "}.get(self.bound or "", "") if self.tolerance is None else ""
        return self.paper or bound + format_number(self.value, self.unit, as_published=True)


class PaperFigure(StrictModel):
    """One of the paper's figures or tables.

    ``make`` names the commands that make its data, ``curves`` has its lines, and ``site`` is the site of its probe.
    """

    name: str
    title: str
    caption: str
    make: tuple[str, ...]
    curves: Mapping[str, Any] | None = None
    site: str = "dec.3"


class Paper(StrictModel):
    """``claims.yaml`` or ``mini.yaml``. ``sections`` maps titles to places in the paper."""

    file: str
    heading: str
    about: str = ""
    title: str
    authors: str
    journal: str
    doi: str
    setup: Mapping[str, Any]
    commands: Mapping[str, str]
    ablations: Mapping[str, str]
    figures: tuple[PaperFigure, ...]
    sections: Mapping[str, str]
    claims: tuple[Claim, ...]

    def command(self, make: str, runs: Path) -> str:
        """The command that makes some data, for a folder of runs; empty if the data need no command."""
        command = self.commands.get(make, "")
        if command and str(runs) != "runs" and "{runs}" not in command:
            command += " runs_dir={runs}"
        words = (word.partition("=") for word in command.split())
        filled = ((key, hydra_quoted(value.format(runs=runs)) if "{" in value else value) for key, _, value in words)
        return " ".join(f"{key}={shlex.quote(value)}" if value else key for key, value in filled)


@cache
def load_paper(path: Path = PAPER) -> Paper:
    """Read and check ``claims.yaml``; a `UserError` names the claim and the key."""
    raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    sections = raw.pop("sections")
    claims = [
        _read_claim({"section": section["title"], **entry}, path.name)
        for section in sections
        for entry in section["claims"]
    ]
    ids, counted_ids = [claim.id for claim in claims], {claim.id for claim in claims if not claim.same_as}
    for claim in claims:
        if ids.count(claim.id) > 1:
            raise UserError(f"{path.name}: two claims have the id {claim.id}")
        if claim.make not in {*raw["commands"], ""}:
            raise UserError(f"{path.name}: claim {claim.id}: make={claim.make}: expected {', '.join(raw['commands'])}")
        if claim.same_as and claim.same_as not in counted_ids:
            raise UserError(f"{path.name}: claim {claim.id}: expected same_as: a claim that is counted itself")
    figures = tuple(PaperFigure(name=name, **figure) for name, figure in raw.pop("figures").items())
    places = {section["title"]: section["where"] for section in sections}
    return Paper(**raw, file=path.name, figures=figures, sections=places, claims=tuple(claims))


def _read_claim(entry: dict[str, Any], file: str) -> Claim:
    try:
        claim = Claim(**entry)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"][:1] + first["loc"][2:]))  # the second one names a member of a union
        received = f"{key}={excerpt(str(first['input']))}: " if key else ""
        raise UserError(f"{file}: claim {entry.get('id', '?')}: {received}{first['msg']}") from error
    if isinstance(claim.measure, EpochsTo) and not claim.measure.planned:
        planned = math.ceil(claim.accepted_range[1]) if math.isfinite(claim.accepted_range[1]) else 1
        return claim.model_copy(update={"measure": claim.measure.model_copy(update={"planned": planned})})
    return claim
