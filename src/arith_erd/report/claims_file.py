"""Read a claims file: every claim, its measure, and the tolerance for reproducing it.

It may name classes and functions of Python files that lie beside it, as ``measures.py:Gap``. Reading it must not run
code that came with it, so only the command line can allow this (``--trust``). The files of the paper that comes with
the package need no permission.
"""

import importlib.util
import math
import re
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import yaml
from matplotlib.figure import Figure
from pydantic import BaseModel, Field, FiniteFloat, ValidationError, model_validator

from ..bundled import CONF, PAPER, load_option
from ..checks import explain_validation_error, require_integer
from ..config.hydra_conf import RECIPE_GROUPS, hydra_quoted
from ..digits import ORDERS
from ..errors import UserError, bad_value, file_may_be_intact, first_line, last_line, unknown_name
from ..plots.tables import UNITS, format_number
from ..runs.directory import METRIC_COLUMNS
from ..runs.identity import NAME_PATTERN, NAMED_GROUPS, flatten
from ..runs.table import ORDER_KEYS
from ..system.signals import exits_are_errors
from .collect import NUMBERS, OUR_RUNS
from .measures import MEASURES, EpochsTo, Measure, Metrics, ProbeColumn, RunOptions, StrictModel, Summary

CLAIMS = PAPER / "claims.yaml"
BOUND_RANGES = {"at_most": (-math.inf, 0.0), "at_least": (0.0, math.inf), "above": (1e-6, math.inf)}
Model = TypeVar("Model", bound=BaseModel)
Percentage: TypeAlias = Annotated[str, Field(pattern=r"^(\d+\.?\d*|\.\d+)%$")]
TOLERANCES = "a number of at least 0, or a percentage such as 5%"
FILLED_IN = ("section", "path", "claims")  # fields that `load_paper` gives
SETUP_GROUPS = ("all", *NAMED_GROUPS, "probe")
Reference: TypeAlias = tuple[str, object, Collection[str], str]  # key, name, existing names, text of what is accepted
Statistic: TypeAlias = Literal["value", "mean", "prediction", "median", "ratio", "votes", "derived"]


class Claim(StrictModel):
    """One published number. The head of ``paper/claims.yaml`` explains its keys."""

    id: str
    section: str
    place: str = ""
    statement: str = Field(min_length=1)
    value: float = Field(strict=True, allow_inf_nan=False)
    unit: Literal[UNITS]  # type: ignore[valid-type]
    measure: Measure
    tolerance: Annotated[FiniteFloat, Field(ge=0)] | Percentage | None = Field(None, description=TOLERANCES)
    bound: Literal["at_most", "at_least", "above"] | None = None
    mean_of: int = Field(default=0, ge=1)
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
        ratio, difference = self.measure.over is not None, bool(self.measure.minus or self.measure.more_than)
        if ratio and (difference or not (isinstance(self.measure, EpochsTo) and self.measure.planned)):
            raise ValueError("measure.over: expected from: epochs_to with planned, without minus and more_than")
        if difference and (isinstance(self.measure, EpochsTo) or (self.mean_of and self.unit != "points")):
            raise ValueError("measure.minus, more_than: expected no epochs_to, and mean_of only for points")
        return self

    @property
    def accepted_range(self) -> tuple[float, float]:
        """The smallest and largest values that count as reproduced; infinite without a bound."""
        margin = float(str(self.tolerance or 0).removesuffix("%"))
        margin = abs(self.value) * margin / 100 if isinstance(self.tolerance, str) else margin
        low, high = BOUND_RANGES[self.bound] if self.bound else (0.0, 0.0)
        return self.value + low - margin, self.value + high + margin

    @property
    def counted(self) -> bool:
        """Whether the claim counts as a result, that is, does not restate another claim."""
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
        return "derived" if self.measure.derived() else "prediction" if self.mean_of and not self.bound else "mean"

    @property
    def published_text(self) -> str:
        """The paper's number, such as ``93.7%``, ``4.6 points`` or ``701K``, or the paper's words."""
        bound = {"at_most": "≤ ", "at_least": "≥ "}.get(self.bound or "", "") if self.tolerance is None else ""
        return self.paper or bound + format_number(self.value, self.unit, as_published=True)


