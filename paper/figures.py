"""Figures of the paper other than learning curves. ``claims.yaml`` and ``mini.yaml`` name them."""

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from arith_erd.errors import counted
from arith_erd.paper.probes.discontinuity import Discontinuity, without_empty_cells
from arith_erd.plots import style
from arith_erd.report.claims import Result, Results
from arith_erd.report.collect import AUTHORS_WEIGHTS, OUR_RUNS, TASK_ALONE, RunData

NEVER_X = 1080  # horizontal place of a seed that never reaches 95%


def draw_ablations(data: RunData, results: Results, rows: Mapping[str, str]) -> Figure | None:
    """Draw epochs to 95% without one component, ours below the paper's; or an accuracy, if 95% is never reached.

    ``rows`` maps ablations to their labels.
    """
    table = [[results[f"table3-{task}-{name}"] for name in rows] for task in style.TASKS]
    if not any(result.num_seeds for row in table for result in row):
        return None
    figure, axes = style.subplots(9, 3.6, 1, len(table), sharey=True)
    for ax, title, row in zip(axes, style.TASKS.values(), table, strict=True):
        for y, result in enumerate(row):
            _draw_ablation(ax, y, result)
        seeds = max(result.num_seeds for result in row)
        style.set_panel_title(ax, title, f"up to {counted(seeds, 'seed')}" if seeds else "not run")
        style.format_axes(ax)
        ax.grid(visible=False, axis="y")
        ax.set(xscale="log", xlim=(15, 1900), xlabel="epochs to 95% of the validation sequences")
        ax.set_xticks([20, 50, 100, 200, 500, 1000])
        ax.set_xticks([], minor=True)
        ax.xaxis.set_major_formatter("{x:g}")
        ax.axvline(1000, color=style.GREY, linewidth=0.6, linestyle=":")
    axes[0].set_yticks(range(len(rows)), rows.values())
    axes[0].invert_yaxis()
    axes[0].tick_params(axis="y", length=0)
    never = "never reaches 95% (number: accuracy; ours: exact ceiling)"
    handles = (
        Line2D([], [], color=style.BLUE, marker="o", markersize=5.5, label="ours: median and interval"),
        Line2D([], [], color=style.BLUE, marker="|", linestyle="", alpha=0.6, markersize=8, label="one seed"),
        Line2D([], [], color=style.INK, marker=">", linestyle="", markersize=5, label=never),
    )
    style.legend_below(figure, style.PAPER_HANDLE, *handles)
    return figure


def _draw_ablation(ax: Axes, y: float, result: Result) -> None:
    above, below, estimate = y - 0.17, y + 0.17, result.estimate
    if result.claim.unit != "epochs":  # the paper never got to 95%
        ax.plot([NEVER_X], [above], marker=">", color=style.INK, markerfacecolor="white", markersize=5)
        ax.text(1180, above, f"{result.claim.value:.1%}", va="center", fontsize=8.5, color=style.INK)
        if estimate is not None:
            ax.plot([NEVER_X], [below], marker=">", color=style.BLUE, markersize=5)
            ax.text(1180, below, f"{estimate.low:.1%}", va="center", fontsize=8.5, color=style.BLUE)
        return
    ax.plot([result.claim.value], [above], markeredgecolor=style.INK, **style.DIAMOND_STYLE)
    if estimate is None:
        return
    (seeds,) = result.samples
    reached = seeds["low"] == seeds["high"]
    ax.plot(seeds.loc[reached, "low"], [below] * reached.sum(), "|", color=style.BLUE, markersize=8, alpha=0.5)
    ax.plot(seeds.loc[~reached, "low"], [below] * (~reached).sum(), ">", color=style.BLUE, markersize=4.5, alpha=0.7)
    if estimate.interval is not None:
        low, high = estimate.interval
        ax.plot([low, min(high, NEVER_X)], [below, below], color=style.BLUE, linewidth=1.8, solid_capstyle="butt")
    if estimate.value is not None:
        ax.plot([estimate.value], [below], "o", color=style.BLUE, markersize=5.5)


def draw_distance_correlation(data: RunData, results: Results) -> Figure | None:
    from arith_erd.paper.probes.distance_correlation import draw_correlations  # loads torch

    numbers, texts = ["seed", "layer", "correlation"], ["stack", "level", "space", "method"]
    rows = probe_rows(data, "distance_correlation", numbers, texts, 10)
    rows = rows[rows["method"] == "pearson"]
    ours, authors = (by_task(rows[rows["source"] == source]) for source in (OUR_RUNS, AUTHORS_WEIGHTS))
    authors_only = {f"{title}: the authors' weights": part for title, part in authors.items() if title not in ours}
    return draw_correlations(ours | authors_only, authors) if ours or authors_only else None


def draw_discontinuity(data: RunData, results: Results) -> Figure | None:
    tables = by_task(probe_rows(data, "discontinuity", ["input_bits", "output_bits", "percent"]))
    if not tables:
        return None
    rows = pd.concat(part.assign(task=title) for title, part in tables.items())
    figure = Discontinuity.picture.draw(without_empty_cells(rows.astype({"input_bits": int, "output_bits": int})))
    title = Discontinuity.picture.title
    if style.TASKS["add"] in tables:
        figure.axes[0].add_patch(Rectangle((2.5, 1.5), 1, 1, fill=False, edgecolor=style.INK, linewidth=1.4))
        title += "; framed: the cell that the paper's text prints, 27.9%"
    style.set_figure_title(figure, "Appendix A", title, rows)
    return figure


def draw_amnesic(data: RunData, results: Results, site: str = "dec.3") -> Figure | None:
    from arith_erd.paper.probes.amnesic import PaperAmnesic, with_published  # loads torch

    numbers = ["seed", "iterations", "seq_acc_after", "seq_acc_after_unseen"]
    rows = probe_rows(data, "amnesic", numbers, ["site", "concept", "method"], 10)
    rows = rows[(rows["site"] == site) & (rows["task"] == "add")]
    shown = ours if len(ours := rows[rows["source"] == OUR_RUNS]) else rows
    if shown.empty:
        return None
    of_paper = bool((shown.loc[shown["method"] == "inlp", "iterations"] == 2).all())
    labelled = shown.assign(erasure=shown["concept"] + ", " + shown["method"])
    figure = PaperAmnesic.picture.draw(with_published(labelled, of_paper))
    title = PaperAmnesic.picture.title + ("" if len(ours) else ", the authors' weights")
    style.set_figure_title(figure, "add", title, shown)
    return figure


def by_task(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Title -> rows, for each of the paper's tasks that has some."""
    return {title: part for task, title in style.TASKS.items() if len(part := rows[rows["task"] == task])}


def probe_rows(
    data: RunData, name: str, numbers: Sequence[str], texts: Sequence[str] = (), min_epochs: int = 0
) -> pd.DataFrame:
    """Rows of a probe with the paper's settings: of tasks, of finished runs and of the authors' weights.

    ``numbers`` and ``texts`` are the columns of the figure. If one is missing, there are no rows.
    """
    rows = data.probes.get(name, pd.DataFrame())
    if not {*numbers, *texts} <= {*rows.select_dtypes("number")} | {*texts} & {*rows}:
        return pd.DataFrame(columns=["task", "source", *numbers, *texts])
    runs = {"min_epochs": min_epochs} if min_epochs else {}
    ids = {i for task in style.TASKS for i in data.select({**runs, "task": task}, finished=True).index}
    without_run = rows["source"].isin([AUTHORS_WEIGHTS, TASK_ALONE])
    return rows[(rows["unpublished_settings"] == "") & (without_run | rows["replica"].isin(ids))]
