"""Curves of accuracies or of a probe's measure over the epochs of training, and accuracies over a setting.

A line is the median over seeds, a band their range.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from .sheet import INTEGER, NUMBER, TEXT, Sheet, tabulate
from .style import BLUE, GREY, INK, ORANGE, band, grid, headline, legend_below, plain_text, seeds_text, subplots, tidy

MAX_SEEDS = 20
DASHES = ("-", "--", "-.", ":")


@dataclass(frozen=True)
class EpochCurves:
    """The values of a figure over epochs: of one epoch, or of all with a column ``epoch``."""

    table: pd.DataFrame
    """Columns ``seed``, ``panel``, ``line`` and ``value``."""
    label: str
    """Label of the vertical axis."""
    unit: str = NUMBER  # of the value, as in `Sheet`
    by_seed: bool = False
    """Whether the figure has a panel for each seed, for changes that come at another epoch in each seed."""

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
        """Average one measure over the rows of each line, for each seed, from a probe's rows at one epoch.

        The values of the columns ``lines`` name the lines, those of ``panel`` the panels. ``label`` is that of the
        vertical axis, by default the measure.
        """
        named = pd.DataFrame(
            {
                "seed": rows["seed"],
                "panel": rows[panel].map(lambda x: str(x) if isinstance(x, str) else f"{panel} {x}") if panel else "",
                "line": rows[[*lines]].astype(str).agg(" ".join, axis=1) if lines else measure,
                "value": rows[measure],
            }
        )
        table = named.groupby(["seed", "panel", "line"], sort=False)["value"].mean().reset_index()
        return cls(table, label or measure.replace("_", " "), unit)

    def tabulated(self) -> pd.DataFrame:
        """A table with a row per epoch and a column per line: means over the seeds, with intervals from three on."""
        across = ("panel", "line") if self.table["panel"].nunique() > 1 else ("line",)
        columns = {"epoch": INTEGER, **dict.fromkeys(across, TEXT), "value": self.unit}
        return tabulate(self.table, Sheet("", columns, across=across))

    def draw(self, title: str, reached: Mapping[int, int | None] | None = None) -> Figure:
        """Draw one panel for each value of ``panel``: the median over seeds as lines, their range as bands.

        ``reached`` has the epoch at which each seed reached 95%, to be marked; None if it did not.
        """
        panels = [(str(panel), rows) for panel, rows in self.table.groupby("panel", sort=False)]
        if self.by_seed:
            of_seeds = [*self.table.groupby("seed", sort=False)][:MAX_SEEDS]
            panels = [(f"seed {seed}", rows) for seed, rows in of_seeds]
        across = min(len(panels), 3 if len(panels) <= 9 else 5)
        width, height = 6.2 if across == 1 else 1 + 3.4 * across, 1.3 + 2.6 * -(-len(panels) // across)
        figure, axes = grid(width, height, len(panels), across, sharex=True, sharey=True)
        names = list(self.table["line"].unique())
        shades = colormaps["viridis_r"](np.linspace(0.15, 0.95, len(names)))  # from light to dark, dashes in turn
        looks = {n: {"color": shades[i], "linestyle": DASHES[i % len(DASHES)]} for i, n in enumerate(names)}
        marker = "o" if self.table["epoch"].nunique() <= 20 else ""
        for ax, (panel, rows) in zip(axes, panels, strict=True):
            for name, of_line in rows.groupby("line", sort=False):
                by_epoch = of_line.pivot_table("value", "epoch", "seed", dropna=False)
                band(ax, by_epoch, label=name, marker=marker, markersize=3, linewidth=1.5, **looks[name])
            tidy(ax, "y" if self.unit == "accuracy" else "")
            marked = [reached.get(seed) for seed in rows["seed"].unique()] if reached else []
            for epoch in filter(None, marked):
                dots: Any = (0, (1, 1.5))
                ax.axvline(epoch, color=INK, linewidth=0.9, linestyle=dots, label="a seed reaches 95%", zorder=1)
            note = f"95% at epoch {marked[0]}" if any(marked) else "never reached 95%"
            headline(ax, panel, note if len(marked) == 1 else "")
            self._scale(ax)
        for ax in axes[::across]:
            ax.set_ylabel(self.label)
        left_out = f", the first {MAX_SEEDS} drawn" if self.by_seed and self.table["seed"].nunique() > MAX_SEEDS else ""
        figure.suptitle(f"{title}, {seeds_text(self.table)}{left_out}", fontsize=11)
        widest = max(map(len, names), default=0)
        legend_below(figure, columns=min(len(names), 3 if widest > 20 else 6 if across > 1 else 4))
        return figure

    def _scale(self, ax: Any) -> None:
        epochs = np.unique(self.table["epoch"])
        gaps = np.diff(epochs[epochs > 0])
        ax.set_xlabel("epoch")
        ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        if len(gaps) and gaps.max() > 3 * gaps.min():  # later epochs are sparser
            ax.set_xscale("symlog", linthresh=1)
            shown = [epoch for epoch in (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if epoch <= epochs.max()]
            ax.set_xticks([epoch for epoch in shown if epoch >= epochs.min()], minor=False)
            ax.xaxis.set_major_formatter("{x:g}")
            ax.set_xticks([], minor=True)
        if self.unit == "accuracy":
            ax.set_ylim(-0.03, 1.03)


def learning_curves(rows: Sequence[Mapping[str, Any]], title: str, slices: pd.DataFrame | None = None) -> Figure:
    """Draw accuracy and loss over the epochs, and from the rows of ``slices.csv`` the final accuracy of each length."""
    table = pd.DataFrame(rows)
    seeds = table["seed"].nunique()
    widths = (3, 2) if slices is None else (3, 2, 2)
    figure, (accuracy, loss, *of_lengths) = subplots(9 * sum(widths) / 5, 3.6, 1, len(widths), width_ratios=widths)
    accuracy_axes(accuracy, table)
    if slices is not None:
        (ax,) = of_lengths
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


def draw_by_setting(means: pd.DataFrame) -> Figure:
    """Draw a table of means over seeds, with columns for settings, then ``seeds``, ``accuracy``, ``low``, ``high``.

    The first setting is on the horizontal axis: numbers at their place, names side by side.
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
    with plain_text():
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