class CurveLine(StrictModel):
    """A line of `Curves`. The head of the figures in ``paper/claims.yaml`` explains its keys."""

    label: str
    style: Literal["first", "second", "third", "reference", "faint"]
    column: Literal[METRIC_COLUMNS] = "val_seq_acc"  # type: ignore[valid-type]
    runs: RunOptions = Field(default_factory=dict)
    claim: str = ""
    besides: bool = False


class Curves(StrictModel):
    """Learning curves: a panel for each task, up to an epoch."""

    epochs: Mapping[str, Annotated[int, Field(ge=1)]]
    lines: tuple[CurveLine, ...]


class PaperFigure(StrictModel):
    """One of the paper's figures or tables.

    ``make`` names the commands that make its data. ``curves`` has its lines. Instead, ``draw`` can be a function of the
    data, the results by id, and ``options``.
    """

    name: str = Field(pattern=f"^(?:{NAME_PATTERN})$")  # of its files
    title: str
    caption: str = ""
    make: tuple[str, ...] = ()
    curves: Curves | None = None
    draw: Callable[..., Figure | None] | None = None
    options: Mapping[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_drawn(self) -> "PaperFigure":
        if (self.curves is None) == (self.draw is None):
            raise ValueError("expected curves, or draw=FILE.py:FUNCTION")
        return self


class Paper(StrictModel):
    """A claims file. ``sections`` maps titles to places in the paper."""

    path: Path
    heading: str = "The paper beside ours"
    about: str = ""
    title: str
    authors: str = ""
    journal: str = ""
    doi: str = ""
    setup: Mapping[Literal[SETUP_GROUPS], Mapping[str, Any]] = Field(default_factory=dict)  # type: ignore[valid-type]
    commands: Mapping[str, str] = Field(default_factory=dict)
    figures: tuple[PaperFigure, ...]
    sections: Mapping[str, str]
    claims: tuple[Claim, ...]

    @property
    def file(self) -> str:
        return self.path.name

    def command(self, make: str, runs: Path) -> str:
        """The command that makes these data in a folder of runs; empty if none is needed."""
        command = self.commands.get(make, "")
        if command and str(runs) != "runs" and "{runs}" not in command:
            command += " runs_dir={runs}"

        def filled(word: re.Match[str]) -> str:
            key, equals, value = word[0].replace("{runs}", str(runs)).partition("=")
            return f"{key}={shlex.quote(hydra_quoted(value))}" if equals else shlex.quote(key)

        return re.sub(r"\S*\{runs\}\S*", filled, command)


@cache
def load_paper(path: Path = CLAIMS, trust: bool = False) -> Paper:
    """Read and check a claims file; a `UserError` names the claim and the key. Code beside it needs ``trust``."""
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        sections = raw.pop("sections")
        entries = [{"section": section["title"], **entry} for section in sections for entry in section["claims"]]
        figures = [{"name": name, **figure} for name, figure in raw.pop("figures", {}).items()]
        places = {section["title"]: section.get("where", "") for section in sections}
    except (OSError, UnicodeError, yaml.YAMLError, LookupError, TypeError, AttributeError, ValueError) as error:
        if file_may_be_intact(error):
            raise
        reason = f"lacks {error}" if isinstance(error, KeyError) else first_line(error)
        raise UserError(f"{path}: {reason}; expected a claims file: a title, and sections with claims") from error
    drawn = [_read_figure(figure, path, trust) for figure in figures]
    claims = [_read_claim(entry, path, trust) for entry in entries]
    paper = _checked(Paper, {**raw, "path": path, "figures": drawn, "sections": places, "claims": claims}, path.name)
    for claim_id, count in Counter(claim.id for claim in claims).items():
        if count > 1:
            raise UserError(f"{path.name}: two claims have the id {claim_id}")
    for key, name, known, accepted in _references(paper):
        if name not in known:
            raise unknown_name(key, name, known, accepted)
    return paper


def _references(paper: Paper) -> Iterator[Reference]:
    """Every name that refers to something."""
    ids = [claim.id for claim in paper.claims]
    counted_ids, figures = [claim.id for claim in paper.claims if claim.counted], [spec.name for spec in paper.figures]
    accepted_commands = f"a name under commands: {', '.join(paper.commands) or 'none'}"
    for claim in paper.claims:
        where, measure = f"{paper.file}: claim {claim.id}: ", claim.measure
        yield f"{where}same_as", claim.same_as, ["", *counted_ids], "a claim that is counted itself"
        yield f"{where}make", claim.make, ["", *paper.commands], accepted_commands
        yield f"{where}figure", claim.figure, ["", *figures], "a name under figures"
        for key in ("runs", "minus", "over", "more_than"):
            yield from _option_references(f"{where}measure.{key}", getattr(measure, key) or {}, paper)
        if isinstance(measure, ProbeColumn):
            yield f"{where}measure.probe", measure.probe.removesuffix("-epochs"), *_accepted_names("probe", paper)
        elif isinstance(measure, Metrics | EpochsTo | Summary):
            columns = NUMBERS if isinstance(measure, Summary) else METRIC_COLUMNS
            accepted = f"a column of numbers: {', '.join(columns)}"
            yield f"{where}measure.column", measure.column, columns, accepted
            yield f"{where}measure.minus_column", getattr(measure, "minus_column", ""), ["", *columns], accepted
    groups = {group: options for group, options in paper.setup.items() if group != "all"}
    setup = {f"{group}.{name}": settings for group, options in groups.items() for name, settings in options.items()}
    has_own_classes = any(not load_option(*option.split(".", 1)) for option in setup)  # whose keys we do not know
    for option, settings in (setup | {"all": paper.setup.get("all")}).items():
        for key in settings or {}:
            known = {*_setting_keys(), *([key] if has_own_classes and "." in key else [])}
            yield f"{paper.file}: setup.{option}", key, known, "a setting's key, such as task.bits"
    for figure in paper.figures:
        where = f"{paper.file}: figures.{figure.name}."
        yield from ((f"{where}make", command, paper.commands, accepted_commands) for command in figure.make)
        for task, line in product(figure.curves.epochs, figure.curves.lines) if figure.curves else ():
            yield from _option_references(f"{where}curves.lines.runs", {"task": task, **line.runs}, paper)
            yield f"{where}curves.lines.claim", line.claim.replace("{task}", task), ["", *ids], "the id of a claim"


@cache
def _setting_keys() -> frozenset[str]:
    """The dotted keys of all settings in ``conf/``."""
    keys = {*dict(flatten(load_option("train")))}
    for group in (*NAMED_GROUPS, *RECIPE_GROUPS, "probe"):
        prefix = f"model.{group}" if group in RECIPE_GROUPS else group
        files = (CONF / group).glob("*.yaml")
        keys |= {f"{prefix}.{key}" for file in files for key in dict(flatten(load_option(group, file.stem)))}
    return frozenset(keys)


def _option_references(key: str, runs: RunOptions, paper: Paper) -> Iterator[Reference]:
    for option, value in runs.items():
        yield key, option, (*NAMED_GROUPS, *ORDER_KEYS, "min_epochs"), ""
        if option == "min_epochs":
            require_integer(f"{key}.{option}", value, 0)
        else:
            yield f"{key}.{option}", value, *((ORDERS, "") if option in ORDER_KEYS else _accepted_names(option, paper))


def _accepted_names(group: str, paper: Paper) -> tuple[list[str], str]:
    """The names in ``setup``, since only their runs count, else those in ``conf/``; and a text of what is accepted."""
    options, listed = sorted(path.stem for path in (CONF / group).glob("*.yaml")), [*paper.setup.get(group, {})]
    names = listed if listed and group != "probe" else options + listed
    return names, f"{', '.join(names)}, or a name under setup.{group}"


def _read_figure(figure: Mapping[str, Any], path: Path, trust: bool) -> PaperFigure:
    where = f"{path.name}: figures.{figure['name']}"
    if "draw" in figure:
        figure = {**figure, "draw": import_from_file(f"{where}.draw", str(figure["draw"]), path, trust)}
    return _checked(PaperFigure, figure, path.name, f"figures.{figure['name']}")


def _read_claim(entry: Mapping[str, Any], path: Path, trust: bool) -> Claim:
    where = f"{path.name}: claim {entry.get('id', '?')}"
    if isinstance(measure := entry.get("measure"), Mapping):
        key, kind = f"{where}: measure.from", str(measure.get("from"))
        measure_class = MEASURES.get(kind) or import_from_file(key, kind, path, trust, f"{', '.join(MEASURES)}, or ")
        if not (isinstance(measure_class, type) and issubclass(measure_class, Measure)):
            raise bad_value(key, kind, "a subclass of arith_erd.report.measures.Measure")
        options = {key: value for key, value in measure.items() if key != "from"}
        entry = {**entry, "measure": _checked(measure_class, options, where, "measure")}
    claim = _checked(Claim, entry, where)
    if isinstance(claim.measure, EpochsTo) and not claim.measure.planned:
        planned = math.ceil(claim.accepted_range[1]) if math.isfinite(claim.accepted_range[1]) else 1
        return claim.model_copy(update={"measure": claim.measure.model_copy(update={"planned": planned})})
    return claim


def _checked(model: type[Model], options: Mapping[str, Any], where: str, prefix: str = "") -> Model:
    try:
        return model(**options)
    except ValidationError as error:
        fields = {name: field for name, field in model.model_fields.items() if name not in FILLED_IN}
        raise UserError(f"{where}: {explain_validation_error(error, options, fields, prefix)}") from error


def import_from_file(key: str, name: str, claims_file: Path, trust: bool, expected: str = "") -> Any:
    """Import the class or function ``FILE.py:NAME`` from a file in the folder of ``claims_file``.

    Raises:
        UserError: if the name has another form (``expected`` lists further accepted forms), or if the file is not
            trusted or cannot be run.
    """
    file, colon, attribute = name.partition(":")
    path = claims_file.resolve().parent / file
    if not colon or Path(file).name != file or path.suffix != ".py":
        raise bad_value(key, name, f"{expected}FILE.py:NAME, of a Python file beside {claims_file.name}")
    if not (trust or path.parent == PAPER.resolve()):
        raise UserError(f"{key}={name}: {file} is code that would run; --trust allows it")
    try:
        return getattr(_load_module(path), attribute)
    except Exception as error:
        accepted = f"a Python file that can be imported, and has {attribute}"
        raise UserError(f"{key}={name}: {first_line(error)}; expected {accepted}") from error


@contextmanager
def explain_errors_of_user_code(imported: object, where: str) -> Iterator[None]:
    """Turn errors of code from `import_from_file` into a `UserError` that starts with ``where`` and names the line."""
    try:
        with exits_are_errors():
            yield
    except Exception as error:
        file = getattr(imported, "__module__", "")  # the path of the file, or the name of a module of the package
        if not (isinstance(error, UserError) or file.endswith(".py")):
            raise
        place = last_line(error, lambda path: path == file)
        raise UserError(f"{where}: {first_line(error)}" + (f" ({place})" if place else "")) from error


@cache
def _load_module(path: Path) -> ModuleType:
    spec: Any = importlib.util.spec_from_file_location(str(path), path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module  # pydantic looks up annotations there
    with exits_are_errors():
        spec.loader.exec_module(module)
    return module
