"""What probes found, drawn into a panel, the same by `probe.py` and in the report."""

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba

from .style import BLUE, ORANGE, tidy

YELLOW = "#ffe680"
CELL_COLOURS = {"enc": "Blues", "dec": "Greens"}
COMPARED = [("in", "token"), ("in", "value"), ("out", "token"), ("out", "value")]
WHITE_ABOVE = 30  # percent: darker cells are written on in white


def correlation_table(ax: Axes, rows: pd.DataFrame) -> None:
    """The mean over seeds for each site and comparison; above and below, in yellow, token with value itself.

    ``rows`` are those of ``probe=distance_correlation``, of one method.
    """
    means = rows.groupby(["stack", "layer", "level", "space"])["correlation"].mean().to_dict()
    sites = sorted({key[:2] for key in means if key[1]}, key=lambda site: (site[0] != "enc", site[1]))
    lines = [("input", 0), *sites, ("output", 0)]
    image = np.ones((len(lines), len(COMPARED), 4))  # RGBA
    for i, (stack, layer) in enumerate(lines):
        for j, column in enumerate(COMPARED):
            mean = means.get((stack, layer, *column))
            if mean is None:
                continue
            of_site = stack in CELL_COLOURS
            image[i, j] = colormaps[CELL_COLOURS[stack]](0.85 * mean) if of_site else to_rgba(YELLOW)
            _write(ax, i, j, f"{mean:.2f}" if np.isfinite(mean) else "-", of_site and mean > 0.7, 8.5)
    ax.imshow(image, aspect="auto")
    names = {"in": "input", "out": "output"}
    ax.set_xticks(range(len(COMPARED)), [f"{names[level]}\n{space}" for level, space in COMPARED])
    ax.set_yticks(range(len(lines)), [f"{stack} {layer}" if layer else f"{stack} token" for stack, layer in lines])
    ax.xaxis.tick_top()
    ax.tick_params(length=0, labelsize=8.5)
    ax.spines[:].set_visible(False)
    ax.set_xticks(np.arange(0.5, len(COMPARED) - 1), minor=True)
    ax.set_yticks(np.arange(0.5, len(lines) - 1), minor=True)
    ax.grid(which="minor", color="white", linewidth=1.5)
    ax.tick_params(which="minor", length=0)


def correlation_curves(ax: Axes, rows: pd.DataFrame, besides: pd.DataFrame | None = None) -> None:
    """Output distances against the decoder's, over its layers: the mean over seeds, as in the table, and their range.

    ``besides`` are rows of other weights, drawn as thin crosses.
    """
    for space, colour, style in (("token", BLUE, "o-"), ("value", ORANGE, "s--")):
        by_layer = _of_decoder(rows, space)
        mean = by_layer.mean()
        if rows["seed"].nunique() > 1:
            ax.fill_between(mean.index, by_layer.min(), by_layer.max(), color=colour, alpha=0.18, linewidth=0)
        ax.plot(mean.index, mean, style, color=colour, label=f"output {space} distances", linewidth=1.8)
        if besides is not None and len(besides):
            other = _of_decoder(besides, space).mean()
            ax.plot(other.index, other, "x:", color=colour, linewidth=1, markersize=5)
    tidy(ax)
    shown = rows[(rows["stack"] == "dec") & (rows["level"] == "out")]
    layers = sorted(shown["layer"].unique())
    ax.set(xlabel="decoder layer", ylabel="correlation with embedding distances", xticks=layers)
    ax.set(xlim=(layers[0] - 0.25, layers[-1] + 0.25), ylim=(min(0.0, shown["correlation"].min() - 0.02), 1.03))


def _of_decoder(rows: pd.DataFrame, space: str) -> "pd.api.typing.SeriesGroupBy":
    wanted = (rows["stack"] == "dec") & (rows["level"] == "out") & (rows["space"] == space)
    return rows[wanted].groupby("layer")["correlation"]


def discontinuities(ax: Axes, rows: pd.DataFrame, size: float = 8, tiny: str = "<0.1") -> None:
    """A heat map of percentages by row, of the rows of ``probe=discontinuity``; what never occurs stays empty.

    Args:
        size: of the numbers.
        tiny: stands for what is below 0.05.
    """
    table = rows.pivot(index="input_bits", columns="output_bits", values="percent").to_numpy()
    ax.imshow(table, cmap="Blues", vmin=0, vmax=WHITE_ABOVE / 0.6, aspect="auto")
    for (i, j), percent in np.ndenumerate(table):
        if percent:
            text = "100" if percent == 100 else f"{percent:.1f}" if percent >= 0.05 else tiny
            _write(ax, i, j, text, percent > WHITE_ABOVE, size)
    ax.set(xlabel="changed bits of the answer", xticks=range(table.shape[1]), yticks=range(table.shape[0]))
    ax.tick_params(length=0, labelsize=size + 1)
    ax.spines[:].set_visible(False)


def _write(ax: Axes, i: int, j: int, text: str, on_dark: bool, size: float) -> None:
    """Into a cell. The layout need not ask where it ends, which takes longer than all the rest."""
    color = "white" if on_dark else "black"
    ax.text(j, i, text, ha="center", va="center", fontsize=size, color=color).set_in_layout(False)