def thinned(rows: pd.DataFrame) -> pd.DataFrame:
    """Keep at most 400 epochs of metric rows, with the first and the last; more only enlarge the SVG."""
    end = rows["epoch"].max()
    return rows[(rows["epoch"] % -(-end // 400) == 0) | rows["epoch"].isin([1, end])]


def forward_filled(rows: pd.DataFrame, column: str, by: str = "seed") -> pd.DataFrame:
    """A column as a table (epochs, seeds). A seed that stopped early keeps its last value until the longest ends."""
    return rows.pivot_table(column, "epoch", by, dropna=False).ffill()


def over_epochs(ax: Axes, rows: pd.DataFrame, column: str, label: str, color: str, linestyle: str) -> None:
    """Draw a column over the epochs; dashed lines lie above solid ones."""
    order = 2 if linestyle == "-" else 3
    look: Any = {"label": label, "color": color, "linestyle": linestyle, "linewidth": 1.8, "zorder": order}
    look["marker"] = "o" if rows["epoch"].nunique() == 1 else ""
    band(ax, forward_filled(rows, column), **look)


def accuracy_axes(ax: Axes, rows: pd.DataFrame | None = None) -> None:
    """Set up a panel of accuracies over the epochs; with ``rows`` draw those of training and validation."""
    tidy(ax, "y")
    ax.set(xlabel="epoch", ylim=(-0.02, 1.03))
    if rows is not None:
        over_epochs(ax, rows, "train_seq_acc", "training", INK, "--")
        if rows["val_seq_acc"].notna().any():
            over_epochs(ax, rows, "val_seq_acc", "validation", BLUE, "-")
