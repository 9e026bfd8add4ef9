"""Curves over the epochs of training, of a probe's measure or of accuracies, and accuracies over a setting."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from . import style
from .panels import Lines, split_rows
from .tables import INTEGER, NUMBER, TEXT, summary_table


@dataclass(frozen=True)
class EpochCurves:
    """The values for a figure over epochs: from one epoch, or from all with a column ``epoch``."""

    table: pd.DataFrame
    """Columns ``seed``, ``panel``, ``line`` and ``value``."""
    label: str
    """Label of the vertical axis."""
    unit: str = NUMBER  # unit of the value, as in `plots.tables.column_kinds`
    reached: Mapping[int, int | None] = field(default_factory=dict)  # seed -> the epoch at which it reached 95%

    @classmethod
    def of(
        cls,
        rows: pd.DataFrame,
        measure: str,
        lines: Sequence[str] = (),
        panel: str = "",
        label: str = "",
        unit: str = NUMBER,
    ) -> "EpochCurves":
        """The mean of one measure over the rows of a line, for each seed, from a probe's rows at one epoch.

        The values of the columns ``lines`` name the lines, those of ``panel`` the panels; without a ``label``, of the
        vertical axis, it is the measure.
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
        """Median and range over seeds; dotted: the epochs that they ``reached``."""
        look: dict[str, Any] = {"label": self.label, "percent": self.unit == "accuracy", "center": "median"}
        figure = Lines("value", "epoch", "line", "panel", **look).draw(self.table)
        for ax, rows in zip(figure.axes, split_rows(self.table, "panel").values(), strict=False):
            for epoch in filter(None, {self.reached.get(seed) for seed in rows["seed"]}):
                ax.axvline(epoch, color=style.INK, linewidth=0.9, linestyle=":", zorder=1)
        figure.suptitle(f"{title}, {style.format_num_seeds(self.table)}; dotted: a seed reaches 95%", fontsize=11)
        return figure


def draw_learning_curves(rows: Sequence[Mapping[str, Any]], title: str, slices: pd.DataFrame | None = None) -> Figure:
    """Draw accuracy and loss over the epochs, and from the rows of ``slices.csv`` the final accuracy of each length."""
    table = pd.DataFrame(rows)
    panels = 2 if slices is None else 3
    figure, (accuracy, loss, *length_axes) = style.subplots(4.4 * panels, 3.6, 1, panels)
    format_accuracy_axes(accuracy)
    draw_over_epochs(accuracy, table, "train_seq_acc", "training", style.INK, "--")
    if table["val_seq_acc"].notna().any():
        draw_over_epochs(accuracy, table, "val_seq_acc", "validation", style.BLUE, "-")
    accuracy.set(ylabel="sequence accuracy")
    accuracy.axhline(0.95, color=style.GREY, linewidth=0.6, linestyle=":")
    draw_over_epochs(loss, table, "train_loss", "training", style.ORANGE, "-")
    style.format_axes(loss)
    loss.set(xlabel="epoch", ylabel="training loss per token (nats)", yscale="log")
    for ax in (accuracy, loss):
        ax.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    if slices is not None:
        (ax,) = length_axes
        last = slices[(slices["slice"] == "length") & (slices["epoch"] == slices["epoch"].max())]
        Lines("val_seq_acc", "value", "slice", percent=True).draw_panel(ax, last)
        ax.set(xlabel="digits of the operands", ylabel="")
    # Above the panel, where it covers no line.
    accuracy.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0.2, fontsize=9)
    figure.suptitle(f"{title}: {style.format_num_seeds(table)}, median and range", fontsize=11)
    return figure


def draw_by_setting(means: pd.DataFrame) -> Figure:
    """Draw a table of means over seeds, with columns for settings, then ``seeds``, ``accuracy``, ``low``, ``high``.

    The first setting is on the horizontal axis: numbers at their place, names side by side.
    """
    key, *others = means.columns[: means.columns.get_loc("seeds")]
    means = means.dropna(subset=[key])
    figure, ax = style.subplots(6.4, 4)
    style.format_axes(ax, "y")
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
        settings = [f"{o.removesuffix('.name')} {value}" for o, value in zip(others, values, strict=True)]
        label = str(values[0]) if len(values) == 1 and isinstance(values[0], str) else ", ".join(settings)
        error = [(part["accuracy"] - part["low"]).fillna(0), (part["high"] - part["accuracy"]).fillna(0)]
        at = places[part.index] + 0.06 * number * (0.1 * (places.max() - places.min()) if numeric else 1)
        look = "osD^v"[number % 5] + ("-" if numeric else "")
        ax.errorbar(at, part["accuracy"], error, fmt=look, label=label, capsize=2, elinewidth=0.8)
    with style.without_math():
        ax.set(xlabel=key, ylabel="validation sequence accuracy")
        if not means["accuracy"].any():  # matplotlib would go below zero
            ax.set_ylim(0, 1)
        by = f" by {others[0]}" if len(others) == 1 else ""
        note = "mean over seeds, 95% interval" if means["seeds"].max() > 1 else "one seed a point"
        style.set_panel_title(ax, f"Final accuracy{by}", note)
        if others:
            style.legend_below(figure, columns=min(3, len(ax.containers)))
    return figure


def pivot_forward_filled(rows: pd.DataFrame, column: str, by: str = "seed") -> pd.DataFrame:
    """A column as a table (epochs, seeds). A seed that stopped early keeps its last value until the longest ends."""
    return rows.pivot_table(column, "epoch", by, dropna=False).ffill()


def draw_over_epochs(ax: Axes, rows: pd.DataFrame, column: str, label: str, color: str, linestyle: str) -> None:
    """Draw a column over the epochs; dashed lines lie above solid ones."""
    order = 2 if linestyle == "-" else 3
    look: Any = {"label": label, "color": color, "linestyle": linestyle, "linewidth": 1.8, "zorder": order}
    look["marker"] = "o" if rows["epoch"].nunique() == 1 else ""
    style.draw_band(ax, pivot_forward_filled(rows, column), **look)


def format_accuracy_axes(ax: Axes) -> None:
    """Set up a panel of accuracies over the epochs."""
    style.format_axes(ax, "y")
    ax.set(xlabel="epoch", ylim=(-0.02, 1.03))
