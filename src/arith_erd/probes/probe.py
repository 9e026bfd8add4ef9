"""The interface of a probe: rows of measurements, their table and their figure."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from inspect import signature
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeAlias, TypeVar, dataclass_transform

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from pydantic import ConfigDict, Field, ValidationError, validate_call

from ..bundled import load_option
from ..checks import explain_validation_error
from ..config.job import PROBE_NEEDS
from ..errors import UserError, bad_value
from ..interp.sites import expand_sites, layers, require_sites
from ..plots.curves import EpochCurves
from ..plots.panels import HeatMaps, Lines, Picture
from ..plots.style import set_figure_title
from ..plots.tables import NUMBER, column_kinds, split_columns, summary_table
from ..tasks import Task

if TYPE_CHECKING:
    from ..interp.hooked import Hooked  # loads torch, which a probe of a task does not need
else:
    Hooked = Any

IN_FILE: Any = object()
"""The default of an option: its value in the probe's file in ``conf/probe/``, which is named after the module."""
Natural = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
Option = TypeVar("Option")
OneOrMore: TypeAlias = Option | Annotated[Sequence[Option], Field(min_length=1)]


@dataclass_transform(eq_default=False)
class Probe(ABC):
    """Base class: measures a task or trained networks, and describes the result.

    >>> from arith_erd.probes.dataset import Dataset
    >>> from arith_erd.splits import ValueSplit
    >>> from arith_erd.tasks import Add
    >>> rows = pd.DataFrame(Dataset(Add(bits=3), ValueSplit()).rows())
    >>> rows[(rows["a"] == 3) & (rows["b"] == 5)]
        a  b  answer   prompt completion      subset
    29  3  5       8  110+101       0001  validation

    Every probe is a dataclass. Its first fields are the arguments that its YAML file lists under ``needs``: any of
    ``task``, ``split`` and ``models`` (trained networks). Then come the options, with the file's values as defaults
    (`IN_FILE`). Annotations say which values an option takes; other values raise a `UserError` that names
    ``probe.OPTION``. A probe knows no logger and no path.
    """

    task: Task
    columns: Sequence[str] = ()
    """Keys of `rows`, in order, for a probe that may give no rows."""
    picture: Picture | None = None
    """How the figure, the terminal and curves over epochs show the rows. Without it, a probe draws its own `figure`."""
    units: ClassVar[Mapping[str, str]] = {}
    """Units of measures, such as ``accuracy``; a column of floats without a unit holds plain numbers."""
    across: ClassVar[tuple[str, ...]] = ()
    """Columns of `rows` whose values become columns of the table."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        for option in [name for name, value in vars(cls).items() if value is IN_FILE]:
            value = load_option("probe", cls.__module__.rpartition(".")[2])[option]
            setattr(cls, option, tuple(value) if isinstance(value, list) else value)
        make = dataclass(cls, eq=False, repr=False).__init__
        config = ConfigDict(arbitrary_types_allowed=True, strict=True, defer_build=True)
        make_validated = validate_call(config=config)(make)  # resolves annotations at its first call

        @wraps(make)
        def construct(*arguments: Any, **options: Any) -> None:
            try:
                make_validated(*arguments, **options)
            except ValidationError as error:
                names = [name for name in signature(make).parameters if name not in ("self", *PROBE_NEEDS)]
                raise explain_validation_error(error, options, {name: Field() for name in names}, "probe") from None

        cls.__init__ = construct  # type: ignore[method-assign]

    @abstractmethod
    def rows(self) -> Iterator[dict[str, Any]]:
        """Measurements, one plain dictionary each, all with the same keys."""

    def shown(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The rows that ``picture`` draws, with columns for its labels."""
        return rows

    def figure(self, rows: pd.DataFrame) -> Figure:
        """Draw the rows with ``picture``, and add a title."""
        require_figure(self)
        assert self.picture is not None
        figure = self.picture.draw(self.shown(rows))
        set_figure_title(figure, self.task.name, self.picture.title, rows)
        return figure

    def epoch_curves(self, rows: pd.DataFrame) -> EpochCurves:
        """One epoch's points of the curves that ``epoch=all`` draws.

        By default they show the measure of ``picture``, with its lines and panels. Without a picture they show the
        first measure, with a line for each value of the first column that distinguishes rows.
        """
        if self.picture is not None:
            value, panel, rows = self.picture.value, self.picture.panel, self.shown(rows)
            lines = [self.picture.line or self.picture.x]
        else:
            keys, measures = split_columns(column_kinds(rows, self.units))
            value, panel = measures[0], ""
            lines = [key for key in keys if rows[key].nunique() > 1][:1]
        return EpochCurves.from_rows(rows, value, lines, panel, unit=self.units.get(value, NUMBER))

    def files(self) -> Mapping[str, str | bytes]:
        """Additional files to write beside the rows, name -> content."""
        return {}

    def summary(self) -> list[str]:
        """The result in a few sentences, printed above the table."""
        return []

    def notes(self) -> list[str]:
        """Sentences on the limits of the rows, printed below the table."""
        return []

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The table on the terminal: the means in ``picture``, or each measure's mean over seeds with 95% interval."""
        if isinstance(self.picture, HeatMaps | Lines):
            keys = filter(None, (self.picture.panel, self.picture.line))
            return format_cells(self.picture.pivot(self.shown(rows), *keys), self.picture.number_format or ".2f")
        return summary_table(rows, column_kinds(rows, self.units), self.across)


