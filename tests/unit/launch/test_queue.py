"""The queue trains its list in order, several runs at a time if asked to, until the time is up."""

import signal
import subprocess
from dataclasses import dataclass, field

import pytest

from arith_erd.launch import queue
from arith_erd.launch.entries import Entry
from arith_erd.system.signals import Preempted


@pytest.fixture
def short(paper: list[Entry]) -> list[Entry]:
    return paper[:3]


@dataclass
class Programs:
    """Shell programs in place of trainings: the commands by which each is replaced, and what was started."""

    commands: list[str]
    started: list[str] = field(default_factory=list)
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    most: int = 0

    def start(self, overrides: tuple[str, ...], jobs: int) -> subprocess.Popen[bytes]:
        self.running.append(subprocess.Popen(["sh", "-c", self.commands[len(self.started)]]))
        self.started.append(overrides[-1])
        self.most = max(self.most, sum(process.poll() is None for process in self.running))
        return self.running[-1]


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Programs:
    found = Programs([])
    monkeypatch.setattr(queue, "start", found.start)
    monkeypatch.setattr(queue, "PAUSE", 0.01)
    return found


def test_failed_run_does_not_stop_the_queue(
    programs: Programs, capsys: pytest.CaptureFixture[str], short: list[Entry]
) -> None:
    programs.commands = ["exit 1", "exit 0", "exit 70"]
    assert queue.work(short, None) == 1
    assert len(programs.started) == 3
    failures = capsys.readouterr().err.splitlines()
    ends = {0: "its process ended with status 1", 2: "its process ended with status 70"}  # no file says why
    assert failures == [f"failed: {short[i].title}; {why}" for i, why in ends.items()]


@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_so_many_runs_train_at_a_time(programs: Programs, short: list[Entry], jobs: int) -> None:
    programs.commands = ["sleep 0.3"] * 3
    assert queue.work(short, None, jobs) == 0
    assert programs.most == jobs
    assert len(programs.started) == 3


def test_nothing_starts_when_the_time_is_up(
    programs: Programs, capsys: pytest.CaptureFixture[str], short: list[Entry]
) -> None:
    assert queue.work(short, queue.MARGIN) == 0
    assert not programs.started
    assert capsys.readouterr().out == "the time is up; the same command continues from here\n"


def test_time_limit_stops_all_runs_in_progress(programs: Programs, short: list[Entry]) -> None:
    programs.commands = ["exec sleep 60"] * 3
    assert queue.work(short, queue.MARGIN + 0.2, jobs=2) == 0
    assert [process.returncode for process in programs.running] == [-signal.SIGTERM] * 2


@pytest.mark.parametrize("status", ["kill -TERM $$", "exit 143"])
def test_run_that_somebody_stops_stops_the_queue(
    programs: Programs, capsys: pytest.CaptureFixture[str], short: list[Entry], status: str
) -> None:
    programs.commands = [f"sleep 0.1; {status}", "exec sleep 60"]
    assert queue.work(short, None, jobs=2) == 0
    assert len(programs.started) == 2
    assert programs.running[1].returncode == -signal.SIGTERM
    assert "stopped; the same command continues" in capsys.readouterr().out


@pytest.mark.parametrize("end", [Preempted(signal.SIGINT), OSError(12, "Cannot allocate memory")])
def test_whatever_ends_the_queue_stops_its_runs(
    programs: Programs, monkeypatch: pytest.MonkeyPatch, short: list[Entry], end: BaseException
) -> None:
    def look(seconds: float) -> None:
        raise end

    monkeypatch.setattr("time.sleep", look)
    programs.commands = ["exec sleep 60"] * 2
    with pytest.raises(type(end)):
        queue.work(short, None, jobs=2)
    assert [process.returncode for process in programs.running] == [-signal.SIGTERM] * 2


@pytest.mark.parametrize(("jobs", "threads"), [(1, None), (2, "4"), (3, "2"), (20, "1")])
def test_runs_share_the_processors(monkeypatch: pytest.MonkeyPatch, jobs: int, threads: str | None) -> None:
    environments = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, env, **_: environments.append(env))
    monkeypatch.setattr(queue, "usable_processors", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    queue.start(["seed=0"], jobs)
    assert environments[-1].get("OMP_NUM_THREADS") == threads
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    queue.start(["seed=0"], jobs)
    assert environments[-1]["OMP_NUM_THREADS"] == "5"


def test_wrong_option_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"^1$"):
        queue.main(["paper", "--hours", "-1"])
    assert capsys.readouterr().err.startswith("error: --hours=-1.0: expected a number above 0")
