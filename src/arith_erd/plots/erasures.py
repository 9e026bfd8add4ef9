"""Sequence accuracy after erasing concepts (paper, appendix D): for the probe and for the report."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .style import BLUE, GREEN, GREY, INK, ORANGE, grid, headline, legend_below, set_title, tidy

DRAWN_NUMBERS = (
    *("seed", "iterations", "seq_acc_after", "seq_acc_after_unseen"),
    *("control_rank_mean", "control_rank_min", "control_variance_mean", "control_variance_min"),
)
DRAWN: Mapping[str, type] = dict.fromkeys(("site", "concept", "method"), str) | dict.fromkeys(DRAWN_NUMBERS, float)
CONTROLS = (  # columns, place below the line of an erasure, colour, label
    ("control_rank", -0.3, GREY, "random directions, same rank (bar above)"),
    ("control_variance", 0.19, ORANGE, "random directions, same variance (first bar below)"),
    ("control_signs", 0.37, GREEN, "same erasure of a random concept, signs flipped (second bar below)"),
)


def draw_erasures(rows: pd.DataFrame, task: str, published: bool, whose: str = "") -> Figure:
    """Draw accuracy after each erasure, one panel per site: all pairs, unseen pairs and the random controls.

    Rows of older versions lack the control with flipped signs. ``published``: whether the paper's number applies.
    """
    sites = list(rows["site"].unique())
    across = min(len(sites), 4)
    width = max(9.2, 1.8 + 2.4 * across)
    height = 1.2 + (0.5 + 0.24 * len(_lines(rows))) * -(-len(sites) // across)
    figure, axes = grid(width, height, len(sites), across)
    for i, (ax, site) in enumerate(zip(axes, sites, strict=True)):
        at_site = rows[rows["site"] == site]
        _draw(ax, at_site)
        ax.tick_params(axis="y", labelleft=i % across == 0)
        if published and site == "dec.3" and ("value", "inlp") in (lines := _lines(at_site)):
            label = "published: 0.13%"
            ax.plot(0.0013, lines.index(("value", "inlp")), "x", color="black", markeredgewidth=1.6, label=label)
        headline(ax, site)
    legend_below(figure, columns=2)
    over = ", mean and range" * (rows["seed"].nunique() > 1)
    text = f"sequence accuracy after erasing a concept{whose}{over}; bars: controls, worst to mean"
    set_title(figure, task, text, rows)
    return figure


def _lines(rows: pd.DataFrame) -> list[tuple[str, str | None]]:
    """The lines of a panel from the top: each concept as a heading, then one line for each of its methods."""
    lines: list[tuple[str, str | None]] = []
    for concept, group in rows.groupby("concept", sort=False):
        lines += [(str(concept), None), *((str(concept), str(method)) for method in group["method"].unique())]
    return lines


def _draw(ax: Axes, rows: pd.DataFrame) -> None:
    """Draw a dot and a ring for each erasure, whiskers over its seeds, a bar from worst to mean for each control."""
    lines = _lines(rows)
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
