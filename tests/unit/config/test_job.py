"""What a job says of itself. How it is read from a configuration is in ``test_compose.py``."""

from arith_erd.config.compose import compose
from arith_erd.config.job import Job, ProbeJob


def test_job_with_other_seeds_is_the_one_composed_with_them() -> None:
    job: Job = compose("train", ["task=mul", "seed=0-4"])
    other = job.with_seeds((7,))
    composed = compose("train", ["task=mul", "seed=7"])
    assert other.run.path == composed.run.path != job.run.path
    assert other.resolved | {"seed": 7} == composed.resolved


def test_probe_trains_nothing() -> None:
    job: ProbeJob = compose("probe", ["probe=dataset"])
    assert job.runs() == []
