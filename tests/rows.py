"""Write rows of ``metrics.csv`` and a summary with chosen values."""

from collections.abc import Iterable

from arith_erd.runs.directory import METRIC_COLUMNS, VALUE_COLUMNS, Row, Run, append_rows, truncate_rows


def row(epoch: int, seed: int, **values: float) -> Row:
    """A row of ``metrics.csv``, 0.5 in every column that is not given."""
    return dict.fromkeys(METRIC_COLUMNS, 0.5) | {"epoch": epoch, "seed": seed} | values


def write_metrics(run: Run, rows: Iterable[Row]) -> None:
    truncate_rows(run.metrics_file, VALUE_COLUMNS, last=0)
    append_rows(run.metrics_file, ([row[name] for name in METRIC_COLUMNS] for row in rows))


def finish(run: Run, seeds: Iterable[int], epochs: int = 1) -> None:
    """Write the summary of a finished run; its weights are not made."""
    about = {"params": 1, "train_flops": 1, "wall_seconds": 0, "versions": {}, "device": "a card"}
    run.finish(about | {"epochs": epochs, "seeds": [{"seed": seed} for seed in seeds]})
