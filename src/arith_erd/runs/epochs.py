"""The epochs of a run on disk: rows of ``metrics.csv`` and ``tokens.csv``, and which weights ``checkpoint.keep`` keeps.

Accuracies are fractions in [0, 1], measured after the epoch with dropout off. ``seconds`` is the duration of the epoch.
Epochs count from 1. ``tokens.csv`` has a row for each epoch, seed and split (``train`` or ``val``), and a column for
each token of the answer: its accuracy given the right tokens before it. Where examples are drawn from a larger table,
``slices.csv`` has the accuracy of held-out examples by length and by longest carry chain.
"""

import csv
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..system.files import naming, write_atomically

INTEGERS = ("epoch", "seed")
SLICES = ("slice", "value", "val_seq_acc")
METRICS = (*INTEGERS, "train_loss", "train_token_acc", "train_seq_acc", "val_token_acc", "val_seq_acc", "seconds")

MetricRow = dict[str, Any]
"""A row of ``metrics.csv``: `METRICS`."""
SeedSummary = dict[str, Any]
"""What ``summary.json`` says of a seed: its last row, without epoch and seconds, and what `training.summary` adds."""


def read_metrics(path: Path) -> list[MetricRow]:
    """The rows, oldest first; none without the file. An unfinished last line, cut off by a kill, is dropped."""
    try:
        rows = csv.DictReader(_whole_lines(path))
        return [{key: (_count if key in INTEGERS else float)(row[key]) for key in METRICS} for row in rows]
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        raise UserError(f"{path}: expected the columns {', '.join(METRICS)}") from error


def begin_rows(path: Path, names: Sequence[str], last: int) -> None:
    """Rewrite a file, with these columns after epoch and seed: its rows up to an epoch.

    A damaged file, in which a line does not begin with an epoch, is started again with a message.
    """
    try:
        kept = [line for line in _whole_lines(path)[1:] if 1 <= int(line.partition(",")[0]) <= last]
    except ValueError:
        print(f"{path}: damaged; started again at epoch {last + 1}")
        kept = []
    write_atomically(path, _lines([(*INTEGERS, *names)]) + "".join(f"{line}\n" for line in kept))


def append_rows(path: Path, rows: Iterable[Sequence[Any]]) -> None:
    """Add the rows of one epoch and flush them to the disk, since the next checkpoint relies on them."""
    with naming(path), path.open("a", encoding="utf-8") as file:
        file.write(_lines(rows))
        file.flush()
        os.fsync(file.fileno())


def _count(text: str) -> int:
    if len(text) > 18:  # tables of all runs hold 64 bits
        raise ValueError(text)
    return int(text)


def _lines(rows: Iterable[Sequence[Any]]) -> str:
    """CSV, real numbers with nine digits."""
    texts = ([f"{value:.9g}" if isinstance(value, float) else str(value) for value in row] for row in rows)
    return "".join(f"{','.join(row)}\n" for row in texts)


def _whole_lines(path: Path) -> list[str]:
    """The lines of a file, without one that a kill cut off; none without the file."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return text[: text.rfind("\n") + 1].splitlines()


def epochs_to(rows: Iterable[MetricRow], seed: int, accuracy: float) -> int | None:
    """The first epoch at which a seed's validation sequence accuracy reached ``accuracy``; None if it never did."""
    return min((r["epoch"] for r in rows if r["seed"] == seed and r["val_seq_acc"] >= accuracy), default=None)


def kept_epochs(keep: str, last: int) -> Sequence[int]:
    """The epochs whose weights a run of ``last`` epochs keeps, ascending; ``log`` keeps eight of each decade.

    >>> [list(kept_epochs(keep, 10)) for keep in ("none", "every:4", "log")]
    [[], [4, 8], [1, 2, 3, 4, 6, 7, 10]]
    """
    if keep == "log":
        steps = range(round(8 * math.log10(max(last, 1))) + 1)
        return sorted({epoch for step in steps if (epoch := round(10 ** (step / 8))) <= last})
    step = {"none": last + 1, "all": 1}.get(keep) or int(keep.removeprefix("every:"))
    return range(step, last + 1, step)
