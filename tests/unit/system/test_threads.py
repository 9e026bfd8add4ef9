"""Threads: as many as the process may use, unless the environment says otherwise; they sleep beside others' work."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from arith_erd.system import threads
from arith_erd.system.processors import Available
from arith_erd.system.threads import settle_threads, sleeping_beside_others

MAPS = Path("/proc/self/maps")
"""Libraries that this process has loaded."""


def test_there_are_as_many_threads_as_usable_processors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3}, raising=False)
    monkeypatch.setattr(os, "environ", {})
    settle_threads(tmp_path)
    assert os.environ["OMP_NUM_THREADS"] == "1"


def test_number_that_the_environment_names_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3}, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    settle_threads(tmp_path)
    assert os.environ["OMP_NUM_THREADS"] == "5"


@contextmanager
def computing(number: int) -> Iterator[None]:
    """So many threads of torch's."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Two threads compute; what ``processors`` says is available to them, and the environment says nothing."""
    now = {"processors": 2.0}
    monkeypatch.setattr(Available, "known", True)
    monkeypatch.setattr(Available, "processors", lambda _: now["processors"])
    monkeypatch.setattr(threads, "FIRST", 0.001)
    monkeypatch.setattr(threads, "LOOK", 0.001)
    for name in threads.CHOSEN:
        monkeypatch.delenv(name, raising=False)
    return now


def leaders() -> int:
    """Python threads whose teams have nothing to do; while there are any, threads sleep."""
    return sum(thread.name == "leader" for thread in threading.enumerate())


def become(number: int) -> bool:
    """Whether there come to be so many leaders."""
    until = time.monotonic() + 30
    while leaders() != number and time.monotonic() < until:
        time.sleep(0.001)
    return leaders() == number


def stay(number: int) -> bool:
    """Whether there are so many leaders for as long as a hundred looks take."""
    return all(leaders() == number for _ in range(100) if time.sleep(0.001) is None)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs Linux")
def test_threads_sleep_while_one_of_them_lacks_half_a_processor(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    with computing(2), sleeping_beside_others():
        for _ in range(2):
            machine["processors"] = 1.6
            assert stay(0)
            machine["processors"] = 1.4
            assert become(1)
            machine["processors"] = 1.6
            assert stay(1), "they spin again when less than a quarter is missing"
            machine["processors"] = 1.8
            assert become(0)
        machine["processors"] = 1.4
        assert become(1)
    assert leaders() == 0, "no thread is left when the block ends"
    assert not any(thread.name == "watch" for thread in threading.enumerate())


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs Linux")
def test_after_a_nap_one_look_decides_while_threads_spin(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others of a low priority fill what sleeping threads leave: 1.4 while they sleep, and 1.6 while they spin."""
    monkeypatch.setattr(threads, "NAP", 0.01)
    monkeypatch.setattr(Available, "processors", lambda _: 1.6 if asleep else 1.4)
    asleep = False
    with computing(2), sleeping_beside_others():
        assert become(1)
        asleep = True
        assert become(0)
        assert stay(0)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs Linux")
@pytest.mark.parametrize(
    ("computing_threads", "processors", "teams"),
    [(2, 1, 0), (2, 2, 1), (2, 4, 3), (5, 8, 2), (8, 8, 1), (8, 64, 9), (2, 65, 64), (2, 1000, 0)],
)
def test_teams_of_idle_threads_outnumber_the_processors(
    machine, monkeypatch: pytest.MonkeyPatch, computing_threads: int, processors: int, teams: int
) -> None:
    """Beside any team of two or more; each adds its threads but its leader. Hundreds of threads are not worth it."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(processors)))
    monkeypatch.setattr(torch, "ones", lambda *_, **__: torch.zeros(1))  # the teams themselves do not matter here
    with threads._more_threads_than_processors(computing_threads):
        assert leaders() == teams
        if teams:
            assert 2 + teams * (computing_threads - 1) > processors
    assert leaders() == 0


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs Linux")
@pytest.mark.parametrize("failing", ["memory", "second thread", "room"])
def test_machine_without_room_for_threads_trains_on(machine, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    start, started = threading.Thread.start, []

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("not enough memory")

    def start_two(thread: threading.Thread) -> None:
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    if failing == "memory":
        monkeypatch.setattr(torch, "ones", fail)
    elif failing == "second thread":
        monkeypatch.setattr(threading.Thread, "start", start_two)
    else:
        monkeypatch.setattr(threads, "room_for_threads", lambda number: False)
    machine["processors"] = 0.0
    with computing(2), sleeping_beside_others():
        assert become({"memory": 3, "second thread": 1, "room": 0}[failing])
        machine["processors"] = 2.0
        assert become(0)


@pytest.mark.skipif(
    len(getattr(os, "sched_getaffinity", lambda _: ())(0)) < 2, reason="needs two processors, and Linux"
)
@pytest.mark.skipif(not MAPS.exists() or "libgomp" not in MAPS.read_text(), reason="needs GNU OpenMP")
def test_waiting_threads_use_no_processor_while_they_sleep(machine) -> None:
    """A thread that spins uses some milliseconds after each operation, in which there is nothing to do."""

    def seconds() -> float:
        numbers = torch.ones(100_000)
        numbers.add_(1)
        before = time.process_time()
        for _ in range(50):
            numbers.add_(1)
            time.sleep(0.01)
        return time.process_time() - before

    with computing(2):
        spinning = seconds()
        machine["processors"] = 0.0
        with sleeping_beside_others():
            assert become(len(os.sched_getaffinity(0)) - 1)
            sleeping = seconds()
    assert sleeping < spinning / 2


@pytest.mark.parametrize("chosen", threads.CHOSEN)
def test_nothing_is_watched_if_the_environment_decides(machine, monkeypatch: pytest.MonkeyPatch, chosen: str) -> None:
    monkeypatch.setenv(chosen, "1000")
    monkeypatch.setattr(threads, "Thread", None)  # would fail
    with computing(2), sleeping_beside_others():
        pass


def test_nothing_is_watched_without_use(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "Thread", None)  # would fail
    with computing(1), sleeping_beside_others():
        pass
    monkeypatch.setattr(Available, "known", False)
    with computing(2), sleeping_beside_others():
        pass
