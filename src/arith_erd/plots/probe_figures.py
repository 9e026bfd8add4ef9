"""Two figures that both probes and the report draw: correlations of distances, and accuracy after erasures.

They are figure 4 (section 4.5) and appendix D of the paper.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from .style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    LIGHT,
    ORANGE,
    band,
    grid,
    headline,
    legend_below,
    seeds_text,
    set_title,
    subplots,
    tidy,
    write_in_cell,
)

CELL_COLOURS = {"enc": "Blues", "dec": "Greens"}
COMPARED: Sequence[tuple[str, str]] = [("in", "token"), ("in", "value"), ("out", "token"), ("out", "value")]
CORRELATIONS_DRAWN: Mapping[str, type] = {
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

DRAWN_NUMBERS = (
    *("seed", "iterations", "seq_acc_after", "seq_acc_after_unseen"),
    *("control_rank_mean", "control_rank_min", "control_variance_mean", "control_variance_min"),
)
ERASURES_DRAWN: Mapping[str, type] = dict.fromkeys(("site", "concept", "method"), str) | dict.fromkeys(
    DRAWN_NUMBERS, float
)
CONTROLS = (  # columns, place below the line of an erasure, colour, label
    ("control_rank", -0.3, GREY, "random directions, same rank (bar above)"),
    ("control_variance", 0.19, ORANGE, "random directions, same variance (first bar below)"),
    ("control_signs", 0.37, GREEN, "same erasure of a random concept, signs flipped (second bar below)"),
)


def draw_correlations(tasks: Mapping[str, pd.DataFrame], besides: Mapping[str, pd.DataFrame] | None = None) -> Figure:
    """Draw the table of correlations and the curves over the decoder's layers, one row of panels per task.

    ``tasks`` has the rows of one correlation method by title, ``besides`` those of the authors' weights (crosses).
    """
    lines = [len(_sites(rows)) for rows in tasks.values()]
    height = sum(max(1.6 + 0.24 * number, 3.2) for number in lines)
    ratios = {"width_ratios": (4, 5), "height_ratios": lines}
    figure, grid = subplots(9.6, height, len(tasks), 2, squeeze=False, **ratios)
    for (table, curves), (title, rows) in zip(grid, tasks.items(), strict=True):
        _correlation_table(table, rows)
        headline(table, title, seeds_text(rows), pad=30)
        _layer_curves(curves, rows, besides.get(title) if besides else None)
    crosses = Line2D([], [], color=GREY, marker="x", linestyle=":", linewidth=1, label="the authors' weights")
    legend_below(figure, *([crosses] if besides else []), columns=2)
    return figure


def _sites(rows: pd.DataFrame) -> list[tuple[str, int]]:
    sites = set(zip(rows["stack"], rows["layer"].astype(int), strict=True))
    trained = [site for site in sites if not site[0].startswith(UNTRAINED)]
    return sorted(trained, key=lambda site: (ORDER.get(site[0], 4), site))


def _correlation_table(ax: Axes, rows: pd.DataFrame) -> None:
    means = rows.groupby(["stack", "layer", "level", "space"])["correlation"].mean().to_dict()
    lines = _sites(rows)
    image = np.ones((len(lines), len(COMPARED), 4))  # RGBA
    for i, (stack, layer) in enumerate(lines):
        for j, column in enumerate(COMPARED):
            mean = means.get((stack, layer, *column))
            if mean is None:
                continue
            of_site = stack in CELL_COLOURS
            plain = to_rgba("#ffe680") if stack in ("input", "output") else to_rgba(LIGHT, 0.35)
            image[i, j] = colormaps[CELL_COLOURS[stack]](0.85 * mean) if of_site else plain
            write_in_cell(ax, i, j, f"{mean:.2f}" if np.isfinite(mean) else "-", of_site and mean > 0.7, 8.5)
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


def _layer_curves(ax: Axes, rows: pd.DataFrame, besides: pd.DataFrame | None = None) -> None:
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
    ax.set(xlabel="decoder layer", ylabel="correlation with\nembedding distances", xticks=layers)
    if layers:
        ax.set(xlim=(layers[0] - 0.25, layers[-1] + 0.25), ylim=(min(0.0, shown["correlation"].min() - 0.02), 1.03))


def _of(rows: pd.DataFrame, stack: str, space: str) -> pd.DataFrame:
    """A table (layers, seeds) of correlations with distances at the output."""
    chosen = (rows["stack"] == stack) & (rows["level"] == "out") & (rows["space"] == space)
    return rows[chosen].pivot_table("correlation", "layer", "seed", dropna=False)


def draw_erasures(rows: pd.DataFrame, task: str, published: bool, whose: str = "") -> Figure:
    """Draw accuracy after each erasure, one panel per site: all pairs, unseen pairs and the random controls.

    Rows of older versions lack the control with flipped signs. ``published``: whether the paper's number applies.
    """
    sites = list(rows["site"].unique())
    across = min(len(sites), 4)
    width = max(9.2, 1.8 + 2.4 * across)
    height = 1.2 + (0.5 + 0.24 * len(_erasure_lines(rows))) * -(-len(sites) // across)
    figure, axes = grid(width, height, len(sites), across)
    for i, (ax, site) in enumerate(zip(axes, sites, strict=True)):
        at_site = rows[rows["site"] == site]
        _erasures(ax, at_site)
        ax.tick_params(axis="y", labelleft=i % across == 0)
        if published and site == "dec.3" and ("value", "inlp") in (lines := _erasure_lines(at_site)):
            label = "published: 0.13%"
            ax.plot(0.0013, lines.index(("value", "inlp")), "x", color="black", markeredgewidth=1.6, label=label)
        headline(ax, site)
    legend_below(figure, columns=2)
    over = ", mean and range" * (rows["seed"].nunique() > 1)
    text = f"sequence accuracy after erasing a concept{whose}{over}; bars: controls, worst to mean"
    set_title(figure, task, text, rows)
    return figure


def _erasure_lines(rows: pd.DataFrame) -> list[tuple[str, str | None]]:
    """The lines of a panel from the top: each concept as a heading (None), then a line for each of its methods."""
    lines: list[tuple[str, str | None]] = []
    for concept, group in rows.groupby("concept", sort=False):
        lines += [(str(concept), None), *((str(concept), str(method)) for method in group["method"].unique())]
    return lines


def _erasures(ax: Axes, rows: pd.DataFrame) -> None:
    """Draw a dot and a ring for each erasure, whiskers over its seeds, a bar from worst to mean for each control."""
    lines = _erasure_lines(rows)
    at = np.array([i for i, (_, method) in enumerate(lines) if method])
    groups = rows.groupby(["concept", "method"], sort=False)
    mean, low, high = groups.mean(numeric_only=True), groups.min(numeric_only=True), groups.max(numeric_only=True)
    ax.hlines(at, 0, 1, color=GREY, alpha=0.25, linewidth=0.6)
    if "seq_acc_before" in rows:
        ax.axvline(rows["seq_acc_before"].mean(), color=INK, linestyle=":", linewidth=1.2, label="before erasure")
    for control, offset, colour, label in CONTROLS:
        if f"{control}_mean" in mean:
            worst, middle = low[f"{control}_min"], mean[f"{control}_mean"]
            ax.barh(at + offset, middle - worst, left=worst, height=0.16, color=colour, alpha=0.35, linewidth=0)
            ax.plot(middle, at + offset, "|", color=colour, markersize=5, markeredgewidth=2, label=label)
    for column, face, size, label in (
        ("seq_acc_after_unseen", "white", 8.0, "fitted on half of the pairs, measured on the others"),
        ("seq_acc_after", BLUE, 4.5, "fitted and measured on all pairs"),
    ):
        if rows["seed"].nunique() > 1:
            ax.hlines(at, low[column], high[column], color=BLUE, linewidth=1.2)
        ax.plot(mean[column], at, "o", color=BLUE, markerfacecolor=face, markersize=size, label=label)
    ax.set_yticks(range(len(lines)), [method or concept for concept, method in lines], fontsize=8.5)
    for tick, (_, method) in zip(ax.get_yticklabels(), lines, strict=True):
        tick.set_fontweight("normal" if method else "bold")
    ax.set(xlim=(-0.03, 1.03), ylim=(len(lines) - 0.4, -0.6))
    tidy(ax, "x")
    ax.grid(visible=False, axis="y")
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
