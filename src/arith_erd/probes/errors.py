"""Which answers are wrong, and are they near the right ones in value or in bits?"""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from scipy.optimize import brentq
from scipy.stats import binom

from ..bits import Array, from_digits, to_digits
from ..interp.hooked import Hooked
from ..models.decoding import answers
from ..plots.course import Course
from ..plots.sheet import Sheet
from ..plots.style import BLUE, GREY, tidy
from ..tasks import Examples, Task
from .probe import Probe

Shares = npt.NDArray[np.float64]
SAMPLES = 50_000


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


def _shares(bins: Array, number: int) -> Shares:
    return np.bincount(bins, minlength=number) / len(bins)


def _draw(ax: Axes, names: list[str], measured: Shares, random: Shares, label: str) -> None:
    places = range(len(names))
    bars = ax.bar(places, measured, color=BLUE, alpha=0.85, width=0.7, label="measured")
    (line,) = ax.plot(places, random, "kD--", markerfacecolor="white", linewidth=0.9, markersize=5.5, label=label)
    tidy(ax)
    ax.set_xticks(places, names)
    ax.grid(visible=False, axis="x")
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ax.legend(handles=[bars, line], frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))


class Errors(Probe):
    """The wrong greedy answers of every replica, one per row, with their operands.

    ``value_error`` is the decoded answer less the right one; ``hamming_error`` counts wrong tokens. A model that
    answers ``3 + 5`` with ``1110`` instead of ``0001`` is wrong by -1 and in four tokens. ``longest_carry`` is the
    longest run of carries, here 3; empty for a task without carries. ``subset`` is ``train`` or ``validation``,
    or ``all`` where no split is known.
    """

    columns: tuple[str, ...] = (
        *("seed", "subset", "a", "b", "answer", "decoded", "value_error", "hamming_error", "longest_carry"),
    )
    units: ClassVar[dict[str, str]] = {"value_error": "value", "hamming_error": "tokens"}
    counted = ("seed", "subset")

    def __init__(self, subjects: Sequence[Hooked]) -> None:
        self.subjects, self.task = subjects, subjects[0].task
        self.columns = (*Errors.columns[:2], *self.task.operand_names, *Errors.columns[4:])

    def rows(self) -> Iterator[dict[str, Any]]:
        for subject in self.subjects:
            task, examples = subject.task, subject.task.examples()
            tokens = greedy_answers(subject, examples)  # (N, m)
            decoded = task.decode(tokens)
            hamming = (tokens != examples.completion).sum(axis=1)
            carry, subset = longest_carry(task, examples), subsets(subject, examples)
            for i in np.flatnonzero(hamming):
                answer, got = int(examples.answer[i]), int(decoded[i])
                example = (subject.seed, str(subset[i]), *examples.operands[i].tolist(), answer, got)
                errors = (got - answer, int(hamming[i]), None if carry is None else int(carry[i]))
                yield self.row(*example, *errors)

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        lines = []
        for seed, name, size, wrong in self._by_subset(rows):
            means = wrong[["value_error", "hamming_error"]].abs().mean()
            lines.append((seed, name, size, len(wrong), *("" if np.isnan(x) else f"{x:.2f}" for x in means)))
        return pd.DataFrame(lines, columns=["seed", "subset", "examples", "wrong", "|value_error|", "hamming_error"])

    def _by_subset(self, rows: pd.DataFrame) -> Iterator[tuple[int, str, int, pd.DataFrame]]:
        """Seed, subset, its size, and the rows of its wrong answers; subsets without any too."""
        for subject in self.subjects:
            names, sizes = np.unique(subsets(subject, subject.task.examples()), return_counts=True)
            for name, size in zip(names, sizes, strict=True):
                yield subject.seed, name, size, rows[(rows["seed"] == subject.seed) & (rows["subset"] == name)]

    def course(self, rows: pd.DataFrame) -> Course:
        shares = [(seed, name, len(wrong) / size) for seed, name, size, wrong in self._by_subset(rows)]
        table = pd.DataFrame(shares, columns=["seed", "subset", "wrong"])
        sheet = Sheet.of("", table, {"wrong": "accuracy"})
        return Course.of(table, sheet, "wrong", "subset", label="share of wrong answers")

    def figure(self, rows: pd.DataFrame) -> Figure:
        """Errors in value and in bits, as shares of all wrong answers, beside those of flips at random.

        On the left each answer keeps its number of wrong bits, at random places. On the right each bit flips alone,
        with the probability at which a wrong answer has the measured mean number of wrong bits.
        """
        task, bit = self.task, self.task.digits.removesuffix("s")
        verb = "flipped" if task.base == 2 else "changed"
        figure = Figure(figsize=(9.6, 3.9), dpi=130, layout="constrained")
        seeds = len({subject.seed for subject in self.subjects})
        of = f"{len(rows):,} wrong of {len(self.subjects) * task.size:,} answers, {seeds} seed{'s' * (seeds > 1)}"
        figure.suptitle(f"{task.name}: {of}", fontsize=11)
        if rows.empty:
            figure.text(0.5, 0.5, "no wrong answers", ha="center", va="center", color=GREY)
            return figure
        in_value, in_digits = figure.subplots(1, 2)
        wrong = rows["hamming_error"].to_numpy()
        random = flipped_values(rows["answer"].to_numpy(), wrong, task.width, task.base)
        octaves = (task.base**task.width - 1).bit_length()
        names = ["0", "1", *(f"{2**k}-{2 ** (k + 1) - 1}" for k in range(1, octaves))]
        measured, chance = (_shares(octave(x), len(names)) for x in (rows["value_error"].to_numpy(), random))
        first = 0 if measured[0] else 1  # only a token that is not a digit can be wrong without changing the value
        _draw(in_value, names[first:], measured[first:], chance[first:], f"as many {bit}s {verb} at random places")
        in_value.set(xlabel="error in value, absolute", ylabel="share of wrong answers")
        for tick in in_value.get_xticklabels():
            tick.set(rotation=45, ha="right", rotation_mode="anchor")
        expected = truncated_binomial(task.width, wrong.mean())
        names = [str(k) for k in range(1, task.width + 1)]
        _draw(in_digits, names, _shares(wrong - 1, task.width), expected, f"each {bit} {verb} independently")
        in_digits.set(xlabel="wrong tokens of the answer (Hamming distance)")
        return figure
