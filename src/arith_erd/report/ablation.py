"""The paper's table 3 as a figure: epochs to 95% without one component, ours beside the paper's."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from ..plots.style import BLUE, GREY, INK, PAPER, TASKS, canvas, diamond, headline, legend_below, tidy
from .claims import Result, Results
from .collect import Collection

NEVER = 1080  # where a seed that never gets to 95% is drawn
ABLATIONS = {
    "none": "full model",
    "squeezed_encoder": "no encoder layers",
    "one_head": "one head",
    "d_model_32": "32 channels",
    "no_positional_encoding": "no positions",
    "no_attention": "no attention",
    "no_feed_forward": "no feed-forward",
}


def ablation_table(found: Collection, results: Results) -> Figure | None:
    cells = {(task, name): results[f"table3-{task}-{name}"] for task in TASKS for name in ABLATIONS}
    if not any(result.n for result in cells.values()):
        return None
    figure = canvas(9, 3.6)
    axes = figure.subplots(1, 2, sharey=True)
    for ax, (task, title) in zip(axes, TASKS.items(), strict=True):
        for y, name in enumerate(ABLATIONS):
            _row(ax, y, cells[task, name])
        seeds = max(cells[task, name].n for name in ABLATIONS)
        headline(ax, title, f"up to {seeds} seed{'s' if seeds != 1 else ''}" if seeds else "not run")
        tidy(ax)
        ax.grid(visible=False, axis="y")
        ax.set(xscale="log", xlim=(15, 1900), xlabel="epochs to 95% of the validation sequences")
        ax.xaxis.set_major_locator(FixedLocator([20, 50, 100, 200, 500, 1000]))
        ax.xaxis.set_major_formatter("{x:g}")
        ax.xaxis.set_minor_locator(NullLocator())
        ax.axvline(1000, color=GREY, linewidth=0.6, linestyle=":")
    axes[0].set_yticks(range(len(ABLATIONS)), list(ABLATIONS.values()))
    axes[0].invert_yaxis()
    axes[0].tick_params(axis="y", length=0)
    legend_below(
        figure,
        PAPER,
        Line2D([], [], color=BLUE, marker="o", markersize=5.5, label="ours: median and range"),
        Line2D([], [], color=BLUE, marker="|", linestyle="", alpha=0.6, markersize=8, label="one seed"),
        Line2D([], [], color=INK, marker=">", linestyle="", markersize=5, label="never (accuracy then)"),
    )
    return figure


def _row(ax: Axes, y: float, result: Result) -> None:
    """Draw the paper's number above the line of a row, and ours below it."""
    claim, estimate = result.claim, result.estimate
    above, below = y - 0.17, y + 0.17
    if claim.unit != "epochs":  # the paper never got to 95%
        ax.plot([NEVER], [above], marker=">", color=INK, markerfacecolor="white", markersize=5)
        ax.text(1180, above, f"{claim.value:.1%}", va="center", fontsize=8.5, color=INK)
        if estimate is not None:
            ax.plot([NEVER], [below], marker=">", color=BLUE, markersize=5)
            ax.text(1180, below, f"{estimate.low:.1%}", va="center", fontsize=8.5, color=BLUE)
        return
    diamond(ax, claim.value, above, INK)
    reached = result.values[result.values["low"] == result.values["high"]]["low"]
    ax.plot(reached, [below] * len(reached), "|", color=BLUE, markersize=8, alpha=0.5)
    never = result.values[result.values["low"] != result.values["high"]]["low"]
    ax.plot(never, [below] * len(never), ">", color=BLUE, markersize=4.5, alpha=0.7)
    if estimate is not None and estimate.interval is not None:
        low, high = estimate.interval
        ax.plot([low, min(high, NEVER)], [below, below], color=BLUE, linewidth=1.8, solid_capstyle="butt")
    if estimate is not None and estimate.value is not None:
        ax.plot([estimate.value], [below], "o", color=BLUE, markersize=5.5)
