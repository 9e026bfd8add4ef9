"""Accuracies over the epochs of training, a line the median over seeds and a band their range; or over a setting."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from . import style
from .style import BLUE, GREEN, GREY, INK, ORANGE, band, headline, legend_below, seeds_text, subplots, tidy

STYLES = {"first": (BLUE, "-"), "second": (ORANGE, "-."), "third": (GREEN, "-")}
STYLES |= {"reference": (INK, "--"), "faint": (GREY, ":")}


def forward_filled(rows: pd.DataFrame, column: str, by: str = "seed") -> pd.DataFrame:
    """A column as a table (epochs, seeds); a seed that stopped keeps its last value until the longest one ends."""
    return rows.pivot_table(column, "epoch", by, dropna=False).ffill()


def over_epochs(ax: Axes, rows: pd.DataFrame, column: str, label: str, color: str, linestyle: str) -> None:
    """Draw a column; dashed lines lie above solid ones."""
    order = 2 if linestyle == "-" else 3
    look: Any = {"label": label, "color": color, "linestyle": linestyle, "linewidth": 1.8, "zorder": order}
    look["marker"] = "o" if rows["epoch"].nunique() == 1 else ""
    band(ax, forward_filled(rows, column), **look)


def thinned(rows: pd.DataFrame) -> pd.DataFrame:
    """At most 400 epochs of metric rows, with the first and the last; more are invisible and enlarge the SVG."""
    end = rows["epoch"].max()
    return rows[(rows["epoch"] % -(-end // 400) == 0) | rows["epoch"].isin([1, end])]


def accuracy_axes(ax: Axes, rows: pd.DataFrame | None = None) -> None:
    """An empty panel of accuracies over the epochs, or one of training and validation."""
    tidy(ax, "y")
    ax.set(xlabel="epoch", ylim=(-0.02, 1.03))
    if rows is not None:
        over_epochs(ax, rows, "train_seq_acc", "training", INK, "--")
        if rows["val_seq_acc"].notna().any():
            over_epochs(ax, rows, "val_seq_acc", "validation", BLUE, "-")


def small_panel(rows: pd.DataFrame) -> Figure:
    """Training (dashed) and validation accuracy of one kind of run, rows of all seeds. No title and no legend."""
    figure, ax = subplots(3, 1.9)
    rows = thinned(rows)
    accuracy_axes(ax, rows)
    first, last = rows["epoch"].min(), rows["epoch"].max()
    ax.set(xlim=(min(first, last - 1), last))
    ax.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    ax.xaxis.label.set_fontsize(8.5)
    ax.tick_params(labelsize=8.5)
    return figure


def learning_curves(rows: Sequence[Mapping[str, Any]], title: str, slices: pd.DataFrame | None = None) -> Figure:
    """Accuracy and loss over the epochs, and with the rows of ``slices.csv`` the accuracy of each length at the end."""
    table = pd.DataFrame(rows)
    seeds = table["seed"].nunique()
    widths = (3, 2) if slices is None else (3, 2, 2)
    figure, (accuracy, loss, *of_lengths) = subplots(9 * sum(widths) / 5, 3.6, 1, len(widths), width_ratios=widths)
    accuracy_axes(accuracy, table)
    for ax in of_lengths:
        assert slices is not None
        last = slices[(slices["slice"] == "length") & (slices["epoch"] == slices["epoch"].max())]
        band(ax, last.pivot_table("val_seq_acc", "value", "seed"), color=BLUE, marker="o", markersize=4)
        tidy(ax, "y")
        ax.set(xlabel=f"digits of the operands, after epoch {last['epoch'].max()}", ylim=(-0.02, 1.03))
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    accuracy.set(ylabel="sequence accuracy")
    accuracy.axhline(0.95, color=GREY, linewidth=0.6, linestyle=":")
    # Above the panel, where it covers no line.
    accuracy.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0.2, fontsize=9)
    over_epochs(loss, table, "train_loss", "training", ORANGE, "-")
    tidy(loss)
    loss.set(xlabel="epoch", ylabel="training loss per token (nats)", yscale="log")
    loss.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    loss.yaxis.set_major_formatter("{x:g}")
    loss.yaxis.set_minor_formatter(NullFormatter())
    for ax in (accuracy, loss):
        ax.set_xlim(left=min(1, table["epoch"].max() - 1))
        ax.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True))
    figure.suptitle(f"{title}: {seeds} seed{'s: median and range' if seeds > 1 else ''}", fontsize=11)
    return figure


@dataclass(frozen=True)
class Line:
    """The median over seeds of one column; nothing is drawn without rows.

    ``style`` is a name of `STYLES`; ``published`` is the paper's number at the last epoch.
    """

    rows: pd.DataFrame
    label: str
    style: str
    column: str = "val_seq_acc"
    published: float | None = None


def draw_compared(panels: Mapping[str, tuple[int, Sequence[Line]]]) -> Figure:
    """Draw a panel per task: by its name or title, the last epoch of the axis and the lines, one of them with rows."""
    longest = max(len(lines) for _, lines in panels.values())
    width = 9 if len(panels) > 1 or longest > 3 else 5.6  # as wide as the legend
    figure, (axes,) = subplots(width, 3.7, 1, len(panels), sharey=True, squeeze=False)
    for ax in axes:
        accuracy_axes(ax)
    axes[0].set_ylabel("sequence accuracy")
    for ax, (task, (last, lines)) in zip(axes, panels.items(), strict=True):
        drawn = [line for line in lines if len(line.rows)]
        for line in drawn:
            color, dashes = STYLES[line.style]
            over_epochs(ax, line.rows, line.column, line.label, color, dashes)
            if line.published is not None:
                style.diamond(ax, last, line.published, color)
        ax.set_xlim(0, last)
        title = style.TASKS.get(task, task.capitalize().replace("_", " "))
        headline(ax, title, seeds_text(*(line.rows for line in drawn)))
    published = any(line.published is not None for _, lines in panels.values() for line in lines)
    legend_below(figure, *([style.PAPER] if published else []))
    return figure


def draw_by_setting(means: pd.DataFrame) -> Figure:
    """Draw a table of means over seeds: settings, ``seeds``, ``accuracy``, ``low``, ``high``.

    The first setting is on the axis: numbers at their place, names side by side.
    """
    key, *others = means.columns[: means.columns.get_loc("seeds")]
    means = means.dropna(subset=[key])
    figure, ax = subplots(6.4, 4)
    tidy(ax, "y")
    if numeric := pd.api.types.is_numeric_dtype(means[key]):
        places = means[key]
        if (places % 1 == 0).all():
            ax.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True))
    else:
        codes, names = pd.factorize(means[key].map(str))
        places = pd.Series(codes, means.index)
        ax.set_xticks(range(len(names)), names)
        ax.margins(x=0.25)
    for number, (values, part) in enumerate(means.groupby(others, dropna=False) if others else [((), means)]):
        told = [f"{o.removesuffix('.name')} {value}" for o, value in zip(others, values, strict=True)]
        label = str(values[0]) if len(values) == 1 and isinstance(values[0], str) else ", ".join(told)
        error = [(part["accuracy"] - part["low"]).fillna(0), (part["high"] - part["accuracy"]).fillna(0)]
        at = places[part.index] + 0.06 * number * (0.1 * (places.max() - places.min()) if numeric else 1)
        look = "osD^v"[number % 5] + ("-" if numeric else "")
        ax.errorbar(at, part["accuracy"], error, fmt=look, label=label, capsize=2, elinewidth=0.8)
    with style.plain_text():
        ax.set(xlabel=key, ylabel="validation sequence accuracy")
        if not means["accuracy"].any():  # matplotlib would go below zero
            ax.set_ylim(0, 1)
        by = f" by {others[0]}" if len(others) == 1 else ""
        headline(
            ax,
            f"Final accuracy{by}",
            "mean over seeds, 95% interval" if means["seeds"].max() > 1 else "one seed a point",
        )
        if others:
            legend_below(figure, columns=min(3, len(ax.containers)))
    return figure
