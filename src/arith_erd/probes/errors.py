"""Which answers are wrong, and are they near the right ones in value or in bits?"""

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
from ..models.decoding import answers
from ..plots.course import Course
from ..plots.sheet import Sheet
from ..plots.style import BLUE, GREY, INK, ORANGE, canvas, tidy
from ..stats import never_learnt
from ..tasks import Examples, Task
from .probe import Probe

Shares = npt.NDArray[np.float64]
SAMPLES = 50_000
SUBSETS = {"train": (GREY, "training"), "validation": (ORANGE, "held out"), "all": (BLUE, "all pairs")}


def greedy_answers(subject: Hooked, examples: Examples) -> Array:
    prompt, completion = (torch.as_tensor(x, device=subject.device) for x in (examples.prompt, examples.completion))
    return answers(subject.network, prompt, completion).cpu().numpy()


def subsets(subject: Hooked, examples: Examples) -> npt.NDArray[np.str_]:
    """Subset (N,) of each example: ``train`` or ``validation``, or ``all`` without a known split."""
    if subject.split is None:
        return np.full(len(examples), "all")
    return np.where(subject.split(examples), "validation", "train")


def longest_carry(task: Task, examples: Examples) -> Array | None:
    """Length (N,) of the longest run of digits that carry; None for a task without carries."""
    if "carries" not in task.concept_names:
        return None
    longest = run = np.zeros(len(examples), dtype=np.int64)
    for carry in task.concepts(*examples.operands.T)["carries"].T:
        run = (run + 1) * (carry > 0)
        longest = np.maximum(longest, run)
    return longest


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


