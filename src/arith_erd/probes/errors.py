"""Which answers are wrong, where, and are they near the right ones in value or in bits?"""

from collections import Counter
from collections.abc import Iterator, Sequence
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
from ..models.decoding import greedy_tokens
from ..plots.epoch_curves import EpochCurves
from ..plots.sheet import Sheet
from ..plots.style import BLUE, GREY, INK, ORANGE, canvas, tidy
from ..stats import Counts, stuck
from ..tasks import Examples, Task
from .probe import Probe

Shares = npt.NDArray[np.float64]
SAMPLES = 50_000
SUBSETS = {"train": (GREY, "training"), "validation": (ORANGE, "held out"), "all": (BLUE, "all pairs")}


def subsets(model: Hooked, examples: Examples) -> npt.NDArray[np.str_]:
    """Subset (N,) of each example: ``train`` or ``validation``, or ``all`` without a known split."""
    if model.split is None:
        return np.full(len(examples), "all")
    return np.where(model.split(examples), "validation", "train")


class Errors(Probe):
    """The wrong greedy answers of every replica, one per row, with their operands.

    ``value_error`` is the decoded answer minus the right one; ``hamming_error`` counts wrong tokens. A model that
    answers ``3 + 5`` with ``1110`` instead of ``0001`` is wrong by -1 and in four tokens. ``longest_carry`` is the
    longest run of carries, here 3; empty for a task without carries. ``wrong_tokens`` names the tokens that are wrong
    after the right prefix too, and so not because of an earlier one. ``subset`` is ``train`` or ``validation``, or
    ``all`` where no split is known.

    ``shares.csv`` counts wrong tokens of each seed and subset, after the right prefix, and wrong answers by longest
    carry. ``majority`` is the share of the most common right token, and ``stuck`` says of a held-out token if it was
    ``never learnt``, or learnt and ``lost held out`` (`arith_erd.stats.stuck`).
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
        self.found: list[dict[str, Any]] = []

    def rows(self) -> Iterator[dict[str, Any]]:
        self.found = []
        names = np.array(self.task.answer_names)
        for model in self.models:
            tensors = (self.examples.prompt, self.examples.completion)
            prompt, completion = (torch.as_tensor(x, device=model.device) for x in tensors)
            tokens = greedy_tokens(model.network, prompt, completion).cpu().numpy()  # (N, m)
            decoded = self.task.decode(tokens)
            hamming = (tokens != self.examples.completion).sum(axis=1)
            forced = model.run(self.examples).argmax(-1).cpu().numpy() != self.examples.completion  # (N, m)
            subset = subsets(model, self.examples)
            for i in np.flatnonzero(hamming):
                answer, got = int(self.examples.answer[i]), int(decoded[i])
                example = (model.seed, str(subset[i]), *self.examples.operands[i].tolist(), answer, got)
                carry = None if self.carry is None else int(self.carry[i])
                row = self.row(*example, got - answer, int(hamming[i]), carry, " ".join(names[forced[i]]))
                self.found.append(row)
                yield row

    def _by_subset(self, rows: pd.DataFrame) -> Iterator[tuple[int, str, npt.NDArray[np.bool_], pd.DataFrame]]:
        """Seed, subset, its members (N,), and the rows of its wrong answers; subsets without any too."""
        for model in self.models:
            subset = subsets(model, self.examples)
            for name in np.unique(subset):
                here = (rows["seed"] == model.seed) & (rows["subset"] == name)
                yield model.seed, str(name), subset == name, rows[here]

    def shares(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The content of ``shares.csv``."""
        lines: list[tuple[Any, ...]] = []
        training: dict[tuple[int, str], Counts] = {}  # ``train`` comes before ``validation``
        for seed, subset, inside, wrong in self._by_subset(rows):
            size, missed = int(inside.sum()), _missed(wrong)
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
        return pd.DataFrame(lines, columns=names)

    def _found(self) -> pd.DataFrame:
        return self.shares(pd.DataFrame(self.found, columns=list(self.columns)))

    def files(self) -> dict[str, str]:
        return {"shares.csv": self._found().to_csv(index=False, float_format="%.9g")}

    def notes(self) -> list[str]:
        bit = self.task.digit_noun.removesuffix("s")
        tokens = self._found().query("by == 'token'").assign(right=lambda table: 1 - table["wrong"] / table["examples"])
        training = tokens[tokens["subset"] == "train"].set_index(["seed", "name"])["right"].to_dict()
        return [
            f"seed {line.seed}: {bit} {line.name} {line.stuck}: {line.right:.1%} held out, "
            f"{training[line.seed, line.name]:.1%} in training"
            for line in tokens.query("stuck != ''").itertuples()
        ]

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Counts, and the share of wrong tokens at each place, after the right prefix."""
        lines = []
        for seed, subset, inside, wrong in self._by_subset(rows):
            size, missed = int(inside.sum()), _missed(wrong)
            tokens = {token: f"{missed[token] / size:.1%}" for token in self.task.answer_names}
            lines.append({"seed": seed, "subset": subset, "examples": size, "wrong": len(wrong)} | tokens)
        return pd.DataFrame(lines)

    def epoch_curves(self, rows: pd.DataFrame) -> EpochCurves:
        shares = [(seed, name, len(wrong) / inside.sum()) for seed, name, inside, wrong in self._by_subset(rows)]
        table = pd.DataFrame(shares, columns=["seed", "subset", "wrong"])
        sheet = Sheet.of("", table, {"wrong": "accuracy"})
        return EpochCurves.of(table, sheet, "wrong", "subset", label="share of wrong answers")

    def figure(self, rows: pd.DataFrame) -> Figure:
        seeds = len({model.seed for model in self.models})
        counts = f"{len(rows):,} wrong of {len(self.models) * len(self.examples):,} answers"
        title = f"{self.task.name}: {counts}, {seeds} seed{'s' * (seeds > 1)}"
        return draw_errors(rows, self.shares(rows), self.task, title)


def _missed(wrong: pd.DataFrame) -> Counter[str]:
    """Number of wrong answers by token."""
    return Counter(" ".join(wrong["wrong_tokens"]).split())


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
    bit, verb = task.digit_noun.removesuffix("s"), "flipped" if task.base == 2 else "changed"
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
    for name, lost in shares[shares["stuck"] != ""].groupby("name", sort=False):
        words = lost["stuck"].str.removesuffix(" held out").value_counts()  # never learnt, lost
        text = "\n".join(f"{word} ({n} of {seeds})" if seeds > 1 else word for word, n in words.items())
        ax.text(names.index(name), 1.03 * lost["share"].max(), text, ha="center", va="bottom", fontsize=8, color=INK)
    _finish(ax, names)


def _finish(ax: Axes, names: list[str]) -> None:
    tidy(ax, "y")
    ax.set_xticks(range(len(names)), names)
    ax.grid(visible=False, axis="x")
    ax.legend(frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
