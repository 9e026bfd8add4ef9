"""The figure of ``probe=prefix``: the effect of wrong prefixes on the next token."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from .style import BLUE, GREY, INK, ORANGE, canvas, headline, question, tidy

STYLES: list[dict[str, Any]] = [
    {"color": BLUE, "marker": "o", "linestyle": "-"},
    {"color": ORANGE, "marker": "s", "linestyle": "--"},
    {"color": GREY, "marker": "^", "linestyle": ":"},
    {"color": INK, "marker": "x", "linestyle": "-."},
    {"color": "#0f766e", "marker": "v", "linestyle": (0, (5, 1, 1, 1, 1, 1))},
]
INTERVENTIONS = {
    "flip": "last token inverted",
    "mean_ablation": "last token: mean of 0 and 1",
    "start": "last token <start>",
    "far": "an earlier token inverted",
    "random": "all tokens random",
}
HYPOTHESES = {
    "prompt_only": "the prompt alone decides",
    "local_carry": "a carry read off the last token",
    "remainder": "value less prefix, rounded",
    "graded_carry": "remainder of the lower bits, as a carry",
    "local_remainder": "remainder of bits up to t, rounded",
}
BINS = {"0": "0", "<1/4": "to 1/4", "<1/2": "to 1/2", "1/2": "= 1/2", "<3/4": "to 3/4", "<1": "to 1"}
"""Of the distance between right and given prefix, with labels of the axis."""
STRATA = {
    "all": ("All pairs", ""),
    "propagate": ("Last token decides carry", "bits t-1 differ"),
    "settled": ("Carry settled without it", "bits t-1 equal"),
}


def draw_prefixes(rows: pd.DataFrame, task: str) -> Figure:
    """Changed answers by position, one panel per stratum; by error of the prefix; and the hypotheses' agreement."""
    strata = [name for name in STRATA if name in set(rows["stratum"])]
    strata = strata[1:] or strata  # the other two are all pairs together
    figure = canvas(10, 8.4) if len(strata) == 2 else canvas(14, 4.6)
    *panels, by_distance, agreement = figure.subplots(len(strata), 4 - len(strata)).flat
    whole, parts = rows[rows["d"].isna()], rows[rows["d"].notna()]
    at: dict[str, Any] = {"xlabel": "position t of the answer", "xticks": sorted(whole["position"].unique())}
    for ax, stratum in zip(panels, strata, strict=True):
        here = whole[whole["stratum"] == stratum]
        for (name, label), style in zip(INTERVENTIONS.items(), STYLES, strict=True):
            _line(ax, here[here["intervention"] == name].groupby("position")["changed"], label, style)
        _finish(ax, *STRATA[stratum], ylabel="answers at t that change", **at)
    parts = parts.assign(times=parts["changed"] * parts["n"], at=parts["d"].map(list(BINS).index))
    for stratum, style in zip(strata, STYLES, strict=False):
        cells = parts[parts["stratum"] == stratum].groupby(["seed", "at"])[["times", "n"]].sum()
        label = ", ".join(filter(None, (stratum, STRATA[stratum][1])))
        _line(by_distance, (cells["times"] / cells["n"]).groupby("at"), label, style)
    grey = {"color": GREY, "linewidth": 6, "alpha": 0.3, "solid_capstyle": "round", "zorder": 0}
    by_distance.plot([0, 1, 2], [0, 0, 0], label="a rounded remainder; at 1/2 it ties", **grey)
    by_distance.plot([4, 5], [1, 1], **grey)
    by_distance.set_xticks(range(len(BINS)), BINS.values())
    distance = "|right prefix - given prefix| / 2^t"
    _finish(
        by_distance, "All tokens random", "by how wrong they are", xlabel=distance, ylabel="answers at t that change"
    )
    random = whole[(whole["intervention"] == "random") & (whole["stratum"] == "all")]
    for (name, label), style in zip(HYPOTHESES.items(), STYLES, strict=True):
        _line(agreement, random.groupby("position")[f"{name}_where_differ"], label, style)
    _finish(agreement, "All tokens random", "where hypotheses differ, without ties", ylabel="answers as expected", **at)
    question(figure, task, "is bit t of the answer computed from the answer's bits before it?", rows)
    return figure


def _line(ax: Axes, groups: Any, label: str, style: dict[str, Any]) -> None:
    mean = groups.mean()
    if mean.notna().any():
        ax.fill_between(mean.index, groups.min(), groups.max(), color=style["color"], alpha=0.15, linewidth=0)
        ax.plot(mean.index, mean, label=label, markersize=4.5, linewidth=1.5, **style)


def _finish(ax: Axes, title: str, note: str, **axis: Any) -> None:
    tidy(ax)
    headline(ax, title, note)
    ax.set(ylim=(-0.04, 1.04), **axis)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ax.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2, handlelength=3.2)
