"""Which answers are wrong, in which tokens, and are they near the right ones in value or in bits?"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.optimize import brentq
from scipy.stats import binom

from ..bits import Array, from_digits, to_digits
from ..interp.hooked import Hooked
from ..models.network import greedy_tokens
from ..plots.curves import EpochCurves
from ..plots.style import BLUE, GREY, INK, ORANGE, canvas, seeds_text, tidy
from ..stats import Counts, stuck
from ..tasks import Examples
from .probe import Probe

Shares = npt.NDArray[np.float64]
SAMPLES = 50_000
SUBSETS = {"train": (GREY, "training"), "validation": (ORANGE, "held out"), "all": (BLUE, "all pairs")}


def subsets(model: Hooked, examples: Examples) -> npt.NDArray[np.str_]:
    """Subset (N,) of each example: ``train`` or ``validation``; ``all`` if the split is unknown."""
    if model.split is None:
        return np.full(len(examples), "all")
    return np.where(model.split(examples), "validation", "train")


class Errors(Probe):
    """The wrong greedy answers of every replica, one per row, with their operands.

    ``value_error`` is the decoded answer minus the right one; ``hamming_error`` counts wrong tokens. A model that
    answers ``3 + 5`` with ``1110`` instead of ``0001`` is wrong by -1 and in four tokens. ``longest_carry`` is the
    longest run of carries, here 3; empty for a task without carries. ``wrong_tokens`` names the tokens that are wrong
    after the right prefix too, so not because of an earlier error. ``subset`` is ``train`` or ``validation``, or
    ``all`` if the split is unknown.

    ``shares.csv`` counts, for each seed and subset, wrong answers, wrong tokens after the right prefix, and wrong
    answers by longest carry. ``majority`` is the share of the most common right token. ``stuck`` marks a held-out token
    that was ``never learnt``, or that was learned and is ``lost held out`` (`arith_erd.stats.stuck`).
    """

    columns: tuple[str, ...] = (
        *("seed", "subset", "a", "b", "answer", "decoded"),
        *("value_error", "hamming_error", "longest_carry", "wrong_tokens"),
    )
    units: ClassVar[dict[str, str]] = {"value_error": "value", "hamming_error": "tokens"}
    counted = ("seed", "subset")

    def __init__(self, models: Sequence[Hooked]) -> None:
        self.models, self.task = models, models[0].task
        self.examples = self.task.examples()
        self.carry = self.task.longest_carry(self.examples)
        self.columns = (*Errors.columns[:2], *self.task.operand_names, *Errors.columns[4:])
        self.measured = cache(self._measure)  # each network once: for rows, notes and files

    def rows(self) -> Iterator[dict[str, Any]]:
        for model in self.models:
            yield from self.measured(model)

    def _measure(self, model: Hooked) -> list[dict[str, Any]]:
        """The rows of one network."""
        names = np.array(self.task.answer_names)
        tensors = (self.examples.prompt, self.examples.completion)
        prompt, completion = (torch.as_tensor(x, device=model.device) for x in tensors)
        tokens = greedy_tokens(model.network, prompt, completion).cpu().numpy()  # (N, m)
        decoded = self.task.decode(tokens)
        hamming = (tokens != self.examples.completion).sum(axis=1)
        forced = model.run(self.examples).argmax(-1).cpu().numpy() != self.examples.completion  # (N, m)
        subset = subsets(model, self.examples)
        rows = []
        for i in np.flatnonzero(hamming):
            answer, got = int(self.examples.answer[i]), int(decoded[i])
            example = (model.seed, str(subset[i]), *self.examples.operands[i].tolist(), answer, got)
            carry = None if self.carry is None else int(self.carry[i])
            rows.append(self.row(*example, got - answer, int(hamming[i]), carry, " ".join(names[forced[i]])))
        return rows

    def shares(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The table of ``shares.csv`` with a column ``share``, wrong / examples; also for subsets without errors."""
        lines: list[tuple[Any, ...]] = []
        training: dict[tuple[int, str], Counts] = {}  # ``train`` comes before ``validation``
        for model in self.models:
            seed, subset_of = model.seed, subsets(model, self.examples)
            for subset in map(str, np.unique(subset_of)):
                inside = subset_of == subset
                wrong = rows[(rows["seed"] == seed) & (rows["subset"] == subset)]
                size, missed = int(inside.sum()), Counter(" ".join(wrong["wrong_tokens"]).split())
                lines.append((seed, subset, "answer", "all", size, len(wrong), np.nan, ""))
                for t, name in enumerate(self.task.answer_names):
                    majority = float(np.bincount(self.examples.completion[inside, t]).max()) / size
                    counts, status = (size - missed[name], size, majority), ""
                    if subset == "train":
                        training[seed, name] = counts
                    elif (seed, name) in training:
                        status = stuck(training[seed, name], counts)
                    lines.append((seed, subset, "token", name, size, missed[name], majority, status))
                if self.carry is not None:
                    for length, count in zip(*np.unique(self.carry[inside], return_counts=True), strict=True):
                        many = int((wrong["longest_carry"] == length).sum())
                        lines.append((seed, subset, "longest carry", str(length), int(count), many, np.nan, ""))
        names = ["seed", "subset", "by", "name", "examples", "wrong", "majority", "stuck"]
        table = pd.DataFrame(lines, columns=names)
        return table.assign(share=table["wrong"] / table["examples"])

    def files(self) -> dict[str, str]:
        shares = self.shares(pd.DataFrame(self.rows(), columns=list(self.columns)))
        return {"shares.csv": shares.drop(columns="share").to_csv(index=False, float_format="%.9g")}

    def notes(self) -> list[str]:
        bit = self.task.digit_noun.removesuffix("s")
        tokens = self.shares(pd.DataFrame(self.rows(), columns=list(self.columns))).query("by == 'token'")
        training = tokens[tokens["subset"] == "train"].set_index(["seed", "name"])["share"].to_dict()
        return [
            f"seed {line.seed}: {bit} {line.name} {line.stuck}: {1 - line.share:.1%} held out, "
            f"{1 - training[line.seed, line.name]:.1%} in training"
            for line in tokens.query("stuck != ''").itertuples()
        ]

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Counts of wrong answers, and for each token the share that is wrong after the right prefix."""
        shares, keys = self.shares(rows), ["seed", "subset"]
        tokens = shares[shares["by"] == "token"].pivot(index=keys, columns="name", values="share")
        counts = shares.loc[shares["by"] == "answer", [*keys, "examples", "wrong"]]
        return counts.merge(tokens[self.task.answer_names].map("{:.1%}".format), on=keys)

    def epoch_curves(self, rows: pd.DataFrame) -> EpochCurves:
        shares = self.shares(rows).query("by == 'answer'")
        return EpochCurves.of(shares, "share", ["subset"], label="share of wrong answers", unit="accuracy")

    def figure(self, rows: pd.DataFrame) -> Figure:
        """Errors in value and in tokens beside random flips; below, the shares by token and by longest carry.

        Above left, random flips keep each answer's number of wrong bits. Above right, bits flip independently, with the
        probability that gives the measured mean number of wrong bits.
        """
        figure, task, shares = canvas(9.6, 7.4), self.task, self.shares(rows)
        counts = f"{len(rows):,} wrong of {len(self.models) * len(self.examples):,} answers"
        figure.suptitle(f"{task.name}: {counts}, {seeds_text(shares)}", fontsize=11)
        if rows.empty:
            figure.text(0.5, 0.5, "no wrong answers", ha="center", va="center", color=GREY)
            return figure
        lengths = sorted(shares.loc[shares["by"] == "longest carry", "name"].unique(), key=int)
        axes = figure.subplot_mosaic([["value", "digits"], ["token", "carry" if lengths else "token"]])
        bit, verb = task.digit_noun.removesuffix("s"), "flipped" if task.base == 2 else "changed"
        wrong, errors = rows["hamming_error"].to_numpy(), rows["value_error"].to_numpy()
        random = flipped_values(rows["answer"].to_numpy(), wrong.clip(max=task.width), task.width, task.base)
        octaves = (task.base**task.width - 1).bit_length()
        names = ["0", "1", *(f"{2**k}-{2 ** (k + 1) - 1}" for k in range(1, octaves))]
        # The number of bits of the absolute value: 0 for 0, 1 for +-1, 2 for +-2 and 3, 3 for +-4 .. 7, and so on.
        measured, chance = (
            np.bincount(np.frexp(np.abs(x))[1], minlength=len(names)) / len(x) for x in (errors, random)
        )
        first = 0 if measured[0] else 1  # only a token that is not a digit can be wrong without changing the value
        label = f"as many {bit}s {verb} at random places"
        _compare(axes["value"], names[first:], measured[first:], chance[first:], label)
        axes["value"].set(xlabel="error in value, absolute", ylabel="share of wrong answers")
        axes["value"].set_xticks(
            axes["value"].get_xticks(), names[first:], rotation=45, ha="right", rotation_mode="anchor"
        )
        counted = np.bincount(wrong - 1, minlength=task.answer_length) / len(wrong)
        expected = truncated_binomial(task.answer_length, wrong.mean())
        label = f"each {bit} {verb} independently"
        _compare(axes["digits"], [str(k) for k in range(1, task.answer_length + 1)], counted, expected, label)
        axes["digits"].set(xlabel="wrong tokens of the answer (Hamming distance)")
        _wrong(axes["token"], task.answer_names, shares[shares["by"] == "token"])
        axes["token"].set(xlabel="answer token, after the right prefix", ylabel="share that is wrong")
        if lengths:
            _wrong(axes["carry"], lengths, shares[shares["by"] == "longest carry"])
            axes["carry"].set(xlabel="longest run of carries in the sum")
        return figure


def flipped_values(answer: Array, wrong: Array, width: int, base: int = 2) -> Array:
    """Errors in value (M,) if the wrong digits of each answer (N,), 1 .. width, are at random places.

    There are about 50,000, equally many for each answer, and the same for the same input.
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


