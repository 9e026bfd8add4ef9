"""The figure of ``probe=interchange``: the effect of exchanging the embedding at each layer and position."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .style import INK, TASKS, canvas, headline, seeds_text

FAMILIES = {
    "carry_only": "Only the carry into t differs",
    "xor_only": "Only a_t xor b_t differs",
    "both": "Both differ: the same bit t",
    "equal_sum": "Other operands, the same sum",
    "column_carry_only": "Only the carry into column t differs",
    "column_sum_only": "Only the sum of column t differs",
    "equal_products": "Other operands, the same product",
    "random": "Any two pairs",
}
COLOURS = {"enc": "Blues", "dec": "Greens"}
MOST = 5  # lines of panels


def draw_transmissions(rows: pd.DataFrame, task: str, bits: int) -> Figure:
    """The share of answers that change when one position's embedding comes from another run.

    Args:
        rows: those of ``probe=interchange``. A cell is the mean over seeds and the bits of the answer that were read.
        task: its name.
        bits: of its operands.
    """
    families = [name for name in FAMILIES if name in set(rows["family"])][:MOST]
    stacks = [stack for stack in COLOURS if rows["site"].str.startswith(f"{stack}.").any()]
    positions = [2 * bits + 1 if stack == "enc" else rows["answer"].nunique() for stack in stacks]
    height = max(rows.loc[rows["site"].str.startswith(stack), "site"].nunique() for stack in stacks)
    figure = canvas(1.5 + 0.38 * max(sum(positions), 18), 0.7 + (0.75 + 0.2 * height) * len(families))
    grid = figure.subplots(len(families), len(stacks), squeeze=False, width_ratios=positions)
    for line, family in zip(grid, families, strict=True):
        for ax, stack in zip(line, stacks, strict=True):
            last = family == families[-1]
            _cells(ax, rows[(rows["family"] == family) & rows["site"].str.startswith(f"{stack}.")], stack, bits, last)
        headline(line[0], FAMILIES[family])
    title = f"{TASKS.get(task, task)}: percent of answers that change with one position's embedding of another run"
    figure.suptitle(f"{title} ({seeds_text(rows)})", fontsize=11, fontweight="bold", color=INK)
    return figure


def _cells(ax: Axes, rows: pd.DataFrame, stack: str, bits: int, last: bool) -> None:
    changed = rows.assign(changed=rows["flipped"] * rows["n"])
    sums = changed.groupby(["site", "position"], sort=False)[["changed", "n"]].sum()
    table = (sums["changed"] / sums["n"]).unstack("position").sort_index(axis=1)
    shares = table.to_numpy()
    ax.imshow(shares, cmap=COLOURS[stack], vmin=0, vmax=1, aspect="auto", origin="lower")
    for (i, j), share in np.ndenumerate(shares):
        if np.isfinite(share):
            color = "white" if share > 0.6 else INK
            ax.text(j, i, f"{100 * share:.0f}", ha="center", va="center", fontsize=6.5, color=color).set_in_layout(
                False
            )
    names = [str(t) for t in table.columns]
    if stack == "enc":
        names = [*(f"a{i}" for i in range(bits)), "op", *(f"b{i}" for i in range(bits))]
        names = [names[position] for position in table.columns]
    ax.set_xticks(range(len(names)), names, fontsize=8)
    ax.set_yticks(range(len(table)), table.index, fontsize=7)
    if last:
        ax.set_xlabel("token of the prompt" if stack == "enc" else "position t of the answer", fontsize=9)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
