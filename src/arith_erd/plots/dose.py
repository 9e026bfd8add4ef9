"""The figures of ``probe=dose`` and ``probe=transfer``: the answer after moves of the value."""

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from .style import GREY, INK, TASKS, canvas, headline, legend_below, seeds_text, tidy

METHODS = {
    "slope": ("Least-squares slope", "Cov(x, S) / Var(S)"),
    "leace": ("LEACE direction", "linear reading moved by delta"),
    "centroids": ("Class centroids", "mean of one sum to the next"),
    "das": ("Learned subspace", "rank 1 or 2"),
    "whole": ("Whole embedding", ""),
}
MARKERS = "osv^Dx"
DASHES = {"enc": "--", "dec": "-"}


def draw_doses(rows: pd.DataFrame, task: str) -> Figure:
    """Draw the share of whole answers that follow, given the new prefix: one panel per method, one line per site.

    Args:
        rows: those of ``probe=dose``; means over seeds.
        task: its name.
    """
    rows = rows[rows["prefix"] == "target"]
    methods = [name for name in METHODS if name in set(rows["method"])]
    figure = canvas(1.2 + 3.9 * max(len(methods), 2), 5.2)
    sites = list(dict.fromkeys(rows["site"]))
    for ax, method in zip(figure.subplots(1, len(methods), squeeze=False, sharey=True)[0], methods, strict=True):
        shown = rows[rows["method"] == method]
        for i, site in enumerate(sites):
            stack = site.split(".")[0]
            mean = shown[shown["site"] == site].groupby("delta")["answer"].mean()
            rank = sum(other.split(".")[0] == stack for other in sites[:i])
            shade = colormaps["Blues" if stack == "enc" else "Greens"](0.35 + 0.6 * rank / max(1, len(sites) / 2))
            ax.plot(mean.index, mean, DASHES.get(stack, "-"), color=shade, marker=MARKERS[rank % 6], label=site, ms=4.5)
        for column, style, label in (("floor", ":", "not moved"), ("random", "-.", "a random move as long")):
            mean = shown.groupby("delta")[column].mean()
            ax.plot(mean.index, mean, style, color=GREY if column == "floor" else INK, linewidth=1.2, label=label)
        tidy(ax)
        ax.set_xscale("log", base=2)
        ax.set(xlabel="delta, units of the value", ylim=(-0.04, 1.04))
        ax.xaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        headline(ax, *METHODS[method])
    figure.axes[0].set_ylabel("answers that become value + delta")
    title = f"{TASKS.get(task, task)}: move the value in the embeddings; does the answer follow?"
    figure.suptitle(f"{title} ({seeds_text(rows)})", fontsize=11.5, fontweight="bold", color=INK)
    legend_below(figure)
    figure.legends[0].set_ncols(7)
    return figure


def draw_transfers(rows: pd.DataFrame, task: str) -> Figure:
    """Source position against target position: the balanced accuracy at the target's bit of the other sum.

    Args:
        rows: those of ``probe=transfer``; means over seeds.
        task: its name.
    """
    rows = rows[rows["pair"] == "other"]
    cells = list(dict.fromkeys(zip(rows["site"], rows["method"], strict=True)))
    across = min(len(cells), 3)
    down = -(-len(cells) // across)
    width = rows["position"].nunique()
    figure = canvas(1.0 + (1.2 + 0.36 * width) * max(across, 2), 1.2 + (1.2 + 0.32 * width) * down)
    panels = figure.subplots(down, across, squeeze=False)
    for ax, (site, method) in zip(panels.flat, cells, strict=False):
        shown = rows[(rows["site"] == site) & (rows["method"] == method)]
        table = shown.groupby(["source", "position"])["iia"].mean().unstack("position")
        ax.imshow(table.to_numpy(), cmap="Greens", vmin=0.5, vmax=1, origin="lower", aspect="auto")
        for (i, j), share in np.ndenumerate(table.to_numpy()):
            color = "white" if share > 0.8 else INK
            text = ax.text(j, i, f"{100 * share:.0f}", ha="center", va="center", fontsize=7, color=color)
            text.set_in_layout(False)  # laying it out would take longer than all the rest
        ax.set_xticks(range(len(table.columns)), [str(t) for t in table.columns])
        ax.set_yticks(range(len(table.index)), [str(t) for t in table.index])
        ax.set(xlabel="put at position", ylabel="taken from position")
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        headline(ax, METHODS[method][0], site)
    for ax in panels.flat[len(cells) :]:
        ax.set_visible(False)
    title = f"{TASKS.get(task, task)}: percent that answer with the other value's bit (50: nothing exchanged)"
    figure.suptitle(f"{title} ({seeds_text(rows)})", fontsize=10.5, fontweight="bold", color=INK)
    return figure
