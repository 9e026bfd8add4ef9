"""Redraw a paper's figures from our runs. The claims file has their titles, captions, curves and commands."""

from collections.abc import Iterator, Sequence

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..plots import style
from ..plots.curves import draw_over_epochs, format_accuracy_axes
from .claims import Result, Results
from .claims_file import Paper, PaperFigure, explain_errors_of_user_code
from .collect import RunData

LINE_STYLES = {"first": (style.BLUE, "-"), "second": (style.ORANGE, "-."), "third": (style.GREEN, "-")}
LINE_STYLES |= {"reference": (style.INK, "--"), "faint": (style.GREY, ":")}


def draw_curves(spec: PaperFigure, data: RunData, results: Results) -> Figure | None:
    """Draw the panels and lines of the claims file. A diamond at the end of a line marks its claim's number.

    A panel is left out if it would be empty, or have only lines for comparison.
    """
    assert spec.curves is not None
    lines, panels = spec.curves.lines, {}
    for task, last in spec.curves.epochs.items():
        drawn = [(line, curve_rows(data, last, task=task, **line.runs)) for line in lines]
        drawn = [(line, rows) for line, rows in drawn if len(rows)]
        if not all(line.besides for line, _ in drawn):
            panels[task, last] = drawn
    if not panels:
        return None
    width = 9 if len(panels) > 1 or len(lines) > 3 else 5.6  # as wide as the legend
    figure, (axes,) = style.subplots(width, 3.7, 1, len(panels), sharey=True, squeeze=False)
    counts = pd.DataFrame({line.label: rows["seed"].nunique() for line, rows in drawn} for drawn in panels.values())
    differ = counts.nunique(axis=1).max() > 1
    handles: list[Line2D] = []
    for ax, ((task, last), drawn) in zip(axes, panels.items(), strict=True):
        format_accuracy_axes(ax)
        for line, rows in drawn:
            (color, dashes), label = LINE_STYLES[line.style], line.label
            if differ:
                label += f" (seeds: {' and '.join(map('{:.0f}'.format, counts[label].dropna().unique()))})"
            draw_over_epochs(ax, rows, line.column, label, color, dashes)
            if line.claim and rows["epoch"].max() == last:
                handles = [style.PAPER_HANDLE]
                value = results[line.claim.replace("{task}", task)].claim.value
                ax.plot([last], [value], markeredgecolor=color, **style.DIAMOND_STYLE)
        ax.set_xlim(0, max(rows["epoch"].max() for _, rows in drawn))
        title = style.TASKS.get(task, task.capitalize().replace("_", " "))
        style.set_panel_title(ax, title, "" if differ else style.format_num_seeds(drawn[0][1]))
    axes[0].set_ylabel("sequence accuracy")
    style.legend_below(figure, *handles)
    return figure


def curve_rows(data: RunData, last: int, **runs: str) -> pd.DataFrame:
    """Metric rows up to epoch ``last``, from finished replicas that trained that long, else from the longest ones.

    Runs whose settings differ from the paper's are left out.
    """
    replicas = data.select(runs, finished=True)
    longest = replicas["max_epochs"].clip(upper=last)  # a seed that stopped at an accuracy keeps its last value
    replicas = replicas[longest == longest.max()].sort_values("epochs", kind="stable")
    replicas = replicas.drop_duplicates(["trajectory_hash", "seed"])
    rows = data.metrics[data.metrics["replica"].isin(replicas.index) & (data.metrics["epoch"] <= last)]
    end = rows["epoch"].max()
    # Keep at most 400 epochs, with the first and the last: more would only enlarge the SVG.
    kept = (rows["epoch"] % ((end + 399) // 400) == 0) | rows["epoch"].isin([1, end])
    return rows[kept] if rows["epoch"].nunique() > 1 else rows.iloc[:0]  # one epoch is no curve


def paper_figures(
    paper: Paper, data: RunData, results: Sequence[Result]
) -> Iterator[tuple[PaperFigure, Figure | None]]:
    """Every figure, in the order of the claims file; None if there is nothing to draw yet."""
    by_id = {result.claim.id: result for result in results}
    for spec in paper.figures:
        where = f"{paper.file}: figures.{spec.name}.draw"
        with style.own_style(), explain_errors_of_user_code(spec.draw, where):
            drawn = spec.draw(data, by_id, **spec.options) if spec.draw else draw_curves(spec, data, by_id)
        yield spec, drawn
