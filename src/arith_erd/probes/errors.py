"""Which answers are wrong, where, and are they near the right ones in value or in bits?"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from matplotlib.figure import Figure

from ..interp.hooked import Hooked
from ..models.decoding import answers
from ..plots.course import Course
from ..plots.errors import draw_errors
from ..plots.sheet import Sheet
from ..stats import Counts, stuck
from ..tasks import Examples
from .probe import Probe


def subsets(subject: Hooked, examples: Examples) -> npt.NDArray[np.str_]:
    """Subset (N,) of each example: ``train`` or ``validation``, or ``all`` without a known split."""
    if subject.split is None:
        return np.full(len(examples), "all")
    return np.where(subject.split(examples), "validation", "train")


class Errors(Probe):
    """The wrong greedy answers of every replica, one per row, with their operands.

    ``value_error`` is the decoded answer less the right one; ``hamming_error`` counts wrong tokens. A model that
    answers ``3 + 5`` with ``1110`` instead of ``0001`` is wrong by -1 and in four tokens. ``longest_carry`` is the
    longest run of carries, here 3; empty for a task without carries. ``wrong_tokens`` names the tokens that are wrong
    after the right prefix too, and so not because of an earlier one. ``subset`` is ``train`` or ``validation``, or
    ``all`` where no split is known.

    ``shares.csv`` counts wrong tokens of each seed and subset, after the right prefix, and wrong answers by longest
    carry. ``majority`` is the share of the commonest right token, and ``stuck`` says of a held-out token if it was
    ``never learnt``, or learnt and ``lost held out`` (`arith_erd.stats.stuck`).
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
        self.carry = self.task.longest_carry(self.examples)
        self.columns = (*Errors.columns[:2], *self.task.operand_names, *Errors.columns[4:])
        self.found: list[dict[str, Any]] = []

    def rows(self) -> Iterator[dict[str, Any]]:
        self.found = []
        names = np.array(self.task.answer_names)
        for subject in self.subjects:
            tensors = (self.examples.prompt, self.examples.completion)
            prompt, completion = (torch.as_tensor(x, device=subject.device) for x in tensors)
            tokens = answers(subject.network, prompt, completion).cpu().numpy()  # (N, m)
            decoded = self.task.decode(tokens)
            hamming = (tokens != self.examples.completion).sum(axis=1)
            forced = subject.run(self.examples).argmax(-1).cpu().numpy() != self.examples.completion  # (N, m)
            subset = subsets(subject, self.examples)
            for i in np.flatnonzero(hamming):
                answer, got = int(self.examples.answer[i]), int(decoded[i])
                example = (subject.seed, str(subset[i]), *self.examples.operands[i].tolist(), answer, got)
                carry = None if self.carry is None else int(self.carry[i])
                row = self.row(*example, got - answer, int(hamming[i]), carry, " ".join(names[forced[i]]))
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
        training: dict[tuple[int, str], Counts] = {}  # ``train`` comes before ``validation``
        for seed, subset, inside, wrong in self._by_subset(rows):
            size, missed = int(inside.sum()), _missed(wrong)
            for t, name in enumerate(self.task.answer_names):
                majority = float(np.bincount(self.examples.completion[inside, t]).max()) / size
                counts, said = (size - missed[name], size, majority), ""
                if subset == "train":
                    training[seed, name] = counts
                elif (seed, name) in training:
                    said = stuck(training[seed, name], counts)
                lines.append((seed, subset, "token", name, size, missed[name], majority, said))
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
        bit = self.task.digits.removesuffix("s")
        found = self._found().query("by == 'token'").assign(right=lambda table: 1 - table["wrong"] / table["examples"])
        training = found[found["subset"] == "train"].set_index(["seed", "name"])["right"].to_dict()
        return [
            f"seed {line.seed}: {bit} {line.name} {line.stuck}: {line.right:.1%} held out, "
            f"{training[line.seed, line.name]:.1%} in training"
            for line in found.query("stuck != ''").itertuples()
        ]

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Counts, and the share of wrong tokens at each place, after the right prefix."""
        lines = []
        for seed, subset, inside, wrong in self._by_subset(rows):
            size, missed = int(inside.sum()), _missed(wrong)
            tokens = {token: f"{missed[token] / size:.1%}" for token in self.task.answer_names}
            lines.append({"seed": seed, "subset": subset, "examples": size, "wrong": len(wrong)} | tokens)
        return pd.DataFrame(lines)

    def course(self, rows: pd.DataFrame) -> Course:
        shares = [(seed, name, len(wrong) / inside.sum()) for seed, name, inside, wrong in self._by_subset(rows)]
        table = pd.DataFrame(shares, columns=["seed", "subset", "wrong"])
        sheet = Sheet.of("", table, {"wrong": "accuracy"})
        return Course.of(table, sheet, "wrong", "subset", label="share of wrong answers")

    def figure(self, rows: pd.DataFrame) -> Figure:
        seeds = len({subject.seed for subject in self.subjects})
        of = f"{len(rows):,} wrong of {len(self.subjects) * len(self.examples):,} answers"
        title = f"{self.task.name}: {of}, {seeds} seed{'s' * (seeds > 1)}"
        return draw_errors(rows, self.shares(rows), self.task, title)


def _missed(wrong: pd.DataFrame) -> Counter[str]:
    """Number of wrong answers by token."""
    return Counter(" ".join(wrong["wrong_tokens"]).split())
