"""Learning curves of several kinds of run beside each other, with the numbers that a paper gives for them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .curves import accuracy_axes, band
from .style import BLUE, GREY, INK, ORANGE, PAPER, TASKS, canvas, diamond, headline, legend_below, seeds_text

STYLES = {"first": (BLUE, "-"), "second": (ORANGE, "-."), "reference": (INK, "--"), "faint": (GREY, ":")}


@dataclass(frozen=True)
class Line:
    """The median over seeds of one column.

    Attributes:
        rows: metric rows of all seeds; without any, nothing is drawn.
        style: colour and dashes, by a name of `STYLES`.
        published: numbers that are marked: epoch, value, and a word beside it.
    """

    rows: pd.DataFrame
    label: str
    style: str
    column: str = "val_seq_acc"
    published: Sequence[tuple[float, float, str]] = ()


def draw_compared(panels: Mapping[str, tuple[int, Sequence[Line]]]) -> Figure:
    """Draw one panel per task.

    Args:
        panels: by the name or the title of the task, the last epoch of the axis and the lines, one of them with rows.
    """
    figure = canvas(9 if len(panels) > 1 else 5.6, 3.7)
    axes = np.atleast_1d(figure.subplots(1, len(panels), sharey=True)).tolist()
    for ax in axes:
        accuracy_axes(ax)
    axes[0].set_ylabel("sequence accuracy")
    for ax, (task, (last, lines)) in zip(axes, panels.items(), strict=True):
        drawn = [line for line in lines if len(line.rows)]
        for line in drawn:
            _draw(ax, line)
        ax.set_xlim(0, last)
        headline(ax, TASKS.get(task, task), seeds_text(*(line.rows for line in drawn)))
    published = any(line.published for _, lines in panels.values() for line in lines)
    legend_below(figure, *([PAPER] if published else []))
    return figure


def _draw(ax: Axes, line: Line) -> None:
    color, dashes = STYLES[line.style]
    band(ax, line.rows, line.column, line.label, color, dashes)
    for epoch, value, word in line.published:
        diamond(ax, epoch, value, color)
        if word:
            place = {"xytext": (-8, 6), "textcoords": "offset points", "ha": "right"}
            ax.annotate(word, (epoch, value), fontsize=8.5, color=GREY, **place)  # type: ignore[arg-type]