class Errors(Probe):
    """The wrong greedy answers of every replica, one per row, with their operands.

    ``value_error`` is the decoded answer less the right one; ``hamming_error`` counts wrong tokens, and
    ``wrong_tokens`` names them. A model that answers ``3 + 5`` with ``1110`` instead of ``0001`` is wrong by -1 and in
    four tokens. ``longest_carry`` is the longest run of carries, here 3; empty for a task without carries. ``subset``
    is ``train`` or ``validation``, or ``all`` where no split is known.

    ``shares.csv`` counts the wrong answers of each seed and subset by token and by longest carry. ``majority`` is the
    share of the commonest right token, and ``stuck`` marks a held-out token that was never learnt
    (`arith_erd.stats.never_learnt`).
    """

    columns: tuple[str, ...] = (
        *("seed", "subset", "a", "b", "answer", "decoded"),
        *("value_error", "hamming_error", "longest_carry", "wrong_tokens"),
    )
    units: ClassVar[dict[str, str]] = {"value_error": "value", "hamming_error": "tokens"}
    counted = ("seed", "subset")

    def __init__(self, subjects: Sequence[Hooked]) -> None:
        self.subjects, self.task = subjects, subjects[0].task
        self.examples = self.task.examples()
        self.carry = longest_carry(self.task, self.examples)
        self.columns = (*Errors.columns[:2], *self.task.operand_names, *Errors.columns[4:])
        self.found: list[dict[str, Any]] = []

    def rows(self) -> Iterator[dict[str, Any]]:
        self.found = []
        names = np.array(self.task.answer_names)
        for subject in self.subjects:
            tokens = greedy_answers(subject, self.examples)  # (N, m)
            decoded = self.task.decode(tokens)
            wrong, subset = tokens != self.examples.completion, subsets(subject, self.examples)
            for i in np.flatnonzero(wrong.any(axis=1)):
                answer, got = int(self.examples.answer[i]), int(decoded[i])
                example = (subject.seed, str(subset[i]), *self.examples.operands[i].tolist(), answer, got)
                carry = None if self.carry is None else int(self.carry[i])
                row = self.row(*example, got - answer, int(wrong[i].sum()), carry, " ".join(names[wrong[i]]))
                self.found.append(row)
                yield row

    def _by_subset(self, rows: pd.DataFrame) -> Iterator[tuple[int, str, npt.NDArray[np.bool_], pd.DataFrame]]:
        """Seed, subset, its members (N,), and the rows of its wrong answers; subsets without any too."""
        for subject in self.subjects:
            subset = subsets(subject, self.examples)
            for name in np.unique(subset):
                here = (rows["seed"] == subject.seed) & (rows["subset"] == name)
                yield subject.seed, str(name), subset == name, rows[here]

    def shares(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The content of ``shares.csv``."""
        lines: list[tuple[Any, ...]] = []
        for seed, subset, inside, wrong in self._by_subset(rows):
            size, missed = int(inside.sum()), Counter(" ".join(wrong["wrong_tokens"]).split())
            for t, name in enumerate(self.task.answer_names):
                commonest = np.bincount(self.examples.completion[inside, t]).max()
                lines.append((seed, subset, "token", name, size, missed[name], commonest / size))
            if self.carry is not None:
                for length, count in zip(*np.unique(self.carry[inside], return_counts=True), strict=True):
                    many = int((wrong["longest_carry"] == length).sum())
                    lines.append((seed, subset, "longest carry", str(length), int(count), many, np.nan))
        table = pd.DataFrame(lines, columns=["seed", "subset", "by", "name", "examples", "wrong", "majority"])
        right = 1 - table["wrong"] / table["examples"]
        training = table.assign(right=right)[table["subset"] == "train"].set_index(["seed", "by", "name"])["right"]
        stuck = [
            subset == "validation"
            and by == "token"
            and never_learnt(size - wrong, size, majority, float(training.get((seed, by, name), 0.0)))
            for seed, subset, by, name, size, wrong, majority in table.itertuples(index=False)
        ]
        return table.assign(stuck=np.where(stuck, "stuck", ""))

    def files(self) -> dict[str, str]:
        return {"shares.csv": self.shares(self._found()).to_csv(index=False, float_format="%.9g")}

    def notes(self) -> list[str]:
        bit, shares = self.task.digits.removesuffix("s"), self.shares(self._found())
        return [
            f"seed {line.seed}: stuck {bit} {line.name}: {1 - line.wrong / line.examples:.1%} held out, never learnt"
            for line in shares[shares["stuck"] == "stuck"].itertuples()
        ]

    def _found(self) -> pd.DataFrame:
        return pd.DataFrame(self.found, columns=list(self.columns))

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Counts and mean errors; then the share of wrong answers for each token, the last tokens first."""
        lines = []
        shares = self.shares(rows)
        for seed, name, inside, wrong in self._by_subset(rows):
            means = wrong[["value_error", "hamming_error"]].abs().mean()
            texts = ["" if np.isnan(x) else f"{x:.2f}" for x in means]
            own = shares[(shares["seed"] == seed) & (shares["subset"] == name) & (shares["by"] == "token")]
            of_tokens = (own["wrong"] / own["examples"]).map("{:.1%}".format)
            lines.append((seed, name, int(inside.sum()), len(wrong), *texts, *of_tokens))
        measures = ("examples", "wrong", "|value_error|", "hamming_error", *self.task.answer_names)
        return pd.DataFrame(lines, columns=["seed", "subset", *measures])

    def course(self, rows: pd.DataFrame) -> Course:
        shares = [(seed, name, len(wrong) / inside.sum()) for seed, name, inside, wrong in self._by_subset(rows)]
        table = pd.DataFrame(shares, columns=["seed", "subset", "wrong"])
        sheet = Sheet.of("", table, {"wrong": "accuracy"})
        return Course.of(table, sheet, "wrong", "subset", label="share of wrong answers")

    def figure(self, rows: pd.DataFrame) -> Figure:
        """Errors in value and in tokens beside those of flips at random; below, where they are.

        On the left each answer keeps its number of wrong bits, at random places. On the right each bit flips alone,
        with the probability at which a wrong answer has the measured mean number of wrong bits.
        """
        task, bit = self.task, self.task.digits.removesuffix("s")
        figure = canvas(9.6, 7.4)
        of = f"{len(rows):,} wrong of {len(self.subjects) * task.size:,} answers"
        seeds = len({subject.seed for subject in self.subjects})
        figure.suptitle(f"{task.name}: {of}, {seeds} seed{'s' * (seeds > 1)}", fontsize=11)
        if rows.empty:
            figure.text(0.5, 0.5, "no wrong answers", ha="center", va="center", color=GREY)
            return figure
        axes = figure.subplot_mosaic(
            [["value", "digits"], ["token", "token" if self.carry is None else "longest carry"]]
        )
        verb = "flipped" if task.base == 2 else "changed"
        wrong = rows["hamming_error"].to_numpy()
        random = flipped_values(rows["answer"].to_numpy(), wrong, task.width, task.base)
        octaves = (task.base**task.width - 1).bit_length()
        names = ["0", "1", *(f"{2**k}-{2 ** (k + 1) - 1}" for k in range(1, octaves))]
        measured, chance = (_shares(octave(x), len(names)) for x in (rows["value_error"].to_numpy(), random))
        first = 0 if measured[0] else 1  # only a token that is not a digit can be wrong without changing the value
        label = f"as many {bit}s {verb} at random places"
        _compare(axes["value"], names[first:], measured[first:], chance[first:], label)
        axes["value"].set(xlabel="error in value, absolute", ylabel="share of wrong answers")
        axes["value"].tick_params(axis="x", rotation=45)
        names = [str(k) for k in range(1, task.width + 1)]
        expected = truncated_binomial(task.width, wrong.mean())
        _compare(axes["digits"], names, _shares(wrong - 1, task.width), expected, f"each {bit} {verb} independently")
        axes["digits"].set(xlabel="wrong tokens of the answer (Hamming distance)")
        shares = self.shares(rows)
        for by, label in (("token", "answer token"), ("longest carry", "longest run of carries in the sum")):
            if by in axes:
                _wrong(axes[by], shares[shares["by"] == by])
                axes[by].set(xlabel=label, ylabel="share that is wrong")
        return figure


def _shares(bins: Array, number: int) -> Shares:
    return np.bincount(bins, minlength=number) / len(bins)


def _compare(ax: Axes, names: list[str], measured: Shares, random: Shares, label: str) -> None:
    places = range(len(names))
    ax.bar(places, measured, color=BLUE, alpha=0.85, width=0.7, label="measured")
    ax.plot(places, random, "kD--", markerfacecolor="white", linewidth=0.9, markersize=5.5, label=label)
    _finish(ax, names)


def _wrong(ax: Axes, shares: pd.DataFrame) -> None:
    """Bars of the mean over seeds for each subset, and a dot for each seed."""
    names = list(shares["name"].unique())
    shares = shares.assign(share=shares["wrong"] / shares["examples"])
    subsets, seeds = list(shares["subset"].unique()), shares["seed"].nunique()
    width = 0.8 / len(subsets)
    for i, subset in enumerate(subsets):
        by_seed = shares[shares["subset"] == subset].pivot(index="name", columns="seed", values="share").reindex(names)
        places = np.arange(len(names)) + width * (i + 0.5) - 0.4
        colour, label = SUBSETS[subset]
        ax.bar(places, by_seed.mean(axis=1), width=width, color=colour, alpha=0.85, label=label)
        if by_seed.shape[1] > 1:
            ax.plot(places, by_seed, "_", color=INK, markersize=5)
    for name, stuck in shares[shares["stuck"] == "stuck"].groupby("name", sort=False):
        text = f"stuck ({len(stuck)} of {seeds})" if seeds > 1 else "stuck"
        ax.text(names.index(name), 1.03 * stuck["share"].max(), text, ha="center", va="bottom", fontsize=8, color=INK)
    _finish(ax, names)


def _finish(ax: Axes, names: list[str]) -> None:
    tidy(ax, "y")
    ax.set_xticks(range(len(names)), names)
    ax.grid(visible=False, axis="x")
    ax.legend(frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
