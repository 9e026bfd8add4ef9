"""Correlations of distances (paper, section 4.5 and figure 4): for the probe and for the report."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from .style import BLUE, GREY, INK, LIGHT, ORANGE, band, headline, legend_below, seeds_text, subplots, tidy
from .style import write_in_cell as write

CELL_COLOURS = {"enc": "Blues", "dec": "Greens"}
COMPARED: Sequence[tuple[str, str]] = [("in", "token"), ("in", "value"), ("out", "token"), ("out", "value")]
DRAWN: Mapping[str, type] = {
    **dict.fromkeys(("stack", "level", "space", "method"), str),
    **dict.fromkeys(("seed", "layer", "correlation"), float),
}
ORDER = {"input": 0, "enc": 1, "dec": 2, "output": 3}
UNTRAINED = "untrained "
CURVES: Sequence[tuple[str, str, dict[str, str]]] = (
    ("token", BLUE, {"marker": "o", "linestyle": "-"}),
    ("value", ORANGE, {"marker": "s", "linestyle": "--"}),
)
SCALED: Mapping[str, str] = {"scaled bits": "bits scaled by 2ⁱ", "scaled digits": "digits scaled by their place"}


def draw_correlations(tasks: Mapping[str, pd.DataFrame], besides: Mapping[str, pd.DataFrame] | None = None) -> Figure:
    """Draw the table of correlations and the curves over the decoder's layers, one row of panels per task.

    Rows of one correlation method by title; ``besides`` holds those of the authors' weights, drawn as thin crosses.
    """
    lines = [len(_lines(rows)) for rows in tasks.values()]
    height, ratios = (
        sum(max(1.6 + 0.24 * number, 3.2) for number in lines),
        {"width_ratios": (4, 5), "height_ratios": lines},
    )
    figure, grid = subplots(9.6, height, len(tasks), 2, squeeze=False, **ratios)
    for (table, curves), (title, rows) in zip(grid, tasks.items(), strict=True):
        _table(table, rows)
        headline(table, title, seeds_text(rows), pad=30)
        _curves(curves, rows, besides.get(title) if besides else None)
    crosses = Line2D([], [], color=GREY, marker="x", linestyle=":", linewidth=1, label="the authors' weights")
    legend_below(figure, *([crosses] if besides else []), columns=2)
    return figure


def _lines(rows: pd.DataFrame) -> list[tuple[str, int]]:
    sites = set(zip(rows["stack"], rows["layer"].astype(int), strict=True))
    trained = [site for site in sites if not site[0].startswith(UNTRAINED)]
    return sorted(trained, key=lambda site: (ORDER.get(site[0], 4), site))


def _table(ax: Axes, rows: pd.DataFrame) -> None:
    means = rows.groupby(["stack", "layer", "level", "space"])["correlation"].mean().to_dict()
    lines = _lines(rows)
    image = np.ones((len(lines), len(COMPARED), 4))  # RGBA
    for i, (stack, layer) in enumerate(lines):
        for j, column in enumerate(COMPARED):
            mean = means.get((stack, layer, *column))
            if mean is None:
                continue
            of_site = stack in CELL_COLOURS
            plain = to_rgba("#ffe680") if stack in ("input", "output") else to_rgba(LIGHT, 0.35)
            image[i, j] = colormaps[CELL_COLOURS[stack]](0.85 * mean) if of_site else plain
            write(ax, i, j, f"{mean:.2f}" if np.isfinite(mean) else "-", of_site and mean > 0.7, 8.5)
    ax.imshow(image, aspect="auto")
    names = {"in": "input", "out": "output"}
    ax.set_xticks(range(len(COMPARED)), [f"{names[level]}\n{space}" for level, space in COMPARED])
    sites = [f"{s} {n}" if n else f"{s} token" if s in ORDER else s for s, n in lines]
    ax.set_yticks(range(len(lines)), sites)
    ax.xaxis.tick_top()
    ax.tick_params(length=0, labelsize=8.5)
    ax.spines[:].set_visible(False)
    ax.set_xticks(np.arange(0.5, len(COMPARED) - 1), minor=True)
    ax.set_yticks(np.arange(0.5, len(lines) - 1), minor=True)
    ax.grid(which="minor", color="white", linewidth=1.5)
    ax.tick_params(which="minor", length=0)


def _curves(ax: Axes, rows: pd.DataFrame, besides: pd.DataFrame | None = None) -> None:
    for space, colour, style in CURVES:
        band(
            ax, _of(rows, "dec", space), "mean", label=f"output {space} distances", color=colour, linewidth=1.8, **style
        )
        untrained = _of(rows, f"{UNTRAINED}dec", space).mean(axis=1)
        if len(untrained):
            label = f"untrained network, {space}"
            ax.plot(untrained.index, untrained, linestyle=(0, (1, 1.5)), color=colour, linewidth=1.2, label=label)
        if besides is not None and len(besides):
            other = _of(besides, "dec", space).mean(axis=1)
            ax.plot(other.index, other, "x:", color=colour, linewidth=1, markersize=5)
    for stack, what in SCALED.items():
        scaled = _of(rows, stack, "value").mean(axis=1)
        if len(scaled):
            label = f"operand {what}, value"
            ax.axhline(float(scaled.iloc[0]), color=INK, linewidth=0.9, linestyle="-.", label=label)
    tidy(ax)
    shown = rows[(rows["stack"] == "dec") & (rows["level"] == "out")]
    layers = sorted(shown["layer"].unique())
    ax.set(xlabel="decoder layer", ylabel="correlation with embedding distances", xticks=layers)
    if layers:
        ax.set(xlim=(layers[0] - 0.25, layers[-1] + 0.25), ylim=(min(0.0, shown["correlation"].min() - 0.02), 1.03))


def _of(rows: pd.DataFrame, stack: str, space: str) -> pd.DataFrame:
    """Correlations with distances at the output: a table (layers, seeds)."""
    chosen = (rows["stack"] == stack) & (rows["level"] == "out") & (rows["space"] == space)
    return rows[chosen].pivot_table("correlation", "layer", "seed", dropna=False)