class NetworkProbe(Probe):
    """A probe of networks of one task, measured one after another."""

    models: Sequence[Hooked]

    @cached_property
    def task(self) -> Task:  # type: ignore[override]
        return self.models[0].task

    @abstractmethod
    def measure(self, model: Hooked) -> Iterator[dict[str, Any]]:
        """The rows of one network, without its seed."""

    def rows(self) -> Iterator[dict[str, Any]]:
        for model in self.models:
            yield from ({"seed": model.seed} | row for row in self.measure(model))


def require_figure(probe: Probe) -> None:
    if probe.picture is None and type(probe).figure is Probe.figure:
        raise UserError(f"{type(probe).__name__}: expected a picture, or a method figure that draws its rows")


def as_list(chosen: Any) -> list[Any]:
    """One value or several, as a list without repetition."""
    return [chosen] if isinstance(chosen, str | int) else list(dict.fromkeys(chosen))


def select_sites(models: Sequence[Hooked], site: str | Sequence[str] | None) -> list[str]:
    """The sites that ``probe.site`` selects, as in `expand_sites`; None selects the decoder's middle layer."""
    known = models[0].sites
    if site is None:
        decoder = layers(known, "dec")
        if not decoder:
            raise bad_value("probe.site", "null", f"all, or some of {', '.join(known)}, since there is no layer dec.1")
        sites = [decoder[(len(decoder) - 1) // 2]]
    else:
        sites = expand_sites(known, site, "probe.site")
    for model in models:
        require_sites(model.sites, sites, "probe.site")
    return sites


def format_cells(table: pd.DataFrame, number_format: str = ".2f") -> pd.DataFrame:
    """Format the numbers of a table, with NaN as empty text, and turn its index into columns."""
    return table.map(lambda x: "" if np.isnan(x) else f"{x:{number_format}}").reset_index()


def weighted_means(rows: pd.DataFrame, by: list[str], measures: list[str]) -> pd.DataFrame:
    """Means of the known values, weighted by the column ``n``, for each combination of the columns ``by``."""
    keys = [rows[key] for key in by]
    sums = rows[measures].mul(rows["n"], axis=0).groupby(keys, sort=False).sum(min_count=1)
    return sums / rows[measures].notna().mul(rows["n"], axis=0).groupby(keys, sort=False).sum()
