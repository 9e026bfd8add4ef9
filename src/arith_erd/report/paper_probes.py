"""The paper's pictures of what goes on inside: figure 4 and appendices A and D, from the rows of probes."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import PercentFormatter

from ..plots.probes import correlation_curves, correlation_table, discontinuities
from ..plots.style import BLUE, DIAMOND, GREY, INK, TASKS, canvas, diamond, headline, legend_below, seeds_text, tidy
from .claims import Results
from .collect import GIVEN, OURS, Collection, matches

METHODS = {"inlp": ("INLP", "o"), "mean_projection": ("mean projection", "s"), "leace": ("LEACE", "^")}


def distance_correlation(found: Collection, results: Results) -> Figure | None:
    rows = probe_rows(found, "distance_correlation", runs={"min_epochs": 10})
    rows = rows[rows["method"] == "pearson"] if len(rows) else rows
    tasks = [task for task in TASKS if len(rows) and (rows["task"] == task).any()]
    if not tasks:
        return None
    figure = canvas(9, 4.1 * len(tasks))
    grid = np.atleast_2d(figure.subplots(len(tasks), 2, width_ratios=(4, 5)))
    for (cells, lines), task in zip(grid, tasks, strict=True):
        of_task = rows[rows["task"] == task]
        ours, theirs = of_task[of_task["source"] == OURS], of_task[of_task["source"] == GIVEN]
        shown = theirs if ours.empty else ours
        correlation_table(cells, shown)
        note = seeds_text(shown) if len(ours) else "the authors' weights"
        headline(cells, TASKS[task], note, pad=30)
        correlation_curves(lines, shown, besides=theirs if len(ours) else None)
    crosses = Line2D([], [], color=GREY, marker="x", linestyle=":", linewidth=1, label="the authors' weights")
    both = {task for task in tasks if rows[rows["task"] == task]["source"].nunique() > 1}
    legend_below(figure, *([crosses] if both else []))
    return figure


def discontinuity(found: Collection, results: Results) -> Figure | None:
    rows = found.probes.get("discontinuity", pd.DataFrame(columns=["task"]))
    tables = {task: part for task in TASKS if len(part := rows[rows["task"] == task])}
    if not tables:
        return None
    widths = [part["output_bits"].nunique() for part in tables.values()]
    height = max(part["input_bits"].nunique() for part in tables.values())
    figure = canvas(1.2 + 0.36 * sum(widths), 1.3 + 0.27 * height)
    axes = np.atleast_1d(figure.subplots(1, len(tables), width_ratios=widths)).tolist()
    for ax, (task, part), width in zip(axes, tables.items(), widths, strict=True):
        discontinuities(ax, part, size=6.5, tiny="·")
        headline(ax, TASKS[task])
        if task == "add" and width == 9:
            ax.add_patch(Rectangle((2.5, 1.5), 1, 1, fill=False, edgecolor=INK, linewidth=1.4))
    axes[0].set_ylabel("flipped bits of the operands")
    return figure


def amnesic(found: Collection, results: Results) -> Figure | None:
    rows = probe_rows(found, "amnesic", runs={"min_epochs": 10})
    if rows.empty:
        return None
    rows = rows[(rows["site"] == "dec.3") & (rows["task"] == "add")]
    rows = rows[rows["source"] == OURS] if (rows["source"] == OURS).any() else rows
    if rows.empty:
        return None
    concepts = list(dict.fromkeys(rows["concept"]))
    methods = [method for method in METHODS if (rows["method"] == method).any()]
    figure = canvas(9, 1.5 + 0.62 * len(concepts))
    ax = figure.subplots()
    for y, concept in enumerate(concepts):
        if y % 2 == 0:
            ax.axhspan(y - 0.5, y + 0.5, color=GREY, alpha=0.06, linewidth=0)
        for method, offset in zip(methods, np.linspace(-0.26, 0.26, len(methods)), strict=True):
            cell = rows[(rows["concept"] == concept) & (rows["method"] == method)]
            if len(cell):
                _erasure(ax, y + offset, cell, METHODS[method][1])
        if concept == "value":
            diamond(ax, results["appD-after"].claim.value, y - 0.26, INK)
    ax.set_yticks(range(len(concepts)), [concept.replace("_", " ") for concept in concepts])
    ax.tick_params(axis="y", length=0)
    tidy(ax)
    ax.grid(visible=False, axis="y")
    ax.set(xlabel="sequence accuracy after erasure", xlim=(-0.02, 1.02), ylim=(len(concepts) - 0.5, -0.5))
    ax.xaxis.set_major_formatter(PercentFormatter(1.0))
    ours = (rows["source"] == OURS).any()
    headline(ax, "Addition, decoder layer 3", seeds_text(rows) if ours else "the authors' weights")
    shapes = [Line2D([], [], color=BLUE, marker=METHODS[m][1], linestyle="", label=METHODS[m][0]) for m in methods]
    random = Line2D([], [], color=GREY, marker="|", linewidth=1, label="as many random directions: mean, worst")
    legend_below(figure, *shapes, random, Line2D([], [], markeredgecolor=INK, label="paper (INLP)", **DIAMOND))
    return figure


def _erasure(ax: Axes, y: float, cell: pd.DataFrame, marker: str) -> None:
    """The median over seeds and their range; in grey from the worst random erasure of the same rank to their mean."""
    worst, mean = cell["control_rank_min"].min(), cell["control_rank_mean"].mean()
    ax.plot([worst, mean], [y, y], color=GREY, linewidth=1, alpha=0.7)
    ax.plot([mean], [y], "|", color=GREY, markersize=8)
    after = cell["seq_acc_after"]
    ax.plot([after.min(), after.max()], [y, y], color=BLUE, linewidth=2.4, alpha=0.35, solid_capstyle="butt")
    ax.plot([after.median()], [y], marker, color=BLUE, markersize=5.5)


def probe_rows(found: Collection, name: str, runs: Mapping[str, Any]) -> pd.DataFrame:
    """What a probe found of the paper's own models in finished runs, and of the authors' weights."""
    rows = found.probes.get(name, pd.DataFrame(columns=["replica", "task", "source", "method"]))
    replicas = found.replicas[found.replicas["finished"]]
    ids = {i for task in TASKS for i in replicas.index[matches(replicas, {**runs, "task": task})]}
    return rows[(rows["source"] == GIVEN) | rows["replica"].isin(ids)]
