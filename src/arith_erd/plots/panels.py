"""The pictures of most probes: heat maps, lines, bars or dots, in a panel for each value of a column."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from . import style

LINE_STYLES, MARKERS = ("-", "--", "-.", ":"), "osv^Dx"
LINE_COLORS = (style.BLUE, style.ORANGE, style.GREEN)
LOG_TICKS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


@dataclass(frozen=True)
class Picture(ABC):
    """Panels of one measure of a probe's rows: the column ``value`` at each ``x``, for each ``line`` and ``panel``.

    Without a ``panel`` there is a single one. A probe shows the same columns on the terminal, and plots ``value`` by
    ``line`` and ``panel`` over training epochs.
    """

    value: str
    x: str
    line: str
    panel: str = ""
    _: KW_ONLY
    title: str = ""
    ylabel: str = ""
    xlabel: str = ""
    percent: bool = False
    """Whether values are shares, from 0 to 1."""
    number_format: str = ""
    """The format in which numbers are written into the figure, and in the table."""
    panels_per_row: str = ""
    """A column; a row has as many panels as the column has values. Without a column, a row has at most three."""
    size: tuple[float, float] = (4.2, 3.2)
    """Size in inches of a panel without its cells."""
    cell: tuple[float, float] = (0, 0)
    """Inches that each value of x adds to a panel's width, and each line to its height."""
    min_width: float = 0
    statistic: str = "mean"
    """The statistic over seeds that is drawn: mean or median."""

    def draw(self, rows: pd.DataFrame) -> Figure:
        """The figure, without a title. Rows of a task have no seed, and count as one seed's."""
        rows = rows if "seed" in rows else rows.assign(seed=0)
        if rows.empty:
            figure, ax = style.subplots(5.2, 1.6)
            ax.set_axis_off()
            ax.text(0.5, 0.5, "no row has a number to draw", ha="center", va="center")
            return figure
        panels, names = split_rows(rows, self.panel), list(split_rows(rows, self.line))
        columns = rows[self.panels_per_row].nunique() if self.panels_per_row else min(len(panels), 3)
        counts = [(len(split_rows(part, self.x)), len(split_rows(part, self.line))) for part in panels.values()]
        sizes = [(self.size[0] + self.cell[0] * x, self.size[1] + self.cell[1] * lines) for x, lines in counts]
        widths = [max(self.min_width, *(width for width, _ in sizes[i::columns])) for i in range(columns)]
        heights = [max(height for _, height in sizes[i : i + columns]) for i in range(0, len(sizes), columns)]
        ratios: dict[str, Any] = {"width_ratios": widths, "height_ratios": heights}
        size = max(0.8 + 0.06 * max(map(len, names), default=0) + sum(widths), 5.2), 0.9 + sum(heights)
        figure, axes = style.subplots(*size, len(heights), columns, squeeze=False, **ratios)
        names_here: list[str] = []
        for i, (ax, (name, part)) in enumerate(zip(axes.flat, panels.items(), strict=False)):
            self.draw_panel(ax, part, names)
            style.set_panel_title(ax, name)
            names_left, names_here = names_here, [label.get_text() for label in ax.get_yticklabels()]
            if i % columns and any(names_here) and names_here == names_left:
                ax.tick_params(labelleft=False)
            ax.set_xlabel(self.xlabel or ax.get_xlabel() if i + columns >= len(panels) else "")
            ax.set_ylabel(self.ylabel or ax.get_ylabel() if i % columns == 0 else "")
        for ax in axes.flat[len(panels) :]:
            ax.set_visible(False)
        legend = style.legend_below(figure)
        figure.set_figheight(size[1] + 0.2 * legend)
        return figure

    def pivot(self, rows: pd.DataFrame, *keys: str) -> pd.DataFrame:
        """Means (keys, x), in the order of the rows or of the categories."""
        places = rows[self.x].sort_values() if rows[self.x].dtype == "category" else rows[self.x]
        means = rows.groupby([*keys, self.x], sort=False, observed=True)[self.value].mean().unstack(self.x, sort=False)
        return means.reindex(columns=list(places.unique()))

    @abstractmethod
    def draw_panel(self, ax: Axes, rows: pd.DataFrame, names: Sequence[str] = ()) -> None:
        """Draw one panel; ``names`` are the lines of all panels, by default of this one."""


