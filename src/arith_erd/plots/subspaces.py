"""The figure of ``probe=subspaces``: subspaces that act as causal variables, beside their controls."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from .style import BLUE, GREY, INK, ORANGE, TASKS, canvas, headline, legend_below, seeds_text, tidy

VARIABLES = {
    "sum": "sum S",
    "partial_sum": "S mod 2^(t+1)",
    "carry": "carry into t",
    "xor": "a_t xor b_t",
    "a_bit": "a_t",
    "b_bit": "b_t",
    "product": "product",
    "partial_product": "product mod 2^(t+1)",
    "column_sum": "sum of column t",
    "column_carry": "carry into column t",
}


def draw_subspaces(rows: pd.DataFrame, task: str) -> Figure:
    """Draw, for each variable, the accuracy of exchanging the chosen subspace and its controls.

    Args:
        rows: those of ``probe=subspaces``; means over seeds.
        task: its name.
    """
    places = list(dict.fromkeys(zip(rows["site"], rows["position"], strict=True)))
    across = min(len(places), 3)
    down = -(-len(places) // across)
    variables = [name for name in VARIABLES if name in set(rows["variable"])]
    figure = canvas(1.6 + 3.6 * max(across, 2), 1.8 + (0.8 + 0.42 * len(variables)) * down)
    panels = figure.subplots(down, across, squeeze=False)
    for ax, (site, position) in zip(panels.flat, places, strict=False):
        here = rows[(rows["site"] == site) & (rows["position"] == position) & (rows["chosen"] == 1)]
        _panel(ax, here, variables)
        headline(ax, site, f"position {position}")
    for ax in panels.flat[len(places) :]:
        ax.set_visible(False)
    legend_below(figure)
    figure.legends[0].set_ncols(3)
    title = f"{TASKS.get(task, task)}: does exchanging a few directions act as exchanging the variable?"
    figure.suptitle(f"{title} ({seeds_text(rows)})", fontsize=11, fontweight="bold", color=INK)
    return figure


def _panel(ax: Axes, rows: pd.DataFrame, variables: list[str]) -> None:
    means = rows.groupby("variable")[[c for c in rows if pd.api.types.is_numeric_dtype(rows[c])]].mean()
    means = means.reindex(variables)
    at = range(len(variables))
    for mean, most, offset, colour, label in (
        ("iia_random", "iia_random_max", -0.14, GREY, "random directions: mean to best"),
        ("iia_flipped", "iia_flipped_max", 0.14, ORANGE, "same variance, other signs: mean to best"),
    ):
        places = [y + offset for y in at]
        ax.barh(places, means[most] - means[mean], left=means[mean], height=0.2, color=colour, alpha=0.5, label=label)
    ax.plot(means["iia_untrained"], at, "x", color=INK, markersize=5, linestyle="", label="untrained network")
    if "iia_decoy" in means:  # only of tasks with a decoy
        ax.plot(
            means["iia_decoy"], at, "+", color=INK, markersize=7, linestyle="", label="network that computes otherwise"
        )
    ax.plot(means["whole"], at, "D", color=INK, markerfacecolor="none", markersize=7, label="whole embedding")
    ax.plot(means["iia"], at, "o", color=BLUE, markersize=7, label="the subspace found")
    for y, (rank, span) in enumerate(zip(means["rank"], means["span"], strict=True)):
        if rank == rank:
            ax.text(1.06, y, f"rank {rank:.3g} of {span:.3g}", va="center", fontsize=8, color=INK)
    ax.axvline(0.5, color=GREY, linewidth=0.8, linestyle=":")
    tidy(ax)
    ax.set_yticks(list(at), [VARIABLES[name] for name in variables])
    ax.set(xlim=(0.25, 1.4), ylim=(len(variables) - 0.5, -0.5), xticks=[0.25, 0.5, 0.75, 1.0])
    ax.set_xlabel("answers as the variable predicts (0.5: nothing exchanged)", fontsize=9)
    ax.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ax.grid(visible=False, axis="y")
