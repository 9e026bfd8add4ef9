"""The figure of ``probe=discontinuity``: the table of the paper's appendix A, for one task or several."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from .style import INK, bounded, canvas, headline, write_in_cell

COLUMNS: Mapping[str, type] = dict.fromkeys(("input_bits", "output_bits", "percent"), float)
WHITE_ABOVE = 30  # percent: larger numbers are written in white, on darker cells


def draw_discontinuities(tasks: Mapping[str, pd.DataFrame], published: str = "", digits: str = "bits") -> Figure:
    """Draw a heat map of percentages by row for each task; a cell without cases stays empty.

    Rows by title; in the panel ``published`` the one cell that the paper's text prints is framed.
    """
    tables, notes = {}, {}
    for title, rows in tasks.items():
        cells, more = bounded(rows, ("input_bits",))
        cells, others = bounded(cells, ("output_bits",))
        tables[title] = cells.pivot_table("percent", "input_bits", "output_bits", dropna=False).to_numpy()
        notes[title] = (more or others).removeprefix(", ")
    size = 8 if len(tables) == 1 else 6.5
    widths = [table.shape[1] for table in tables.values()]
    height = max(len(table) for table in tables.values())
    figure = canvas(1.2 + size / 18 * sum(widths), 1.3 + size / 25 * height)
    axes = np.atleast_1d(figure.subplots(1, len(tables), width_ratios=widths)).tolist()
    for ax, (title, table) in zip(axes, tables.items(), strict=True):
        ax.imshow(table, cmap="Blues", vmin=0, vmax=WHITE_ABOVE / 0.6, aspect="auto")
        for (i, j), percent in np.ndenumerate(table):
            if percent:
                tiny = "<0.1" if size > 7 else "·"
                text = "100" if percent == 100 else f"{percent:.1f}" if percent >= 0.05 else tiny
                write_in_cell(ax, i, j, text, percent > WHITE_ABOVE, size)
        ax.set(xlabel=f"changed {digits} of the answer", xticks=range(table.shape[1]), yticks=range(table.shape[0]))
        ax.tick_params(length=0, labelsize=size + 1)
        ax.spines[:].set_visible(False)
        headline(ax, title, notes[title])
        if title == published:
            ax.add_patch(Rectangle((2.5, 1.5), 1, 1, fill=False, edgecolor=INK, linewidth=1.4))
    axes[0].set_ylabel(f"{'flipped' if digits == 'bits' else 'changed'} {digits} of the operands")
    return figure