def split_rows(rows: pd.DataFrame, column: str) -> dict[str, pd.DataFrame]:
    """The rows of each value of a column, in their order. Keys are ``dec.3``, or ``bit 4`` if values are numbers."""
    if not column:
        return {"": rows}
    groups = rows.groupby(column, sort=False, observed=True)
    return {str(value) if isinstance(value, str) else f"{column} {value}": part for value, part in groups}


@dataclass(frozen=True)
class HeatMaps(Picture):
    """A cell for each mean: white at the first value of ``color_range``, darkest at the second."""

    number_format: str = ".2f"
    size: tuple[float, float] = (0, 0.6)
    cell: tuple[float, float] = (0.45, 0.3)
    min_width: float = 2.3
    color_range: tuple[float, float] = (0, 1)
    cmap: str = "Blues"
    font_size: float = 8

    def draw_panel(self, ax: Axes, rows: pd.DataFrame, names: Sequence[str] = ()) -> None:
        table = self.pivot(rows, self.line)
        texts = table.map(f"{{:{self.number_format}}}".format) if self.number_format else None
        style.heat_map(ax, table, Normalize(*self.color_range), self.cmap, texts, 7)
        longest = max(len(line) for name in table for line in str(name).split("\n"))
        crowded = longest * self.font_size > 90 * self.cell[0]
        ax.tick_params(labelsize=self.font_size, pad=1)
        ax.tick_params(axis="x", rotation=90 if crowded else 0)


@dataclass(frozen=True)
class Lines(Picture):
    """The mean or median over seeds, and their range as a band."""

    reference_lines: Mapping[str, str] = field(default_factory=dict)
    """Reference line -> the line whose colour it takes; an empty name means ink."""

    def draw_panel(self, ax: Axes, rows: pd.DataFrame, names: Sequence[str] = ()) -> None:
        markers = "" if rows[self.x].nunique() > 20 else MARKERS
        styles = self.line_styles(names or list(split_rows(rows, self.line)), markers)
        for name, part in split_rows(rows, self.line).items():
            by_seed = part.pivot_table(self.value, self.x, "seed", dropna=False)
            style.draw_band(ax, by_seed, self.statistic, label=name, **styles[name])
        style.format_axes(ax, "y" if self.percent else "")
        ax.set(xlabel=self.x.replace("_", " "), ylabel=self.value.replace("_", " "))
        if self.percent:
            ax.set_ylim(-0.03, 1.03)
        _scale_x_axis(ax, np.unique(rows[self.x]))

    def line_styles(self, names: Sequence[str], markers: str) -> dict[str, dict[str, Any]]:
        """Dashes and markers in turn; colours from light to dark if there are more than three."""
        main_lines = [name for name in names if name not in self.reference_lines]
        shades = colormaps["viridis_r"](np.linspace(0.15, 0.95, len(main_lines)))
        colors = LINE_COLORS if len(main_lines) <= len(LINE_COLORS) else shades
        styles: dict[str, dict[str, Any]] = {}
        for i, name in enumerate(main_lines):
            styles[name] = {"color": colors[i], "linestyle": LINE_STYLES[i % 4], "linewidth": 1.6}
            styles[name] |= {"marker": markers[i % 6 : i % 6 + 1], "markersize": 4}
        for i, (name, of) in enumerate(self.reference_lines.items()):
            color = styles[of]["color"] if of in styles else style.INK
            styles[name] = {"color": color, "linestyle": (":", "-.", "--")[i % 3], "linewidth": 1}
        return styles


def _scale_x_axis(ax: Axes, places: Any) -> None:
    """If all places are whole numbers, put the ticks at whole numbers.

    If places thin out to the right, as powers of two or epochs kept by ``log`` do, use a logarithmic axis.
    """
    gaps, whole = np.diff(places[places > 0]), bool((places % 1 == 0).all())
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=whole))
    if whole and len(gaps) and gaps.max() > 3 * gaps.min():
        ax.set_xscale("symlog", linthresh=1)
        ax.set_xlim(places.min() - 0.1, 1.1 * places.max())
        ax.set_xticks([tick for tick in LOG_TICKS if places.min() <= tick <= places.max()], minor=False)
        ax.xaxis.set_major_formatter("{x:g}")
        ax.set_xticks([], minor=True)


