"""Curves of a probe's measure, or of accuracies, over training epochs; accuracies as a function of a setting."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..stats import LEARNING_ACCURACY, TARGET_ACCURACY
from . import style
from .panels import MARKERS, Lines, split_rows
from .tables import INTEGER, NUMBER, TEXT, summary_table


@dataclass(frozen=True)
class EpochCurves:
    """The values for a figure over epochs, from one epoch, or from all with a column ``epoch``."""

    table: pd.DataFrame
    """Columns ``seed``, ``panel``, ``line`` and ``value``."""
    label: str
    """Label of the vertical axis."""
    unit: str = NUMBER  # unit of the value, as in `plots.tables.column_kinds`
    reached: Mapping[int, int | None] = field(default_factory=dict)  # seed -> the epoch at which it reached 95%

    @classmethod
    def from_rows(
        cls,
        rows: pd.DataFrame,
        measure: str,
        lines: Sequence[str] = (),
        panel: str = "",
        label: str = "",
        unit: str = NUMBER,
    ) -> "EpochCurves":
        """One measure at one epoch: its mean over a probe's rows, for each seed and line.

        The columns ``lines`` name the lines, and the column ``panel`` names the panels. ``label`` is that of the
        vertical axis, by default the measure.
        """
        line = rows[[*lines]].astype(str).agg(" ".join, axis=1) if lines else measure
        panels = rows[panel].map(lambda x: x if isinstance(x, str) else f"{panel} {x}") if panel else ""
        values = pd.DataFrame({"seed": rows["seed"], "panel": panels, "line": line, "value": rows[measure]})
        table = values.groupby(["seed", "panel", "line"], sort=False)["value"].mean().reset_index()
        return cls(table, label or measure.replace("_", " "), unit)

    def summary_table(self) -> pd.DataFrame:
        """One row per epoch, one column per line: means over the seeds, with intervals if there are three or more."""
        across = ("panel", "line") if self.table["panel"].nunique() > 1 else ("line",)
        columns = {"epoch": INTEGER, **dict.fromkeys(across, TEXT), "value": self.unit}
        return summary_table(self.table, columns, across)

    def draw(self, title: str) -> Figure:
        """Draw median and range over seeds; dotted lines mark the epochs that seeds ``reached``."""
        look: dict[str, Any] = {"ylabel": self.label, "percent": self.unit == "accuracy", "statistic": "median"}
        figure = Lines("value", "epoch", "line", "panel", **look).draw(self.table)
        for ax, rows in zip(figure.axes, split_rows(self.table, "panel").values(), strict=False):
            for epoch in filter(None, {self.reached.get(seed) for seed in rows["seed"]}):
                ax.axvline(epoch, color=style.INK, linewidth=0.9, linestyle=":", zorder=1)
        figure.suptitle(f"{title}, {style.format_num_seeds(self.table)}; dotted: a seed reaches 95%", fontsize=11)
        return figure


@style.own_style()
def draw_learning_curves(rows: Sequence[Mapping[str, Any]], title: str, slices: pd.DataFrame | None = None) -> Figure:
    """Draw accuracy and loss over the epochs and, from rows of ``slices.csv``, the final accuracy of each length."""
    table = pd.DataFrame(rows)
    panels = 2 if slices is None else 3
    figure, (accuracy, loss, *length_axes) = style.subplots(4.4 * panels, 3.6, 1, panels)
    format_accuracy_axes(accuracy)
    draw_over_epochs(accuracy, table, "train_seq_acc", "training", style.INK, "--")
    if table["val_seq_acc"].notna().any():
        draw_over_epochs(accuracy, table, "val_seq_acc", "validation", style.BLUE, "-")
    accuracy.set(ylabel="sequence accuracy")
    accuracy.axhline(TARGET_ACCURACY, color=style.GREY, linewidth=0.6, linestyle=":")
    accuracy.annotate("95%", (0.01, 0.945), xycoords=("axes fraction", "data"), va="top", fontsize=8, color=style.GREY)
    draw_over_epochs(loss, table, "train_loss", "training", style.ORANGE, "-")
    style.format_axes(loss)
    loss.set(xlabel="epoch", ylabel="training loss per token (nats)", yscale="log")
    style.format_log_axis(loss.yaxis)
    for ax in (accuracy, loss):
        ax.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    if slices is not None:
        (ax,) = length_axes
        last = slices[(slices["slice"] == "length") & (slices["epoch"] == slices["epoch"].max())]
        Lines("val_seq_acc", "value", "slice", percent=True).draw_panel(ax, last)
        ax.set(xlabel="digits of the operands", ylabel="")
    # Above the panel, where it covers no line.
    accuracy.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0.2, fontsize=9)
    task, _, options = title.partition(", ")
    style.set_figure_title(figure, task, f"{options}; median, and range or every seed", table)
    return figure


@style.own_style()
def draw_by_setting(means: pd.DataFrame, seeds: pd.DataFrame) -> Figure:
    """Draw a table of means over seeds: columns for settings, then ``seeds``, ``accuracy``, ``ci_low``, ``ci_high``.

    The first setting is on the horizontal axis: numbers to scale, names side by side, with a dot for each run of
    ``seeds``. A line marks the longest trained length, ``split.trained``.
    """
    settings = means.columns[: means.columns.get_loc("seeds")]
    words = {c: re.sub(r"^model\.(?!name$)(net\.)?|\.name$|[._]", " ", c).strip() for c in settings}
    words["length"] = "digits of the operands"
    means, seeds = means.rename(columns=words), seeds.rename(columns=words)
    key, *others = (words[c] for c in settings)
    means = means.astype({"ci_low": float, "ci_high": float})
    figure, ax = style.subplots(6.4, 4)
    style.format_axes(ax, "y")
    if numeric := pd.api.types.is_numeric_dtype(means[key]) and means[key].nunique() > 1:
        if (means[key] % 1 == 0).all():
            ax.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True))
    else:
        names = list(dict.fromkeys(means[key].map(str)))
        ax.set_xticks(range(len(names)), names)
        ax.margins(x=0.25)
    groups: dict[str, pd.DataFrame] = {}
    for values, part in means.groupby(others, dropna=False) if others else [(("",), means)]:
        groups[", ".join(v if isinstance(v, str) else f"{n} {v}" for n, v in zip(others, values, strict=False))] = part
    for number, (label, look) in enumerate(Lines("accuracy", key, "").line_styles([*groups], MARKERS).items()):
        part, at = groups[label], groups[label][key]
        if not numeric:
            runs = seeds.merge(part.loc[part["seeds"] > 1, [key, *others]])
            at, dots = (table[key].map(str).map(names.index) + 0.15 * number for table in (part, runs))
            dot = {"color": look["color"], "markersize": 4, "alpha": 0.5, "label": "one seed" if len(runs) else ""}
            ax.plot(dots + 0.06, runs["val_seq_acc"], ".", **dot)
            look["linestyle"] = ""
        if numeric and len(part) > 1:
            ax.fill_between(at, part["ci_low"], part["ci_high"], color=look["color"], alpha=0.08, linewidth=0)
        else:
            ax.vlines(at, part["ci_low"], part["ci_high"], color=look["color"], linewidth=0.8)
        ax.plot(at, part["accuracy"], label=label, **look)
    ax.set(xlabel=key, ylabel="validation sequence accuracy")
    for length in seeds["split.trained"].unique() if key == words["length"] and "split.trained" in seeds else ():
        ax.axvline(length, color=style.INK, linewidth=0.9, linestyle=":", label="longest trained", zorder=1)
    if not means["accuracy"].any():  # else matplotlib's axis goes below zero
        ax.set_ylim(0, 1)
    note = "mean over seeds, 95% interval" if means["seeds"].max() > 1 else "one seed a point"
    style.set_panel_title(ax, "Final accuracy" + (f" by {others[0]}" if len(others) == 1 else ""), note)
    style.legend_below(figure, columns=min(3, len(groups)))
    return figure


def pivot_forward_filled(rows: pd.DataFrame, column: str, by: str = "seed") -> pd.DataFrame:
    """A column as a table (epochs, seeds). A seed that stopped early keeps its last value until the longest ends."""
    return rows.pivot_table(column, "epoch", by, dropna=False).ffill()


def draw_over_epochs(ax: Axes, rows: pd.DataFrame, column: str, label: str, color: str, linestyle: str) -> None:
    """Draw a column over the epochs, and each seed if only some learn. Dashed lines lie above solid ones."""
    order = 2 if linestyle == "-" else 3
    look: Any = {"label": label, "color": color, "linestyle": linestyle, "linewidth": 1.8, "zorder": order}
    look["marker"] = "o" if rows["epoch"].nunique() == 1 else ""
    by_seed = pivot_forward_filled(rows, column)
    if column.endswith("acc") and (by_seed.max() < LEARNING_ACCURACY).nunique() > 1:
        first = "_" if "one seed" in ax.get_legend_handles_labels()[1] else "one seed"
        labels = [first, *"_" * (by_seed.shape[1] - 1)]
        ax.plot(by_seed.index, by_seed, color=color, linewidth=0.6, alpha=0.6, label=labels)
        by_seed = by_seed.median(axis=1).to_frame()
    style.draw_band(ax, by_seed, "median", **look)


def format_accuracy_axes(ax: Axes) -> None:
    """Set up a panel of accuracies over the epochs."""
    style.format_axes(ax, "y")
    ax.set(xlabel="epoch", ylim=(-0.02, 1.03))
