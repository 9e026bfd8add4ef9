"""What runs will cost follows from the timings of others in the same folder."""

from pathlib import Path
from statistics import median

import pytest

from arith_erd.config.compose import compose
from arith_erd.config.read import read_run
from arith_erd.launch.cost import cost, kind_of, timings, total
from arith_erd.launch.entries import Entry
from arith_erd.runs import METRICS


def test_timings_of_small_tables_say_nothing_of_large_ones(paper: list[Entry]) -> None:
    entry, small = paper[0], (64, 8, "transformer", "add", "none")
    assert cost(entry, {small: 0.01}) is None
    assert cost(entry, {small: 0.01, (16384, 128, "transformer", "mul", "none"): 2.0}) == 100


def test_printed_cost_is_remaining_epochs_times_measured_epoch_time(trained_pack) -> None:
    measured = timings(trained_pack.path.parent)
    ((kind, seconds),) = measured.items()
    assert seconds == pytest.approx(median(row["seconds"] for row in trained_pack.metrics()) / 2)
    job = read_run(trained_pack)
    entry = Entry(("seed=[3,5]",), (), job)
    assert kind_of(job) == kind
    assert cost(entry, measured) == 0  # all four epochs are done
    assert cost(entry, {}) is None


def test_epoch_in_which_the_machine_slept_does_not_count(tmp_path: Path) -> None:
    job = compose("train", ["seed=0", f"runs_dir={tmp_path}"])
    job.run.create(job.resolved)
    seconds = dict(enumerate((30.0, 10.0, 9000.0, 10.0), 1))
    job.run.write_metrics(
        [dict.fromkeys(METRICS, 0.5) | {"epoch": e, "seed": 0, "seconds": s} for e, s in seconds.items()]
    )
    assert list(timings(tmp_path).values()) == [20.0]


@pytest.mark.parametrize(
    ("seconds", "unknown", "jobs", "says"),
    [
        (5400, 0, 1, "About 2 hours, by the timings in the runs folder"),
        (5400, 3, 2, "About 2 hours of runs, 2 at a time, by the timings in the runs folder; not counted: 3 runs"),
        (0, 1, 2, "How many hours is not known for 1 run of models that were never timed here"),
        (0, 0, 1, "About 0 hours, by "),
    ],
)
def test_total_names_what_it_does_not_count(seconds: float, unknown: int, jobs: int, says: str) -> None:
    assert total(seconds, unknown, jobs).startswith(says)
