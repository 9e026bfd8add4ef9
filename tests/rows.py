"""Rows of ``metrics.csv`` as a test wants them."""

from collections.abc import Iterable

from arith_erd.runs import METRICS, MetricRow, Run
from arith_erd.runs.epochs import append_rows, begin_rows


def write_metrics(run: Run, rows: Iterable[MetricRow]) -> None:
    begin_rows(run.metrics_file, METRICS[2:], last=0)
    append_rows(run.metrics_file, ([row[name] for name in METRICS] for row in rows))
