"""The figure of ``probe=mechanism``: three questions by bit, for networks and algorithms, and the effect of moves."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .style import BLUE, GREY, INK, ORANGE, canvas, headline, tidy

QUESTIONS = {
    "flip_propagate": "Previous bit inverted:\nanswers that change",
    "carry": "Carry inverted:\nanswers that follow",
    "value": "Sum moved by 1 .. 64:\nanswers that follow",
}
LINES = {"carry": (ORANGE, "s", "--", "carry inverted"), "value": (BLUE, "o", "-", "sum moved")}


def draw_mechanism(rows: pd.DataFrame, verdicts: dict[int, str], expected: pd.DataFrame, title: str) -> Figure:
    """Draw a table of shares for each question, and below it the effect of moves after each stage.

    Args:
        rows: of the probe.
        verdicts: by seed.
        expected: ``algorithm, component, position, value``; may be empty.
        title: of the figure.
    """
    signature = rows[rows["stage"] == ""]
    algorithms = list(expected["algorithm"].unique()) if len(expected) else []
    height = 0.32 * (len(verdicts) + len(algorithms)) + 4.6
    figure = canvas(11.5, height)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold", color=INK)
    above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=[height - 3.3, 2.6])[:, 0]
    bits = range(1, int(rows["position"].max()) + 1) if len(rows) else range(1, 2)
    for ax, (component, question) in zip(above.subplots(1, len(QUESTIONS)), QUESTIONS.items(), strict=True):
        lines = {f"seed {seed}: {name}": _values(signature, component, bits, seed=seed) for seed, name in
                 verdicts.items()}  # fmt: skip
        lines |= {f"{name} would": _values(expected, component, bits, algorithm=name) for name in algorithms}
        _table(ax, lines, list(bits), len(verdicts), names=component == "flip_propagate")
        headline(ax, question)
    _stages(below.subplots(), rows[rows["stage"] != ""])
    return figure


def _values(rows: pd.DataFrame, component: str, bits: range, **key: object) -> list[float]:
    for column, value in key.items():
        rows = rows[rows[column] == value]
    found = rows[rows["component"] == component].set_index("position")["value"]
    return [float(found.get(t, np.nan)) for t in bits]


def _table(ax: Axes, lines: dict[str, list[float]], bits: list[int], own: int, names: bool) -> None:
    """Draw numbers in shaded cells, darker for larger ones, and a rule between networks and algorithms."""
    numbers = np.array(list(lines.values()))
    ax.imshow(numbers, cmap="Blues", vmin=0, vmax=1.3, aspect="auto")
    for (y, x), value in np.ndenumerate(numbers):
        text = "" if np.isnan(value) else f"{abs(value) if round(value, 1) == 0 else value:.1f}"
        ax.text(x, y, text, ha="center", va="center", fontsize=8, color="white" if value > 0.75 else INK)
    ax.axhline(own - 0.5, color=INK, linewidth=1.2)
    ax.set_xticks(range(len(bits)), [str(t) for t in bits])
    ax.set_yticks(range(len(lines)), list(lines) if names else [], fontsize=8.5)
    ax.set_xlabel("bit of the answer", fontsize=9)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def _stages(ax: Axes, rows: pd.DataFrame) -> None:
    """Draw informedness after each stage: the mean over the measured bits, one line per seed."""
    tidy(ax)
    stages = list(dict.fromkeys(rows["stage"]))
    last = rows["position"].max() if len(rows) else 0
    told = {"carry": range(2, int(last)), "value": range(int(last) - 1)}
    for component, (color, marker, dashes, label) in LINES.items():
        of = rows[(rows["component"] == component) & rows["position"].isin(told[component])]
        for i, (_, seed) in enumerate(of.groupby("seed")):
            means = seed.groupby("stage")["value"].mean().reindex(stages)
            ax.plot(range(len(stages)), means, color=color, marker=marker, linestyle=dashes, markersize=4,
                    linewidth=1.4, label=label if i == 0 else None)  # fmt: skip
    ax.set_xticks(range(len(stages)), stages, rotation=90, fontsize=8)
    ax.set_ylim(-0.1, 1.05)
    ax.axhline(0, color=GREY, linewidth=0.8)
    headline(ax, "Where a move is followed", "1: every answer follows, 0: none does, or at random")
    if len(rows):
        ax.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
