"""The paper's learning curves, redrawn from our runs: figures 1, 2, 3, C.6, E.7 and E.8. Diamonds are its numbers."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..plots.curves import accuracy_axes, band, thinned
from ..plots.style import BLUE, GREY, INK, ORANGE, PAPER, TASKS, canvas, diamond, headline, legend_below, seeds_text
from .claims import Results
from .collect import Collection, matches

SPLITS = {"random": ("random split", INK, "--"), "vs_t": ("VS$_t$", BLUE, "-"), "vs_v": ("VS$_v$", ORANGE, "-.")}
Lines = Mapping[str, tuple[dict[str, str], str, str, str, str]]
"""By claim or name: runs, column, label, colour, dashes."""


def learning(found: Collection, results: Results) -> Figure | None:
    def lines(task: str) -> Lines:
        return {
            "train": ({"task": task}, "train_seq_acc", "training", INK, "--"),
            f"fig1-{task}": ({"task": task}, "val_seq_acc", "validation", BLUE, "-"),
        }

    return _compare(found, results, {"add": (50, lines("add")), "mul": (250, lines("mul"))})


def random_output(found: Collection, results: Results) -> Figure | None:
    rows = curves(found, 4000, task="random_output")
    if rows.empty:
        return None
    figure, (ax,) = _accuracy_axes(1)
    band(ax, rows, "train_seq_acc", "training", INK, "--")
    band(ax, rows, "val_seq_acc", "validation", BLUE, "-")
    last = max(1000, int(rows["epoch"].max()))
    for name, epoch, words in (("fig2-train", 1000, "as printed"), ("fig2-train-4000", 4000, "as corrected")):
        if epoch <= last:
            value = results[name].claim.value
            diamond(ax, epoch, value, INK)
            place = {"xytext": (-8, 6), "textcoords": "offset points", "ha": "right"}
            ax.annotate(words, (epoch, value), fontsize=8.5, color=GREY, **place)  # type: ignore[arg-type]
    ax.set_xlim(0, last)
    headline(ax, "Random answers", seeds_text(rows))
    legend_below(figure, PAPER)
    return figure


def splits(found: Collection, results: Results) -> Figure | None:
    return _held_out(found, results, "transformer", "fig3-{task}-{split}", "fig1-{task}")


def nanogpt_splits(found: Collection, results: Results) -> Figure | None:
    return _held_out(found, results, "nanogpt", "figE8-{task}-{split}", "figE8-{task}-random")


def _held_out(found: Collection, results: Results, model: str, claims: str, random: str) -> Figure | None:
    def lines(task: str) -> Lines:
        return {
            (random if split == "random" else claims).format(task=task, split=split): (
                {"task": task, "split": split, "model": model},
                "val_seq_acc",
                *style,
            )
            for split, style in SPLITS.items()
        }

    panels = {"add": (50, lines("add")), "mul": (250, lines("mul"))}
    return _compare(found, results, panels, besides=SPLITS["random"][0])


def bit_order(found: Collection, results: Results) -> Figure | None:
    def lines(task: str) -> Lines:
        plain = {"prompt_order": "plain"}
        both = {"prompt_order": "plain", "completion_order": "plain"}
        return {
            "reverse": ({"task": task}, "val_seq_acc", "reverse", BLUE, "-"),
            "plain": ({"task": task, **both}, "val_seq_acc", "plain", ORANGE, "-."),
            "prompt": ({"task": task, **plain}, "val_seq_acc", "only the prompt plain", GREY, ":"),
        }

    return _compare(found, results, {"add": (150, lines("add")), "mul": (1500, lines("mul"))}, besides="reverse")


def nanogpt(found: Collection, results: Results) -> Figure | None:
    def lines(task: str) -> Lines:
        nanogpt = {"task": task, "model": "nanogpt"}
        return {
            "transformer": ({"task": task}, "val_seq_acc", "Transformer, validation", GREY, ":"),
            "train": (nanogpt, "train_seq_acc", "nanoGPT, training", INK, "--"),
            "val": (nanogpt, "val_seq_acc", "nanoGPT, validation", BLUE, "-"),
        }

    panels = {"add": (50, lines("add")), "mul": (250, lines("mul"))}
    return _compare(found, results, panels, besides="Transformer, validation")


def _compare(
    found: Collection, results: Results, panels: Mapping[str, tuple[int, Lines]], besides: str = ""
) -> Figure | None:
    """Draw one panel per task and one line per entry; a diamond at its end marks the paper's number for its claim.

    The line labelled ``besides`` is for comparison: if it is the only one with data, there is no figure.
    """
    drawn = {
        task: {name: curves(found, last, **line[0]) for name, line in lines.items()}
        for task, (last, lines) in panels.items()
    }
    own = [drawn[task][name] for task, (_, lines) in panels.items() for name in lines if lines[name][2] != besides]
    if all(rows.empty for rows in own):
        return None
    figure, axes = _accuracy_axes(len(panels))
    for ax, (task, (last, lines)) in zip(axes, panels.items(), strict=True):
        most = pd.DataFrame({"seed": []})
        for name, (_, column, label, color, dashes) in lines.items():
            rows = drawn[task][name]
            if rows.empty:
                continue
            band(ax, rows, column, label, color, dashes)
            most = max(most, rows, key=lambda rows: rows["seed"].nunique())
            if name in results:
                diamond(ax, last, results[name].claim.value, color)
        ax.set_xlim(0, last)
        headline(ax, TASKS.get(task, task), seeds_text(most) if len(most) else "")
        if most.empty:
            _empty(ax)
    published = any(name in results for _, lines in panels.values() for name in lines)
    legend_below(figure, *([PAPER] if published else []))
    return figure


def curves(found: Collection, last: int, **runs: str) -> pd.DataFrame:
    """Metric rows up to an epoch, of the finished replicas that trained that long, or else of the longest ones.

    Runs that depart from the paper's settings are left out.
    """
    replicas = found.replicas[matches(found.replicas, runs) & found.replicas["finished"]]
    longest = replicas["epochs"].clip(upper=last)
    replicas = replicas[longest == longest.max()].sort_values("epochs", kind="stable")
    replicas = replicas.drop_duplicates(["trajectory", "seed"])
    rows = found.metrics[found.metrics["replica"].isin(replicas.index) & (found.metrics["epoch"] <= last)]
    return thinned(rows) if rows["epoch"].nunique() > 1 else rows.iloc[:0]  # one epoch is no curve


def _accuracy_axes(number: int) -> tuple[Figure, list[Axes]]:
    figure = canvas(9 if number > 1 else 5.6, 3.7)
    axes = np.atleast_1d(figure.subplots(1, number, sharey=True)).tolist()
    for ax in axes:
        accuracy_axes(ax)
    axes[0].set_ylabel("sequence accuracy")
    return figure, axes


def _empty(ax: Axes) -> None:
    ax.text(0.5, 0.5, "not run", transform=ax.transAxes, ha="center", va="center", color=GREY)
