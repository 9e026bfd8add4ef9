"""Seeds are split into packs: all of them, each once, and the same way when the command is given again."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile

from arith_erd.config.compose import compose
from arith_erd.models import NanoGPT, Transformer
from arith_erd.runs import Run
from arith_erd.runs.plan import packs
from arith_erd.seeds import parse_seeds
from arith_erd.training.train import fitting_replicas, memory


def never(config):
    raise AssertionError("the device was asked, though something else decides")


@given(
    seeds=st.lists(st.integers(0, 500), min_size=1, max_size=60, unique=True),
    limit=st.one_of(st.just("auto"), st.integers(1, 70)),
    fit=st.integers(1, 70),
)
def test_every_seed_is_in_one_pack_and_none_holds_too_many(config_at, seeds, limit, fit):
    config = config_at("nowhere") | {"seed": seeds, "pack": {"max_replicas": limit}}
    parts = [parse_seeds(pack["seed"]) for pack in packs(config, lambda config: fit)]
    assert sorted(itertools.chain.from_iterable(parts)) == sorted(seeds)
    assert max(map(len, parts)) <= (fit if limit == "auto" else limit)


def begin(config):
    """What a run has on disk after its first epoch."""
    run = Run.of(config)
    run.create(config)
    run.checkpoint.touch()


@pytest.fixture(scope="module")
def config_at():
    config = compose("train", ["task.bits=3"])
    return lambda folder: config | {"runs_dir": str(folder)}


def test_what_has_begun_goes_on_in_the_same_packs_however_much_memory_is_free(config_at, tmp_path):
    config = config_at(tmp_path) | {"seed": "0-19"}
    first = packs(config, lambda config: 11)
    assert [pack["seed"] for pack in first] == ["0-7", "8-15", "16-19"]
    begin(first[0])
    assert packs(config, never) == packs(config) == first


def test_one_pack_that_has_begun_is_not_split(config_at, tmp_path):
    config = config_at(tmp_path) | {"seed": "0-19"}
    begin(config)
    assert packs(config, never) == [config]


def test_a_run_of_the_first_seeds_alone_splits_nothing(config_at, tmp_path):
    for seeds in ("0", "0-1"):
        begin(config_at(tmp_path) | {"seed": seeds})
    config = config_at(tmp_path) | {"seed": "0-19"}
    assert packs(config, lambda config: 20) == [config]


def test_a_pack_that_never_ended_an_epoch_may_be_split_after_all(config_at, tmp_path):
    config = config_at(tmp_path) | {"seed": "0-3"}
    Run.of(config).create(config)
    assert len(packs(config, lambda config: 2)) == 2


def test_a_number_and_a_single_seed_ask_no_device(config_at, tmp_path):
    config = config_at(tmp_path)
    assert packs(config, never) == [config]
    parts = packs(config | {"seed": "0-4", "pack": {"max_replicas": 2}}, never)
    assert [part["seed"] for part in parts] == ["0-1", "2-3", "4"]


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
    tokens = [torch.zeros(64, n, dtype=torch.int64) for n in (15, 8)]
    counted = on_meta(Transformer, 64) - 4 * 4 * sum(p.numel() for p in network.parameters())
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        logits = network(*tokens)
    kept = sum(event.self_cpu_memory_usage for event in profiler.events())
    del logits
    assert counted == pytest.approx(kept, rel=0.1)


def test_the_device_is_asked_in_a_line(config_at, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(memory, "free_bytes", lambda device: 2**30)
    config = compose("train", ["seed=0-255", "trainer.accelerator=cpu", f"runs_dir={tmp_path}"])
    parts = packs(config, fitting_replicas)
    assert len(parts) in (64, 128, 256)  # 1 GiB holds two to four
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("pack.max_replicas=auto: 0.")
    assert line.endswith("; 256 replicas become several packs")
