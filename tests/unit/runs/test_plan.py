"""Seeds are split into packs: all of them, each once, and the same way when the command is given again."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arith_erd.config.compose import compose
from arith_erd.runs.plan import plan_packs


def never(*_):
    raise AssertionError("the device was asked, though something else decides")


@given(
    seeds=st.lists(st.integers(0, 500), min_size=1, max_size=60, unique=True).map(sorted).map(tuple),
    limit=st.one_of(st.just("auto"), st.integers(1, 70)),
    fit=st.integers(1, 70),
)
def test_every_seed_is_in_one_pack_and_no_pack_is_too_large(seeds, limit, fit):
    packs = plan_packs(seeds, limit, lambda seeds: False, lambda: fit)
    assert tuple(itertools.chain.from_iterable(packs)) == seeds
    assert max(map(len, packs)) <= (fit if limit == "auto" else limit)


def begin(job):
    """What a run has on disk after its first epoch."""
    job.run.create(job.resolved)
    job.run.checkpoint.touch()


@pytest.fixture
def job_of(tmp_path):
    return lambda seed, *overrides: compose(
        "train", ["task.bits=3", f"runs_dir={tmp_path}", f"seed='{seed}'", *overrides]
    )


def test_pack_plan_already_begun_is_reused(job_of):
    first = job_of("0-19").packs(lambda job: 11)
    assert [pack.resolved["seed"] for pack in first] == ["0-7", "8-15", "16-19"]
    assert {pack.pack.part_of for pack in first} == {"0-19"}
    begin(first[0])
    assert job_of("0-19").packs(never) == job_of("0-19").packs() == first


def test_pack_that_has_begun_is_not_split(job_of):
    begin(job_of("0-19"))
    assert job_of("0-19").packs(never) == [job_of("0-19")]


def test_run_of_the_first_seeds_does_not_split_the_pack(job_of):
    for seeds in ("0", "0-1"):
        begin(job_of(seeds))
    assert job_of("0-19").packs(lambda job: 20) == [job_of("0-19")]


def test_pack_without_a_finished_epoch_may_be_split(job_of):
    job = job_of("0-3")
    job.run.create(job.resolved)
    assert len(job.packs(lambda job: 2)) == 2


def test_integer_pack_size_and_single_seed_query_no_device(job_of):
    assert job_of("0").packs(never) == [job_of("0")]
    packs = job_of("0-4", "pack.max_replicas=2").packs(never)
    assert [pack.seeds for pack in packs] == [(0, 1), (2, 3), (4,)]
