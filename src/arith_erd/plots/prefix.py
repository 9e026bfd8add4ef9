"""The figure of ``probe=prefix``: the effect of wrong prefixes on the next token."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from .style import BLUE, GREY, INK, ORANGE, canvas, headline, question, tidy

INTERVENTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "flip": ("last token inverted", {"color": BLUE, "marker": "o", "linestyle": "-"}),
    "mean_ablation": ("last token: mean of 0 and 1", {"color": ORANGE, "marker": "s", "linestyle": "--"}),
    "start": ("last token <start>", {"color": GREY, "marker": "^", "linestyle": ":"}),
    "far": ("an earlier token inverted", {"color": INK, "marker": "x", "linestyle": "-."}),
    "random": ("all tokens random", {"color": "#0f766e", "marker": "v", "linestyle": (0, (5, 1, 1, 1, 1, 1))}),
}
HYPOTHESES = {
    "prompt_only": ("the prompt alone decides", {**INTERVENTIONS["flip"][1]}),
    "local_carry": ("a carry read off the last token", {**INTERVENTIONS["mean_ablation"][1]}),
    "remainder": ("value less prefix, rounded", {**INTERVENTIONS["far"][1]}),
    "graded_carry": ("remainder of the lower bits, as a carry", {**INTERVENTIONS["start"][1]}),
    "local_remainder": ("remainder of bits up to t, rounded", {**INTERVENTIONS["random"][1]}),
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
    strata = [name for name in strata if name != "all"] or strata
    figure = canvas(10, 8.4) if len(strata) == 2 else canvas(14, 4.6)
    panels = list(figure.subplots(2, 2).flat if len(strata) == 2 else figure.subplots(1, 3).flat)
    whole = rows[rows["d"].isna()]
    for ax, stratum in zip(panels, strata, strict=False):
        _by_position(ax, whole[whole["stratum"] == stratum], "intervention", "changed", INTERVENTIONS)
        headline(ax, *STRATA[stratum])
        ax.set(ylabel="answers at t that change")
        _legend(ax)
    by_distance, agreement = panels[len(strata) :]
    _by_distance(by_distance, rows[rows["d"].notna()], strata)
    _agreement(agreement, whole[(whole["intervention"] == "random") & (whole["stratum"] == "all")])
    question(figure, task, "is bit t of the answer computed from the answer's bits before it?", rows)
    return figure


def _by_position(ax: Axes, rows: pd.DataFrame, key: str, column: str, styles: dict[str, Any]) -> None:
    for name, (label, style) in styles.items():
        _line(ax, rows[rows[key] == name].groupby("position")[column], label, style)
    ax.set(xlabel="position t of the answer", xticks=sorted(rows["position"].unique()))
    _percent(ax)


def _line(ax: Axes, groups: Any, label: str, style: dict[str, Any]) -> None:
    mean = groups.mean()
    if mean.notna().any():
        ax.fill_between(mean.index, groups.min(), groups.max(), color=style["color"], alpha=0.15, linewidth=0)
        ax.plot(mean.index, mean, label=label, markersize=4.5, linewidth=1.5, **style)


def _by_distance(ax: Axes, rows: pd.DataFrame, strata: list[str]) -> None:
    bins = list(BINS)
    rows = rows.assign(times=rows["changed"] * rows["n"], at=rows["d"].map(bins.index))
    for stratum, (_, style) in zip(strata, (HYPOTHESES["prompt_only"], HYPOTHESES["local_carry"]), strict=False):
        cells = rows[rows["stratum"] == stratum].groupby(["seed", "at"])[["times", "n"]].sum()
        label = ", ".join(filter(None, (stratum, STRATA[stratum][1])))
        _line(ax, (cells["times"] / cells["n"]).groupby("at"), label, style)
    ax.plot([0, 1, 2], [0, 0, 0], [4, 5], [1, 1], color=GREY, linewidth=6, alpha=0.3, solid_capstyle="round", zorder=0)
    ax.plot([], [], color=GREY, linewidth=6, alpha=0.3, label="a rounded remainder; at 1/2 it ties")
    ax.set(xticks=range(len(bins)), xlabel="|right prefix - given prefix| / 2^t", ylabel="answers at t that change")
    ax.set_xticklabels(BINS.values())
    _percent(ax)
    headline(ax, "All tokens random", "by how wrong they are")
    _legend(ax)


def _agreement(ax: Axes, rows: pd.DataFrame) -> None:
    for name, (label, style) in HYPOTHESES.items():
        _line(ax, rows.groupby("position")[f"{name}_where_differ"], label, style)
    ax.set(xlabel="position t of the answer", xticks=sorted(rows["position"].unique()), ylabel="answers as expected")
    _percent(ax)
    headline(ax, "All tokens random", "where hypotheses differ, without ties")
    _legend(ax)


def _legend(ax: Axes) -> None:
    ax.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2, handlelength=3.2)


def _percent(ax: Axes) -> None:
    tidy(ax)
    ax.set_ylim(-0.04, 1.04)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
