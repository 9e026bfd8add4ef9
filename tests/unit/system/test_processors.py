"""How many processors the process may use, by affinity and quota, and how many others leave to it."""

import math
import os
import time
from pathlib import Path

import pytest

from arith_erd.system.processors import Available, room_for_threads, usable_processors


@pytest.fixture(autouse=True)
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with eight processors."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "processors"),
    [
        ({}, 8),
        ({"cpu.max": "max 100000\n"}, 8),
        ({"cpu.max": "200000 100000\n"}, 2),
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "10000 100000\n"}, 1),
        ({"cpu.max": "nonsense"}, 8),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
        ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
    ],
)
def test_cgroup_quota_limits_the_processors(tmp_path: Path, files: dict[str, str], processors: int) -> None:
    write(tmp_path, {f"sys/fs/cgroup/{name}": text for name, text in files.items()})
    assert usable_processors(tmp_path) == processors


@pytest.mark.parametrize(
    ("quotas", "processors"),
    [({"jobs": 4, "jobs/mine": 6}, 4), ({"jobs/mine": 3}, 3), ({"other": 1, "jobs/mine/child": 1}, 8)],
)
def test_least_quota_of_the_groups_above_counts(tmp_path: Path, quotas: dict[str, int], processors: int) -> None:
    write(tmp_path, {"proc/self/cgroup": "1:name=systemd:/x\n0::/jobs/mine\n"})
    write(tmp_path, {f"sys/fs/cgroup/{group}/cpu.max": f"{quota * 1000} 1000\n" for group, quota in quotas.items()})
    assert usable_processors(tmp_path) == processors


def test_affinity_limits_the_processors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5})
    assert usable_processors(tmp_path) == 2


class Machine:
    """A file system that says for how long each processor has worked, and each control group."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.clock, self.own = 1000.0, 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.clock)
        monkeypatch.setattr(time, "process_time", lambda: self.own)

    def after(self, seconds: float, own: float, work: dict[int, float], group: float | None = None) -> "Machine":
        """So much later, this process has worked for ``own`` seconds more; the rest counts from the machine's start."""
        self.clock += seconds
        self.own += own
        half = {processor: round(s * os.sysconf("SC_CLK_TCK") / 2) for processor, s in work.items()}
        lines = [f"cpu{processor} 0 {ticks} {ticks} 4000 4000 0 0 4000 0 0" for processor, ticks in half.items()]
        write(self.root, {"proc/stat": "\n".join(["cpu  1 2 3 4 5 6 7", *lines, "intr 5", "softirq 6"])})
        if group is not None:
            text = f"usage_usec {round(group * 1e6)}\nuser_usec 1\n"
            write(self.root, {"sys/fs/cgroup/cpu.max": "200000 100000\n", "sys/fs/cgroup/cpu.stat": text})
        return self


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_all_work_but_our_own_is_that_of_others(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of eight processors are ours. In 10 s they worked for 15 s, of which this process had 9: others used 0.6."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    available = Available(machine.after(0, 0, {0: 7, 1: 8, 2: 50}).root)
    assert available.known
    machine.after(10, 9, {0: 15, 1: 15, 2: 60})
    assert available.processors() == pytest.approx(2 - 0.6)
    machine.after(10, 3, {0: 18, 1: 15, 2: 70})
    assert available.processors() == pytest.approx(2), "since the last call"
    assert available.processors() == math.inf, "no time has passed"


def test_in_a_container_its_quota_counts_and_the_work_inside(machine: Machine) -> None:
    """The machine has eight processors, of which six are idle; the container may use two, and others in it use one."""
    available = Available(machine.after(0, 0, dict.fromkeys(range(8), 0.0), group=50).root)
    machine.after(10, 10, {0: 10, 1: 10} | dict.fromkeys(range(2, 8), 0.0), group=70)
    assert available.processors() == pytest.approx(1)


def test_what_cannot_be_compared_is_not_known(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not Available(machine.root).known, "no /proc/stat"
    available = Available(machine.after(0, 0, {0: 1, 1: 1}).root)
    (machine.root / "proc/stat").unlink()
    machine.clock += 1
    assert available.processors() == math.inf, "it cannot be read"
    machine.after(1, 0, {0: 2, 1: 2})
    assert available.processors() == math.inf, "and could not be before"
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    machine.after(1, 0, {0: 2, 1: 2})
    assert available.processors() == math.inf, "fewer processors than before"
    machine.after(1, 0, {0: 3, 1: 2})
    assert available.processors() == pytest.approx(0)


def test_there_is_room_for_threads_below_the_limit_of_the_container(tmp_path: Path) -> None:
    assert room_for_threads(1000, tmp_path)
    write(tmp_path, {"sys/fs/cgroup/pids.max": "max\n", "sys/fs/cgroup/pids.current": "90\n"})
    assert room_for_threads(1000, tmp_path)
    write(tmp_path, {"sys/fs/cgroup/pids.max": "100\n"})
    assert room_for_threads(9, tmp_path)
    assert not room_for_threads(10, tmp_path)
