"""What does not fit into memory is refused in one line, before anything is allocated."""

from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from arith_erd.config.compose import compose
from arith_erd.errors import UserError
from arith_erd.models.dropout import set_dropout_keys
from arith_erd.training import run_pack
from arith_erd.training.run_pack import available_bytes, memory_errors_explained, replica_bytes, require_room
from arith_erd.training.train import train
from tests.tiny import TINY

CPU = torch.device("cpu")
MACHINE = 16 * 2**30


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """16 GiB without limits; the root of its files, in which control groups may have one."""
    monkeypatch.setattr("os.sysconf", lambda name: {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": MACHINE // 4096}[name])
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_bytes(b"0::/a\xff/b\n")
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize(
    ("files", "gibibytes"),
    [
        ({}, 16),
        ({"memory.max": "max\n"}, 16),
        ({"memory.max": f"{4 * 2**30}\n"}, 4),
        ({"memory/memory.limit_in_bytes": f"{3 * 2**30}\n"}, 3),
        ({"memory/memory.limit_in_bytes": f"{2**63 - 4096}\n"}, 16),
    ],
)
def test_limits_of_machine_and_container_count(machine: Path, files: dict[str, str], gibibytes: int) -> None:
    for name, text in files.items():
        path = machine / "sys/fs/cgroup" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert available_bytes(CPU, machine) == gibibytes * 2**30


def test_memory_counted_on_meta_is_what_a_step_on_the_cpu_keeps():
    """Against the allocator: bytes that live between a forward pass and its backward pass."""
    job = compose("train", ["data.batch_size=64"])
    assert replica_bytes(job) > replica_bytes(compose("train", ["data.batch_size=1"])) > 16 * 701_381
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        network = job.network()
        set_dropout_keys(network, torch.zeros(2, dtype=torch.int32))
        logits = network(*(torch.zeros(64, n, dtype=torch.int64) for n in (15, 8)))
    kept = sum(event.self_cpu_memory_usage for event in profiler.events())
    del logits
    assert replica_bytes(job) - 3 * 4 * 701_381 == pytest.approx(kept, rel=0.1)


def test_pack_that_does_not_fit_is_refused_before_anything_is_written(runs_dir, monkeypatch):
    job = compose("train", [*TINY, "seed=0-9", f"runs_dir={runs_dir}"])
    for bytes_, said in (
        (replica_bytes(job) // 2, r"10 replicas .*\(at least .* GiB, and there are "),
        (9 * replica_bytes(job), r"10 replicas .* too large .*smaller pack\.max_replicas"),
    ):
        monkeypatch.setattr(run_pack, "available_bytes", lambda device, free=bytes_: free)
        with pytest.raises(UserError, match=f"^seed=0-9: {said}"):
            train(job)
    assert not runs_dir.exists()
    require_room(compose("train", [*TINY, "seed=0-8"]), CPU)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA"), MemoryError(), None])
def test_allocation_that_fails_is_one_line(error):
    said = r"^seed=0: .*out of memory.* smaller data\.batch"
    with pytest.raises(UserError, match=said), memory_errors_explained(compose("train", TINY), CPU):
        if error is not None:
            raise error
        torch.empty(2**52)
