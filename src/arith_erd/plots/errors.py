"""The figure of ``probe=errors``: wrong answers by size, beside chance, and by place."""

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.optimize import brentq
from scipy.stats import binom

from ..bits import Array, from_digits, to_digits
from ..tasks import Task
from .style import BLUE, GREY, INK, ORANGE, canvas, tidy

Shares = npt.NDArray[np.float64]
SAMPLES = 50_000
SUBSETS = {"train": (GREY, "training"), "validation": (ORANGE, "held out"), "all": (BLUE, "all pairs")}


def draw_errors(rows: pd.DataFrame, shares: pd.DataFrame, task: Task, title: str) -> Figure:
    """Errors in value and in tokens beside those of flips at random; below, the shares by token and longest carry.

    On the left each answer keeps its number of wrong bits, at random places. On the right each bit flips alone, with
    the probability at which a wrong answer has the measured mean number of wrong bits.
    """
    figure = canvas(9.6, 7.4)
    figure.suptitle(title, fontsize=11)
    if rows.empty:
        figure.text(0.5, 0.5, "no wrong answers", ha="center", va="center", color=GREY)
        return figure
    lengths = sorted(shares.loc[shares["by"] == "longest carry", "name"].unique(), key=int)
    axes = figure.subplot_mosaic([["value", "digits"], ["token", "carry" if lengths else "token"]])
    bit, verb = task.digits.removesuffix("s"), "flipped" if task.base == 2 else "changed"
    wrong, errors = rows["hamming_error"].to_numpy(), rows["value_error"].to_numpy()
    random = flipped_values(rows["answer"].to_numpy(), wrong.clip(max=task.width), task.width, task.base)
    octaves = (task.base**task.width - 1).bit_length()
    names = ["0", "1", *(f"{2**k}-{2 ** (k + 1) - 1}" for k in range(1, octaves))]
    measured, chance = (_shares(octave(x), len(names)) for x in (errors, random))
    first = 0 if measured[0] else 1  # only a token that is not a digit can be wrong without changing the value
    label = f"as many {bit}s {verb} at random places"
    _compare(axes["value"], names[first:], measured[first:], chance[first:], label)
    axes["value"].set(xlabel="error in value, absolute", ylabel="share of wrong answers")
    axes["value"].set_xticks(axes["value"].get_xticks(), names[first:], rotation=45, ha="right", rotation_mode="anchor")
    counts = [str(k) for k in range(1, task.answer_length + 1)]
    expected = truncated_binomial(task.answer_length, wrong.mean())
    _compare(
        axes["digits"], counts, _shares(wrong - 1, task.answer_length), expected, f"each {bit} {verb} independently"
    )
    axes["digits"].set(xlabel="wrong tokens of the answer (Hamming distance)")
    _wrong(axes["token"], task.answer_names, shares[shares["by"] == "token"])
    axes["token"].set(xlabel="answer token, after the right prefix", ylabel="share that is wrong")
    if lengths:
        _wrong(axes["carry"], lengths, shares[shares["by"] == "longest carry"])
        axes["carry"].set(xlabel="longest run of carries in the sum")
    return figure


def flipped_values(answer: Array, wrong: Array, width: int, base: int = 2) -> Array:
    """Errors in value (M,) when each answer (N,) has its number of wrong digits, 1 .. width, at random places.

    About 50,000, the same for the same input; each answer counts equally often.
    """
    times = max(1, SAMPLES // len(answer))
    digits = np.tile(to_digits(answer, width, base), (times, 1))  # (M, width)
    generator = np.random.default_rng(0)
    order = generator.random(digits.shape).argsort(axis=1)
    changed = (digits + generator.integers(1, base, size=digits.shape)) % base
    is_wrong = order < np.tile(wrong, times)[:, None]
    return from_digits(np.where(is_wrong, changed - digits, 0), base)


def truncated_binomial(width: int, mean: float) -> Shares:
    """Probabilities (width,) of 1 .. width independent flips, given at least one flip and the mean number of flips."""
    count = np.arange(1, width + 1)
    if mean <= 1 or mean >= width:  # the limits, where a digit flips with probability 0 or 1
        return (count == round(mean)).astype(np.float64)
    p = brentq(lambda p: width * p / -np.expm1(width * np.log1p(-p)) - mean, 1e-12, 1 - 1e-12)
    return binom.pmf(count, width, p) / binom.sf(0, width, p)


def octave(values: Array) -> Array:
    """Number of bits of the absolute value: 0 for 0, 1 for +-1, 2 for +-2 and 3, 3 for +-4 .. 7, and so on."""
    return np.frexp(np.abs(values))[1].astype(np.int64)


def _shares(bins: Array, number: int) -> Shares:
    return np.bincount(bins, minlength=number) / len(bins)


def _compare(ax: Axes, names: list[str], measured: Shares, random: Shares, label: str) -> None:
    places = range(len(names))
    ax.bar(places, measured, color=BLUE, alpha=0.85, width=0.7, label="measured")
    ax.plot(places, random, "kD--", markerfacecolor="white", linewidth=0.9, markersize=5.5, label=label)
    _finish(ax, names)


def _wrong(ax: Axes, names: list[str], shares: pd.DataFrame) -> None:
    """Bars of the mean over seeds for each subset, and a dash for each seed."""
    shares = shares.assign(share=shares["wrong"] / shares["examples"])
    subsets, seeds = list(shares["subset"].unique()), shares["seed"].nunique()
    width = 0.8 / len(subsets)
    for i, subset in enumerate(subsets):
        by_seed = shares[shares["subset"] == subset].pivot_table("share", "name", "seed").reindex(names)
        places = np.arange(len(names)) + width * (i + 0.5) - 0.4
        colour, label = SUBSETS[subset]
        ax.bar(places, by_seed.mean(axis=1), width=width, color=colour, alpha=0.85, label=label)
        if by_seed.shape[1] > 1:
            ax.plot(places, by_seed, "_", color=INK, markersize=5)
    for name, stuck in shares[shares["stuck"] != ""].groupby("name", sort=False):
        words = stuck["stuck"].str.removesuffix(" held out").value_counts()  # never learnt, lost
        text = "\n".join(f"{word} ({n} of {seeds})" if seeds > 1 else word for word, n in words.items())
        ax.text(names.index(name), 1.03 * stuck["share"].max(), text, ha="center", va="bottom", fontsize=8, color=INK)
    _finish(ax, names)


def _finish(ax: Axes, names: list[str]) -> None:
    tidy(ax, "y")
    ax.set_xticks(range(len(names)), names)
    ax.grid(visible=False, axis="x")
    ax.legend(frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
