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
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"


@pytest.mark.usefixtures("eight")
def test_environment_variables_take_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    container(tmp_path, cpu_max="200000 100000")
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    monkeypatch.setenv("GOMP_SPINCOUNT", "1000")
    settle_threads(tmp_path)
    assert os.environ["OMP_NUM_THREADS"] == "5"
    assert "OMP_WAIT_POLICY" not in os.environ


@pytest.mark.usefixtures("eight")
def test_idle_machine_keeps_torchs_thread_count(tmp_path: Path) -> None:
    settle_threads(tmp_path)
    assert "OMP_NUM_THREADS" not in os.environ
