"""Threads: as many as the process may use, unless the environment says otherwise; they sleep beside others' work."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from arith_erd.system import threads
from arith_erd.system.threads import Others, crowded, settle_threads, sleeping_beside_others, usable_processors


def container(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name.replace("__", "/").replace("cpu_max", "cpu.max").replace("cfs", "cpu.cfs")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with eight processors, and nothing said of threads."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "environ", {})


@pytest.mark.usefixtures("eight")
@pytest.mark.parametrize(
    ("files", "processors"),
    [
        ({}, 8),
        ({"cpu_max": "max 100000\n"}, 8),
        ({"cpu_max": "200000 100000\n"}, 2),
        ({"cpu_max": "150000 100000\n"}, 2),
        ({"cpu_max": "10000 100000\n"}, 1),
        ({"cpu_max": "nonsense"}, 8),
        ({"cpu__cfs_quota_us": "-1\n", "cpu__cfs_period_us": "100000\n"}, 8),
        ({"cpu__cfs_quota_us": "300000\n", "cpu__cfs_period_us": "100000\n"}, 3),
    ],
)
def test_cgroup_quota_limits_the_processors(tmp_path: Path, files: dict[str, str], processors: int) -> None:
    assert usable_processors(container(tmp_path, **files)) == processors


@pytest.mark.usefixtures("eight")
def test_affinity_limits_them_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    settle_threads(tmp_path)
    assert os.environ["OMP_NUM_THREADS"] == "1"


@pytest.mark.usefixtures("eight")
def test_number_that_the_environment_names_is_kept(tmp_path: Path) -> None:
    os.environ["OMP_NUM_THREADS"] = "5"
    settle_threads(container(tmp_path, cpu_max="200000 100000"))
    assert os.environ["OMP_NUM_THREADS"] == "5"


@pytest.mark.parametrize(
    ("others", "allowed", "threads", "sleep", "keep_sleeping"),
    [
        (0.2, 2, 2, False, False),
        (0.4, 2, 2, False, True),
        (0.6, 2, 2, True, True),
        (6.0, 8, 2, False, False),  # two processors are left for two threads
        (6.6, 8, 2, True, True),
        (6.0, 8, 4, True, True),
    ],
)
def test_threads_sleep_if_one_of_them_lacks_a_processor(
    others: float, allowed: int, threads: int, sleep: bool, keep_sleeping: bool
) -> None:
    assert crowded(others, allowed, threads) == sleep
    assert crowded(others, allowed, threads, already=True) == keep_sleeping


def work(root: Path, seconds: dict[int, float]) -> Path:
    """A machine whose processors have worked for so many seconds, half of them in the system, and waited for 40."""
    half = {processor: round(s * os.sysconf("SC_CLK_TCK") / 2) for processor, s in seconds.items()}
    lines = [f"cpu{processor} 0 {ticks} {ticks} 4000 4000 0 0 4000 0 0" for processor, ticks in half.items()]
    (root / "proc").mkdir(exist_ok=True)
    (root / "proc/stat.new").write_text("\n".join(["cpu  1 2 3 4 5 6 7", *lines, "intr 5", "softirq 6"]))
    (root / "proc/stat.new").replace(root / "proc/stat")  # another thread may be reading
    return root


@pytest.mark.usefixtures("eight")
def test_work_of_others_is_all_work_but_our_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of eight processors two are ours. In 10 s they worked for 15 s, of which this process had 9."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    clocks = {"process_time": 100.0, "monotonic": 1000.0}
    for name in clocks:
        monkeypatch.setattr(time, name, lambda name=name: clocks[name])
    others = Others(work(tmp_path, {0: 7, 1: 8, 2: 50}))
    work(tmp_path, {0: 15, 1: 15, 2: 60})
    clocks["process_time"] += 9
    clocks["monotonic"] += 10
    assert others.used() == pytest.approx(0.6)
    assert others.used() == 0, "no time has passed"


@pytest.mark.usefixtures("eight")
def test_machine_that_does_not_say_counts_as_idle(tmp_path: Path) -> None:
    assert Others(tmp_path).used() == 0


def os_threads() -> int:
    return len(os.listdir("/proc/self/task"))


def become(number: int) -> bool:
    """Whether this process comes to have that many threads."""
    until = time.monotonic() + 30
    while os_threads() != number and time.monotonic() < until:
        time.sleep(0.01)
    return os_threads() == number


@pytest.fixture
def two_of_four(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two threads compute, four processors are allowed, and the environment does not say how to wait."""
    before = torch.get_num_threads()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr(threads, "LOOK", 0.01)
    for name in threads.CHOSEN:
        monkeypatch.delenv(name, raising=False)
    torch.set_num_threads(2)
    torch.ones(1 << 20).add_(1)  # the team that computes
    yield
    torch.set_num_threads(before)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux")
@pytest.mark.skipif(not torch.backends.openmp.is_available(), reason="needs OpenMP")
@pytest.mark.usefixtures("two_of_four")
def test_threads_sleep_when_work_begins_and_spin_when_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GNU OpenMP lets waiting threads sleep if it has more of them than processors.

    Two of its threads compute on four processors, so three more teams of two make five.
    """
    alone = os_threads()
    monkeypatch.setattr(Others, "used", lambda _: 0.0)
    with sleeping_beside_others(work(tmp_path, {0: 1.0})):
        for _ in range(2):
            assert become(alone + 1), "the one that watches"
            monkeypatch.setattr(Others, "used", lambda _: 4.0)
            assert become(alone + 1 + 3 * 2)
            monkeypatch.setattr(Others, "used", lambda _: 0.0)
        assert become(alone + 1)
        monkeypatch.setattr(Others, "used", lambda _: 4.0)
        assert become(alone + 1 + 3 * 2)
    assert become(alone)


@pytest.mark.usefixtures("two_of_four")
@pytest.mark.parametrize("chosen", threads.CHOSEN)
def test_nothing_is_watched_if_the_environment_says_how_to_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: str
) -> None:
    monkeypatch.setenv(chosen, "1000")
    monkeypatch.setattr(threads, "Thread", None)  # would fail
    with sleeping_beside_others(work(tmp_path, {0: 1.0})):
        pass


@pytest.mark.usefixtures("two_of_four")
def test_nothing_is_watched_where_the_machine_does_not_say_or_one_thread_computes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "Thread", None)  # would fail
    with sleeping_beside_others(tmp_path):
        pass
    torch.set_num_threads(1)
    with sleeping_beside_others(work(tmp_path, {0: 1.0})):
        pass
