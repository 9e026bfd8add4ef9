"""Jobs: their seeds, and the packs that these are trained in, which the same command finds again."""

import itertools
from dataclasses import replace

import pytest

from arith_erd.config.compose import compose
from arith_erd.seeds import parse_seeds


def never(*_):
    raise AssertionError("the device was asked, though something else decides")


@pytest.fixture
def job_of(tmp_path):
    return lambda seed, *overrides: compose(
        "train", ["task.bits=3", f"runs_dir={tmp_path}", f"seed='{seed}'", *overrides]
    )


def begin(job):
    """What a run has on disk after its first epoch."""
    job.run.create(job.resolved)
    job.run.checkpoint.touch()


def test_probe_trains_nothing():
    assert compose("probe", ["probe=dataset"]).runs() == []


@pytest.mark.parametrize("seeds", ["0", "0-1", "0-18", "1,3,5,7-40", "0-63"])
@pytest.mark.parametrize("limit", [1, 2, 5, 64, "auto"])
def test_every_seed_is_in_one_pack_and_no_pack_is_too_large(seeds, limit):
    job = compose("train", [f"seed='{seeds}'"])
    for fit in (1, 3, 16, 100):
        packs = replace(job, pack=replace(job.pack, max_replicas=limit)).packs(lambda _, fit=fit: fit)
        assert tuple(itertools.chain.from_iterable(pack.seeds for pack in packs)) == parse_seeds(seeds)
        assert max(len(pack.seeds) for pack in packs) <= (fit if limit == "auto" else limit)


def test_pack_plan_already_begun_is_reused_even_while_its_runs_are_overwritten(job_of):
    first = job_of("0-19").packs(lambda job: 11)
    assert [pack.resolved["seed"] for pack in first] == ["0-7", "8-15", "16-19"]
    assert {pack.pack.part_of for pack in first} == {"0-19"}
    begin(first[0])
    assert job_of("0-19").packs(never) == job_of("0-19").packs() == first
    first[0].run.set_aside()
    assert job_of("0-19").packs(never) == first


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


def test_integer_pack_size_and_single_seed_ask_no_device(job_of):
    assert job_of("0").packs(never) == [job_of("0")]
    packs = job_of("0-4", "pack.max_replicas=2").packs(never)
    assert [pack.seeds for pack in packs] == [(0, 1), (2, 3), (4,)]