@dataclass(frozen=True)
class Bars(Picture):
    """Bars of means over seeds, with a dash for each seed; ``line`` names the bars that stand side by side."""

    size: tuple[float, float] = (0.8, 3)
    cell: tuple[float, float] = (0.45, 0)

    def draw_panel(self, ax: Axes, rows: pd.DataFrame, names: Sequence[str] = ()) -> None:
        places, names = rows[self.x].unique(), names or list(split_rows(rows, self.line))
        for name, part in split_rows(rows, self.line).items():
            by_seed = part.pivot_table(self.value, self.x, "seed").reindex(places)
            i, width = names.index(name), 0.8 / len(names)
            at = np.arange(len(places)) + width * (i + 0.5) - 0.4
            color = (*LINE_COLORS, style.LIGHT)[i % 4]
            bars = ax.bar(at, by_seed.agg(self.statistic, axis=1), width, color=color, alpha=0.85, label=name)
            if by_seed.shape[1] > 1:
                ax.plot(at, by_seed, "_", color=style.INK, markersize=5)
            if self.number_format:
                ax.bar_label(bars, fmt=f"{{:{self.number_format}}}", fontsize=8)
        style.format_axes(ax, "y" if self.percent else "")
        ax.grid(visible=False, axis="x")
        ax.set_ylim(0, max(ax.get_ylim()[1], 0.01))
        ax.set_xticks(range(len(places)), [str(place).replace("_", " ") for place in places])
        ax.set(xlabel=self.x.replace("_", " "), ylabel=self.value.replace("_", " "))


@dataclass(frozen=True)
class Dots(Picture):
    """For each ``line`` the mean of every column in ``marks`` and its range over seeds. Values are shares, from 0 to 1.

    ``bars`` maps two columns (from, to) to (colour, label); the bar connects the means of the two.
    """

    size: tuple[float, float] = (3.6, 0.9)
    cell: tuple[float, float] = (0, 0.3)
    marks: Mapping[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    """Column -> label and look."""
    bars: Mapping[tuple[str, str], tuple[str, str]] = field(default_factory=dict)

    def draw_panel(self, ax: Axes, rows: pd.DataFrame, names: Sequence[str] = ()) -> None:
        groups = rows.groupby(self.line, sort=False, observed=True)
        mean, low, high = groups.mean(numeric_only=True), groups.min(numeric_only=True), groups.max(numeric_only=True)
        at = np.arange(len(mean))
        for i, ((start, end), (color, label)) in enumerate(self.bars.items()):
            if {start, end} <= {*mean}:
                place = at + 0.22 * (i - (len(self.bars) - 1) / 2)
                ax.barh(place, mean[end] - mean[start], 0.18, mean[start], color=color, alpha=0.45, label=label)
                ax.plot(mean[end], place, "|", color=color, markersize=5, markeredgewidth=2)
        for column, (label, look) in self.marks.items():
            if column in mean and mean[column].notna().any():
                if rows["seed"].nunique() > 1:
                    ax.hlines(at, low[column], high[column], color=look["color"], linewidth=1)
                ax.plot(mean[column], at, linestyle="", label=label, **look)
        ax.set_yticks(at, list(mean.index), fontsize=8.5)
        style.format_axes(ax, "x")
        ax.set(xlim=(-0.03, 1.03), ylim=(len(mean) - 0.5, -0.5), xlabel=self.value.replace("_", " "))
        ax.grid(visible=False, axis="y")


RECOVERY_MAPS = HeatMaps(
    *("recovered", "position", "site", "stack"),
    title="share of the metric that one position recovers",
    number_format="z.2f",
    color_range=(-0.5, 0.5),  # a patch can also move the metric the wrong way
    cmap="RdBu",
    cell=(0.45, 0.33),
    panels_per_row="stack",
)
"""What activation patching recovers at each position of each site: of `arith_erd.patch` and ``probe=patching``."""


@style.own_style()
def draw_patching(rows: pd.DataFrame) -> Figure:
    """Draw ``recovered`` by ``site`` and ``position``, with a panel for each group of sites with the same positions."""
    positions = rows.groupby("site", sort=False)["position"].transform(lambda names: ", ".join(map(str, names)))
    titles = {names: f"{names.split(', ')[0]} .. {names.split(', ')[-1]}" for names in positions.unique()}
    figure = RECOVERY_MAPS.draw(rows.assign(stack=positions.map(titles)))
    figure.suptitle(RECOVERY_MAPS.title)
    return figure