def _compare(ax: Axes, names: list[str], measured: Shares, random: Shares, label: str) -> None:
    places = range(len(names))
    ax.bar(places, measured, color=BLUE, alpha=0.85, width=0.7, label="measured")
    ax.plot(places, random, "kD--", markerfacecolor="white", linewidth=0.9, markersize=5.5, label=label)
    _finish(ax, names)


def _wrong(ax: Axes, names: list[str], shares: pd.DataFrame) -> None:
    """Bars of the mean over seeds for each subset, and a dash for each seed."""
    subsets, seeds = list(shares["subset"].unique()), shares["seed"].nunique()
    width = 0.8 / len(subsets)
    for i, subset in enumerate(subsets):
        by_seed = shares[shares["subset"] == subset].pivot_table("share", "name", "seed").reindex(names)
        places = np.arange(len(names)) + width * (i + 0.5) - 0.4
        colour, label = SUBSETS[subset]
        ax.bar(places, by_seed.mean(axis=1), width=width, color=colour, alpha=0.85, label=label)
        if by_seed.shape[1] > 1:
            ax.plot(places, by_seed, "_", color=INK, markersize=5)
    for name, lost in shares[shares["stuck"] != ""].groupby("name", sort=False):
        words = lost["stuck"].str.removesuffix(" held out").value_counts()  # never learnt, lost
        text = "\n".join(f"{word} ({n} of {seeds})" if seeds > 1 else word for word, n in words.items())
        above = 1.03 * shares.loc[shares["name"] == name, "share"].max()  # the bars of all subsets
        ax.text(names.index(name), above, text, ha="center", va="bottom", fontsize=8, color=INK)
    _finish(ax, names)


def _finish(ax: Axes, names: list[str]) -> None:
    tidy(ax, "y")
    ax.set_xticks(range(len(names)), names)
    ax.grid(visible=False, axis="x")
    ax.legend(frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
