"""How many threads compute is what the process may use, unless the environment says otherwise."""

import os
from pathlib import Path

import pytest

from arith_erd.system.threads import settle_threads, usable_processors


def container(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name.replace("__", "/").replace("cpu_max", "cpu.max").replace("cfs", "cpu.cfs")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def beside(root: Path, monkeypatch: pytest.MonkeyPatch, idle: float) -> None:
    """A machine where the first ``idle`` of eight processors do nothing while the program watches."""
    seconds = 0.0

    def write() -> None:
        ticks = os.sysconf("SC_CLK_TCK") * seconds
        lines = [f"cpu{p} 7 0 7 {100 + round(ticks * min(max(idle - p, 0), 1))} 0 0 0" for p in range(8)]
        (root / "proc").mkdir(exist_ok=True)
        (root / "proc/stat").write_text("\n".join(["cpu  1 2 3 4", *lines, "intr 5", "softirq 6"]))

    def sleep(duration: float) -> None:
        nonlocal seconds
        seconds += duration
        write()

    write()
    monkeypatch.setattr("time.sleep", sleep)


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
@pytest.mark.parametrize(("idle", "policy"), [(8, None), (7.6, None), (7, "PASSIVE"), (0, "PASSIVE")])
def test_threads_sleep_only_beside_other_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, idle: float, policy: str | None
) -> None:
    beside(tmp_path, monkeypatch, idle)
    settle_threads(tmp_path)
    assert os.environ.get("OMP_WAIT_POLICY") == policy
    assert "OMP_NUM_THREADS" not in os.environ  # results do not depend on what else runs


@pytest.mark.usefixtures("eight")
@pytest.mark.parametrize(
    ("threads", "idle", "policy"),
    [("4", 4, None), ("4,2", 4, None), ("4", 3, "PASSIVE"), ("1", 0, None), ("x", 4, "PASSIVE")],
)
def test_fewer_threads_need_fewer_idle_processors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: str, idle: float, policy: str | None
) -> None:
    beside(tmp_path, monkeypatch, idle)
    os.environ["OMP_NUM_THREADS"] = threads
    settle_threads(tmp_path)
    assert os.environ.get("OMP_WAIT_POLICY") == policy


@pytest.mark.usefixtures("eight")
def test_only_processors_that_are_allowed_are_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of eight are ours, and the six that are busy are others'."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    beside(tmp_path, monkeypatch, idle=2)
    settle_threads(tmp_path)
    assert "OMP_WAIT_POLICY" not in os.environ


@pytest.mark.usefixtures("eight")
@pytest.mark.parametrize("chosen", ["GOMP_SPINCOUNT", "OMP_WAIT_POLICY"])
def test_environment_variables_take_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: str) -> None:
    container(tmp_path, cpu_max="200000 100000")
    beside(tmp_path, monkeypatch, idle=0)
    given = {"OMP_NUM_THREADS": "5", chosen: "1000"}
    monkeypatch.setattr(os, "environ", dict(given))
    settle_threads(tmp_path)
    assert {name: value for name, value in os.environ.items() if "OMP" in name} == given


@pytest.mark.usefixtures("eight")
def test_a_machine_that_cannot_be_watched_counts_as_idle(tmp_path: Path) -> None:
    settle_threads(tmp_path)
    assert "OMP_WAIT_POLICY" not in os.environ
