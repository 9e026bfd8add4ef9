"""How pictures look here: readable in black and white, no box, a faint grid.

A line is the median over seeds and its band the range between the lowest and the highest one. Lines differ in dashes
and points in shape, so that nothing hangs on a colour.
"""

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter, PercentFormatter

from ..runs import Row

BLUE, ORANGE, GREY = "#1f5fa8", "#d9730d", "#6b7280"
INK, LIGHT = "#1f2937", "#9ca3af"
TASKS = {"add": "Addition", "mul": "Multiplication"}
DIAMOND: dict[str, Any] = {"marker": "D", "linestyle": "", "markerfacecolor": "white", "markersize": 5.5}
PAPER = Line2D([], [], markeredgecolor=INK, label="paper", **DIAMOND)


def tidy(ax: Axes) -> None:
    """No box, a faint grid."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(LIGHT)
    ax.tick_params(color=LIGHT)
    ax.grid(alpha=0.25, linewidth=0.6)


def canvas(width: float, height: float) -> Figure:
    """In inches; with a little air around everything."""
    return Figure(figsize=(width, height), dpi=130, layout=ConstrainedLayoutEngine(w_pad=0.09, h_pad=0.09))


def headline(ax: Axes, title: str, note: str = "", pad: float = 6) -> None:
    """A title on the left, and what it is of, in grey, on the right."""
    ax.set_title(title, loc="left", fontsize=10.5, fontweight="bold", color=INK, pad=pad)
    if note:
        ax.set_title(note, loc="right", fontsize=9, color=GREY, pad=pad)


def seeds_text(rows: pd.DataFrame) -> str:
    number = rows["seed"].nunique()
    return f"{number} seed{'s' if number != 1 else ''}"


def diamond(ax: Axes, x: float, y: float, color: str) -> None:
    """The paper's number."""
    ax.plot([x], [y], markeredgecolor=color, clip_on=False, zorder=5, **DIAMOND)


def legend_below(figure: Figure, *more: Line2D) -> None:
    """One for all panels, below them: nothing can run into it."""
    labelled = [ax.get_legend_handles_labels() for ax in figure.axes]
    handles = {label: handle for pair in labelled for handle, label in zip(*pair, strict=True)}
    handles |= {str(handle.get_label()): handle for handle in more}
    place: Any = "outside lower center"
    figure.legend(
        handles=[*handles.values()], frameon=False, ncols=len(handles), loc=place, fontsize=9, handlelength=2.8
    )


def band(ax: Axes, rows: pd.DataFrame, column: str, label: str, color: str, linestyle: str) -> None:
    """The median over seeds as a line, the range between the lowest and the highest seed as a band.

    A broken line is drawn above whole ones: where they run together, both are seen.
    """
    by_epoch = rows.groupby("epoch")[column]
    median = by_epoch.median()
    order = 2 if linestyle == "-" else 3
    if rows["seed"].nunique() > 1:
        ax.fill_between(median.index, by_epoch.min(), by_epoch.max(), color=color, alpha=0.18, linewidth=0)
    ax.plot(median.index, median, label=label, color=color, linestyle=linestyle, linewidth=1.8, zorder=order)


def learning_curves(rows: Sequence[Row], title: str) -> Figure:
    """Sequence accuracy on both subsets, and the training loss, over the epochs of one run."""
    table = pd.DataFrame(rows)
    seeds = table["seed"].nunique()
    figure = Figure(figsize=(9, 3.6), dpi=130, layout="constrained")
    accuracy, loss = figure.subplots(1, 2, width_ratios=(3, 2))
    band(accuracy, table, "train_seq_acc", "training", GREY, "--")
    band(accuracy, table, "val_seq_acc", "validation", BLUE, "-")
    accuracy.set(xlabel="epoch", ylabel="sequence accuracy", ylim=(-0.02, 1.02))
    accuracy.yaxis.set_major_formatter(PercentFormatter(1.0))
    accuracy.axhline(0.95, color=GREY, linewidth=0.6, linestyle=":")
    accuracy.legend(frameon=False, loc="lower right")
    band(loss, table, "train_loss", "training", ORANGE, "-")
    loss.set(xlabel="epoch", ylabel="training loss per token (nats)", yscale="log")
    loss.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    loss.yaxis.set_major_formatter("{x:g}")
    loss.yaxis.set_minor_formatter(NullFormatter())
    for ax in (accuracy, loss):
        tidy(ax)
        ax.set_xlim(left=min(1, table["epoch"].max() - 1))
    figure.suptitle(f"{title}: {seeds} seed{'s: median and range' if seeds > 1 else ''}", fontsize=11)
    return figure
