"""``metrics.csv``: one row per epoch and seed. Only this file reads and writes it.

Accuracies are fractions in [0, 1], measured after the epoch with dropout off. ``seconds`` is the duration of the epoch.
Epochs count from 1.
"""

import csv
import io
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..system.files import naming, read_text, write_atomically

METRICS = (
    "epoch",
    "seed",
    "train_loss",
    "train_token_acc",
    "train_seq_acc",
    "val_token_acc",
    "val_seq_acc",
    "seconds",
)
INTEGERS = ("epoch", "seed")

Row = dict[str, Any]


def read_metrics(path: Path) -> list[Row]:
    """The rows, oldest first; none if there is no such file. An unfinished last line, cut off by a kill, is dropped.

    Raises:
        UserError: if the columns of `METRICS` are not all there, or a value is not a number.
    """
    try:
        text = read_text(path)
        rows = csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1]))
        return [{key: (int if key in INTEGERS else float)(row[key]) for key in METRICS} for row in rows]
    except FileNotFoundError:
        return []
    except (OSError, KeyError, TypeError, ValueError, csv.Error) as error:
        raise UserError(f"{path}: not the columns {', '.join(METRICS)}") from error


def write_metrics(path: Path, rows: Iterable[Row]) -> None:
    """Replace the file."""
    lines = [",".join(METRICS), *(_line(row) for row in rows)]
    write_atomically(path, "\n".join(lines) + "\n")


def append_metrics(path: Path, rows: Iterable[Row]) -> None:
    """Add the rows of one epoch and flush them to the disk, since the next checkpoint relies on them."""
    with naming(path), path.open("a") as file:
        file.write("".join(_line(row) + "\n" for row in rows))
        file.flush()
        os.fsync(file.fileno())


def epochs_to(rows: Iterable[Row], seed: int, accuracy: float) -> int | None:
    """The first epoch at which a seed's validation sequence accuracy reached ``accuracy``; None if it never did."""
    return min((r["epoch"] for r in rows if r["seed"] == seed and r["val_seq_acc"] >= accuracy), default=None)


def _line(row: Row) -> str:
    return ",".join(str(row[key]) if key in INTEGERS else f"{row[key]:.9g}" for key in METRICS)
