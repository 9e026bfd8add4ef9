"""A table of ablations as a figure: epochs to an accuracy without one component, ours beside the paper's."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from .style import BLUE, GREY, INK, PAPER, canvas, diamond, headline, legend_below, tidy

NEVER = 1080  # where a seed that never gets there is drawn


@dataclass(frozen=True)
class Cell:
    """One task without one component: epochs, or an accuracy where the paper ``never`` got there.

    ``ours`` is None if it is not known exactly, ``at_least`` None without seeds; ``seeds`` has ``low`` and ``high``.
    """

    published: float
    never: bool
    at_least: float | None = None
    ours: float | None = None
    interval: tuple[float, float] | None = None
    seeds: pd.DataFrame = field(default_factory=lambda: pd.DataFrame({"low": [], "high": []}))


def draw_ablations(tasks: Mapping[str, Mapping[str, Cell]]) -> Figure:
    figure = canvas(9, 3.6)
    axes = figure.subplots(1, len(tasks), sharey=True)
    for ax, (title, cells) in zip(axes, tasks.items(), strict=True):
        for y, cell in enumerate(cells.values()):
            _row(ax, y, cell)
        seeds = max(len(cell.seeds) for cell in cells.values())
        headline(ax, title, f"up to {seeds} seed{'s' if seeds != 1 else ''}" if seeds else "not run")
        tidy(ax)
        ax.grid(visible=False, axis="y")
        ax.set(xscale="log", xlim=(15, 1900), xlabel="epochs to 95% of the validation sequences")
        ax.xaxis.set_major_locator(FixedLocator([20, 50, 100, 200, 500, 1000]))
        ax.xaxis.set_major_formatter("{x:g}")
        ax.xaxis.set_minor_locator(NullLocator())
        ax.axvline(1000, color=GREY, linewidth=0.6, linestyle=":")
    labels = [*next(iter(tasks.values()))]
    axes[0].set_yticks(range(len(labels)), labels)
    axes[0].invert_yaxis()
    axes[0].tick_params(axis="y", length=0)
    never = "never (accuracy then; ours: the exact ceiling)"
    marks: list[tuple[str, dict[str, Any]]] = [
        ("ours: median and interval", {"color": BLUE, "marker": "o", "markersize": 5.5}),
        ("one seed", {"color": BLUE, "marker": "|", "linestyle": "", "alpha": 0.6, "markersize": 8}),
        (never, {"color": INK, "marker": ">", "linestyle": "", "markersize": 5}),
    ]
    legend_below(figure, PAPER, *(Line2D([], [], label=label, **style) for label, style in marks))
    return figure


def _row(ax: Axes, y: float, cell: Cell) -> None:
    above, below = y - 0.17, y + 0.17
    if cell.never:
        ax.plot([NEVER], [above], marker=">", color=INK, markerfacecolor="white", markersize=5)
        ax.text(1180, above, f"{cell.published:.1%}", va="center", fontsize=8.5, color=INK)
        if cell.at_least is not None:
            ax.plot([NEVER], [below], marker=">", color=BLUE, markersize=5)
            ax.text(1180, below, f"{cell.at_least:.1%}", va="center", fontsize=8.5, color=BLUE)
        return
    diamond(ax, cell.published, above, INK)
    there = cell.seeds["low"] == cell.seeds["high"]
    reached, never = cell.seeds.loc[there, "low"], cell.seeds.loc[~there, "low"]
    ax.plot(reached, [below] * len(reached), "|", color=BLUE, markersize=8, alpha=0.5)
    ax.plot(never, [below] * len(never), ">", color=BLUE, markersize=4.5, alpha=0.7)
    if cell.interval is not None:
        low, high = cell.interval
        ax.plot([low, min(high, NEVER)], [below, below], color=BLUE, linewidth=1.8, solid_capstyle="butt")
    if cell.ours is not None:
        ax.plot([cell.ours], [below], "o", color=BLUE, markersize=5.5)
