"""The style of figures, readable in black and white, and their files in PNG and SVG.

Lines differ in dashes and points in shape, so no reader depends on colour.
"""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, PercentFormatter
from PIL import Image

from ..errors import counted

BLUE, ORANGE, GREEN, GREY = "#1f5fa8", "#d9730d", "#2e7d4f", "#6b7280"
INK, LIGHT = "#1f2937", "#9ca3af"
TASKS = {"add": "Addition", "mul": "Multiplication"}
DIAMOND_STYLE: dict[str, Any] = {"marker": "D", "linestyle": "", "markerfacecolor": "white", "markersize": 5.5}
DIAMOND_STYLE |= {"clip_on": False, "zorder": 5}
PAPER_HANDLE = Line2D([], [], markeredgecolor=INK, label="paper", **DIAMOND_STYLE)


@contextlib.contextmanager
def own_style() -> Iterator[None]:
    """Within the block matplotlib has its defaults, even if a ``matplotlibrc`` sets, for example, ``text.usetex``.

    No text is parsed as mathematics, since names from files may contain a ``$``.
    """
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams["text.parse_math"] = False
        yield


def format_axes(ax: Axes, percent: Literal["", "x", "y"] = "") -> None:
    """Remove the box and draw a faint grid. ``percent`` names an axis of shares, which is labelled in percent."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(LIGHT)
    ax.tick_params(color=LIGHT)
    ax.grid(alpha=0.25, linewidth=0.6)
    if percent:
        getattr(ax, f"{percent}axis").set_major_formatter(PercentFormatter(1.0, decimals=0))


def format_log_axis(axis: Axis) -> None:
    """Label a logarithmic axis with plain numbers, since `own_style` would show mathematics as its source."""

    def between_decades(x: float, _position: object) -> str:
        low, high = axis.get_view_interval()
        return f"{x:g}" if high < 10 * low else ""

    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(FuncFormatter(between_decades))


def draw_band(ax: Axes, by_seed: pd.DataFrame, statistic: str, **style: Any) -> None:
    """Draw a table (x, seeds): a ``statistic`` over seeds, such as the median, as a line, and the range as a band."""
    line = by_seed.agg(statistic, axis=1)
    if by_seed.shape[1] > 1:
        low, high = by_seed.min(axis=1), by_seed.max(axis=1)
        ax.fill_between(line.index, low, high, color=style["color"], alpha=0.18, linewidth=0)
    ax.plot(line.index, line, **style)


def subplots(width: float, height: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Figure, Any]:
    """A figure and its axes, single or in an array, as from `matplotlib.pyplot.subplots`."""
    figure = Figure(figsize=(width, height), dpi=130, layout=ConstrainedLayoutEngine(w_pad=0.09, h_pad=0.09))
    return figure, figure.subplots(rows, columns, **options)


def set_panel_title(ax: Axes, title: str, note: str = "", pad: float = 6) -> None:
    """Set the title on the left and a grey note, such as the number of seeds, on the right."""
    ax.set_title(title, loc="left", fontsize=10.5, fontweight="bold", color=INK, pad=pad)
    if note:
        ax.set_title(note, loc="right", fontsize=9, color=GREY, pad=pad)


def format_num_seeds(rows: pd.DataFrame) -> str:
    """The number of seeds, ``5 seeds``."""
    return counted(rows["seed"].nunique(), "seed")


def set_figure_title(figure: Figure, task: str, text: str, rows: pd.DataFrame) -> None:
    """Set the title of a figure: the task, a text, and the number of seeds. Wide titles are wrapped."""
    seeds = f" ({format_num_seeds(rows)})".replace(" ", "\N{NO-BREAK SPACE}") if "seed" in rows else ""
    title = f"{TASKS.get(task, task)}: {text}{seeds}"
    figure.suptitle(title, fontsize=11, fontweight="bold", color=INK, wrap=True)


def legend_below(figure: Figure, *extra_handles: Line2D, columns: int = 0) -> int:
    """Draw one legend for all axes, with ``columns`` or as many as fit, and return its number of rows."""
    labelled = [ax.get_legend_handles_labels() for ax in figure.axes]
    handles = {label: handle for pair in labelled for handle, label in zip(*pair, strict=True)}
    handles |= {str(handle.get_label()): handle for handle in extra_handles}
    widths = [0.85 + 0.065 * len(label) for label in handles]  # approximate inches of a line and 9-point text
    columns = min(columns or len(handles), len(handles))
    while columns > 1 and sum(map(max, np.array_split(widths, columns))) > figure.get_figwidth():
        columns -= 1
    layout: dict[str, Any] = {"loc": "outside lower center", "ncols": columns}
    if handles:
        figure.legend(handles=[*handles.values()], frameon=False, fontsize=9, handlelength=2.8, **layout)
    return int(np.ceil(len(handles) / max(columns, 1)))


def heat_map(
    ax: Axes, table: pd.DataFrame, norm: Normalize, cmap: str, texts: pd.DataFrame | None, size: float
) -> None:
    """Draw a labelled table as coloured cells, with ``texts`` in cells that have a number; NaN stays empty."""
    values = table.to_numpy(dtype=float)
    ax.imshow(np.ma.masked_invalid(values), aspect="auto", cmap=cmap, norm=norm, interpolation="nearest")
    ax.set_xticks(range(len(table.columns)), list(map(str, table.columns)))
    ax.set_yticks(range(len(table)), list(map(str, table.index)))
    ax.tick_params(length=0, labelsize=8, colors=GREY)
    ax.spines[:].set_visible(False)
    for (i, j), value in np.ndenumerate(values):
        if texts is not None and np.isfinite(value):
            on_dark = abs(norm(value) - norm(0)) / (1 - norm(0)) > 0.6
            text = ax.text(j, i, texts.iloc[i, j], ha="center", va="center", fontsize=size)
            text.set(color="white" if on_dark else "black", in_layout=False)  # saves most of the layout's time


@own_style()
def save_png(figure: Figure, path: Path) -> None:
    """Write a figure as PNG in 256 colours, which takes a third of the bytes and looks the same."""
    file = io.BytesIO()
    figure.savefig(file, format="png")
    Image.open(file).convert("RGB").quantize(dither=Image.Dither.NONE).save(path, "PNG", optimize=True)


def to_svg(figure: Figure, name: str) -> str:
    """A figure as SVG. Equal figures give equal text; the ids inside depend on the name."""
    file = io.StringIO()
    with own_style(), mpl.rc_context({"svg.hashsalt": name}):
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()
