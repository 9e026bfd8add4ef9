"""The epochs of a run on disk: rows of ``metrics.csv`` and ``tokens.csv``, and which weights ``checkpoint.keep`` keeps.

Accuracies are fractions in [0, 1], measured after the epoch with dropout off. ``seconds`` is the duration of the epoch.
Epochs count from 1. ``tokens.csv`` has a row for each epoch, seed and split (``train`` or ``val``), and a column for
each token of the answer: its accuracy given the right tokens before it. Where examples are drawn from a larger table,
``slices.csv`` has the accuracy of held-out examples by length and by longest carry chain. Only this file writes them.
"""

import csv
import io
import math
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UserError, bad_value
from ..system.files import naming, read_text, write_atomically

INTEGERS = ("epoch", "seed")
SLICES = ("slice", "value", "val_seq_acc")
METRICS = (*INTEGERS, "train_loss", "train_token_acc", "train_seq_acc", "val_token_acc", "val_seq_acc", "seconds")

Row = dict[str, Any]


def read_metrics(path: Path) -> list[Row]:
    """The rows, oldest first; none without the file. An unfinished last line, cut off by a kill, is dropped.

    A `UserError` says if the file cannot be read, lacks columns of `METRICS`, or holds a value that is not a number.
    """
    try:
        text = read_text(path)
        rows = csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1]))
        return [{key: (int if key in INTEGERS else float)(row[key]) for key in METRICS} for row in rows]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        raise UserError(f"{path}: not the columns {', '.join(METRICS)}") from error


def write_metrics(path: Path, rows: Iterable[Row]) -> None:
    """Replace the file."""
    lines = [",".join(METRICS), *(_line(row) for row in rows)]
    write_atomically(path, "\n".join(lines) + "\n")


def append_metrics(path: Path, rows: Iterable[Row]) -> None:
    """Add the rows of one epoch."""
    _append(path, map(_line, rows))


def begin_rows(path: Path, names: Sequence[str], last: int) -> None:
    """Write ``tokens.csv`` or ``slices.csv`` anew, with these columns after epoch and seed, its rows up to an epoch.

    Nothing resumes from it: a damaged file, in which a line does not begin with an epoch, begins anew and says so.
    """
    try:
        text = read_text(path) if path.is_file() else ""
        lines = text[: text.rfind("\n") + 1].splitlines()[1:]  # without a line that a kill cut off
        kept = [line for line in lines if int(line.partition(",")[0]) <= last]
    except ValueError:
        print(f"{path}: damaged; it begins anew at epoch {last + 1}")
        kept = []
    header = ",".join((*INTEGERS, *names))
    write_atomically(path, "\n".join([header, *kept]) + "\n")


def append_tokens(path: Path, rows: Iterable[tuple[int, int, str, Sequence[float]]]) -> None:
    """Add the rows of one epoch: epoch, seed, split, and the accuracies in the order of the tokens."""
    _append(path, (f"{epoch},{seed},{split},{','.join(map(_short, values))}" for epoch, seed, split, values in rows))


def append_slices(path: Path, rows: Iterable[tuple[int, int, str, int, float]]) -> None:
    """Add the rows of one epoch: epoch, seed, and the validation sequence accuracy of one kind of example."""
    _append(path, (f"{epoch},{seed},{name},{value},{_short(found)}" for epoch, seed, name, value, found in rows))


def _append(path: Path, lines: Iterable[str]) -> None:
    """Add lines and flush them to the disk, since the next checkpoint relies on them."""
    with naming(path), path.open("a", encoding="utf-8") as file:
        file.write("".join(f"{line}\n" for line in lines))
        file.flush()
        os.fsync(file.fileno())


def epochs_to(rows: Iterable[Row], seed: int, accuracy: float) -> int | None:
    """The first epoch at which a seed's validation sequence accuracy reached ``accuracy``; None if it never did."""
    return min((r["epoch"] for r in rows if r["seed"] == seed and r["val_seq_acc"] >= accuracy), default=None)


def _line(row: Row) -> str:
    return ",".join(str(row[key]) if key in INTEGERS else _short(row[key]) for key in METRICS)


def _short(value: float) -> str:
    return f"{value:.9g}"


A_DECADE = 8  # epochs that ``log`` keeps between 10 and 100, between 100 and 1000, and so on


@dataclass(frozen=True)
class Keep:
    """The epochs whose weights are kept.

    >>> [list(Keep.read("keep", text).until(10)) for text in ("none", "every:4", "log")]
    [[], [4, 8], [1, 2, 3, 4, 6, 7, 10]]
    """

    rule: str
    step: int = 1

    @classmethod
    def read(cls, key: str, value: object) -> "Keep":
        """The rule that a text names; a `UserError` with the key for any other."""
        if value in ("none", "all", "log"):
            return cls(str(value))
        if isinstance(value, str) and (match := re.fullmatch(r"every:([1-9]\d{0,8})", value, re.ASCII)):
            return cls("every", int(match[1]))
        raise bad_value(key, value, "none, all, log, or every:K with K from 1, as every:10")

    def __contains__(self, epoch: int) -> bool:
        return epoch in self.until(epoch)

    def until(self, last: int) -> Sequence[int]:
        """The epochs that a run of ``last`` epochs keeps, ascending. No list is as long as the run may be."""
        if self.rule == "log":
            steps = range(round(A_DECADE * math.log10(max(last, 1))) + 1)
            kept = sorted({round(10 ** (step / A_DECADE)) for step in steps})
            return [epoch for epoch in kept if epoch <= last]
        return range(0) if self.rule == "none" else range(self.step, last + 1, self.step)


NOTHING = Keep("none")
