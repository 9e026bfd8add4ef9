"""The course of a probe over the epochs of training: one measure, with one line per site or other key."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from .sheet import INTEGER, NUMBER, TEXT, Sheet, tabulate
from .style import INK, band, grid, headline, legend_below, seeds_text, tidy

MAX_SEEDS = 20
DASHES = ("-", "--", "-.", ":")


@dataclass(frozen=True)
class EpochCurves:
    """The values for a figure over epochs: from one epoch, or from all with a column ``epoch``."""

    table: pd.DataFrame
    """Columns ``seed``, ``panel``, ``line`` and ``value``."""
    label: str
    """Label of the vertical axis."""
    unit: str = NUMBER  # of the value, as in `Sheet`
    by_seed: bool = False
    """Whether the figure has a panel for each seed: for what happens at another epoch in each of them."""

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
        """One row per epoch, one column per line: means over the seeds, with intervals if there are three or more."""
        across = ("panel", "line") if self.table["panel"].nunique() > 1 else ("line",)
        columns = {"epoch": INTEGER, **dict.fromkeys(across, TEXT), "value": self.unit}
        return tabulate(self.table, Sheet("", columns, across=across))

    def draw(self, title: str, reached: Mapping[int, int | None] | None = None) -> Figure:
        """Draw one panel for each value of ``panel``: the median over seeds as lines, their range as bands.

        ``reached`` marks the epoch at which each seed reached 95%, None if it did not.
        """
        panels = [(str(panel), rows) for panel, rows in self.table.groupby("panel", sort=False)]
        if self.by_seed:
            shown = self.table["seed"].unique()[:MAX_SEEDS]
            panels = [(f"seed {seed}", self.table[self.table["seed"] == seed]) for seed in shown]
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
        seeds = self.table["seed"].nunique()
        left_out = f", {MAX_SEEDS} of them drawn" if self.by_seed and seeds > MAX_SEEDS else ""
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
