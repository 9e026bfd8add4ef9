"""Seeds are split into packs: all of them, each once, and the same way when the command is given again."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile

from arith_erd.config.compose import compose
from arith_erd.models import NanoGPT, Transformer
from arith_erd.models.dropout import set_dropout_keys
from arith_erd.runs.plan import plan_packs
from arith_erd.training import memory
from arith_erd.training.assemble import capacity


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


def on_meta(network, batch):
    with torch.device("meta"):
        net = network(15, 8)
        return memory.training_bytes(net, *(torch.zeros(batch, n, dtype=torch.int64) for n in (15, 8)))


@pytest.mark.parametrize("network", [Transformer, NanoGPT])
def test_memory_of_a_replica_is_four_times_its_weights_and_so_much_an_example(network):
    """The part that grows with the batch is proportional to it, and bounded by what was counted by hand below."""
    weights = 4 * 4 * sum(p.numel() for p in network(15, 8).parameters())
    one, two = on_meta(network, 64), on_meta(network, 128)
    masks = 0.02 * (two - weights)  # of attention, and positions: the same for every batch size
    assert two - weights == pytest.approx(2 * (one - weights), abs=masks)


def test_memory_counted_on_meta_is_what_a_step_on_the_cpu_keeps():
    """Against the allocator: bytes that live between a forward pass and its backward pass."""
    network = Transformer(15, 8)
    set_dropout_keys(network, torch.zeros(2, dtype=torch.int32))
    tokens = [torch.zeros(64, n, dtype=torch.int64) for n in (15, 8)]
    counted = on_meta(Transformer, 64) - 4 * 4 * sum(p.numel() for p in network.parameters())
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        logits = network(*tokens)
    kept = sum(event.self_cpu_memory_usage for event in profiler.events())
    del logits
    assert counted == pytest.approx(kept, rel=0.1)


def test_packs_that_do_not_fit_are_announced_in_one_line(job_of, monkeypatch, capsys):
    monkeypatch.setattr(memory, "free_bytes", lambda device: 2**30)
    packs = job_of("0-255", "task.bits=7", "trainer.accelerator=cpu").packs(capacity)
    assert len(packs) in (64, 128, 256)  # 1 GiB holds two to four
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("pack.max_replicas=auto: 0.")
    assert line.endswith("; 256 replicas become several packs")
