"""What the runs of a list will cost, by the timings of runs in the same folder."""

import math
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from ..config.job import Job
from ..config.read import read_run
from ..errors import UserError
from ..runs import Run
from .entries import Entry

Kind = tuple[int, int, str, str, str]
"""Examples, batch size, model, task and ablation: what the time of an epoch depends on most."""


def kind_of(job: Job) -> Kind:
    """``(16384, 128, "transformer", "add", "none")``."""
    return job.task.size, job.data.batch_size, job.model.name, job.task.name, job.ablation.name


def timings(runs_dir: Path) -> dict[Kind, float]:
    """Seconds of an epoch of one replica, the median over the runs of a kind that this machine's folder holds.

    Of each run the median epoch counts, so that one in which the machine slept does not.
    """
    found: dict[Kind, list[float]] = defaultdict(list)
    for path in sorted(runs_dir.glob("*/metrics.csv")):
        try:
            job = read_run(Run(path.parent))
            rows = Run(path.parent).metrics()
        except UserError:
            continue
        if rows:
            found[kind_of(job)].append(median(row["seconds"] for row in rows) / len(job.seeds))
    return {kind: median(seconds) for kind, seconds in found.items()}


def cost(entry: Entry, measured: Mapping[Kind, float]) -> float | None:
    """Seconds that a run still takes to its last epoch, about; None if nothing comparable has been timed here.

    The nearest timings count: of the same kind, else of another ablation, else of another task of the same size.
    """
    for known in (5, 4, 3):
        if seconds := [value for kind, value in measured.items() if kind[:known] == kind_of(entry.job)[:known]]:
            return median(seconds) * entry.epochs_left
    return None


def total(seconds: float, unknown: int, jobs: int) -> str:
    """``About 8 hours of runs, 2 at a time, by the timings in the runs folder``."""
    never = f"{unknown} run{'s' if unknown > 1 else ''} of models that were never timed here"
    if unknown and not seconds:
        return f"How many hours is not known for {never}"
    parallel = f" of runs, {jobs} at a time" if jobs > 1 else ""
    beside = f"; not counted: {never}" if unknown else ""
    return f"About {math.ceil(seconds / 3600)} hours{parallel}, by the timings in the runs folder{beside}"
