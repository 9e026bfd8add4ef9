"""How many threads compute, and how they wait; what somebody else has set is kept."""

import os

import pytest

from arith_erd.system.machine import CHOSEN, SPINS, configure_threads


@pytest.fixture(autouse=True)
def eight_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*CHOSEN, "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "")  # so that it is as before after the test
        monkeypatch.delenv(name)
    monkeypatch.setattr("os.cpu_count", lambda: 8)


@pytest.mark.parametrize(("usable", "threads"), [(8, None), (3, "3"), (1, "1")])
def test_there_are_as_many_threads_as_processors_that_may_be_used(
    monkeypatch: pytest.MonkeyPatch, usable: int, threads: str | None
) -> None:
    monkeypatch.setattr("joblib.cpu_count", lambda: usable)
    configure_threads()
    assert os.environ.get("OMP_NUM_THREADS") == threads
    assert os.environ["GOMP_SPINCOUNT"] == SPINS


@pytest.mark.parametrize("name", CHOSEN)
def test_what_the_user_has_set_is_kept(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("joblib.cpu_count", lambda: 2)
    own = {name: "7", "OMP_NUM_THREADS": "5"}
    for key, value in own.items():
        monkeypatch.setenv(key, value)
    configure_threads()
    assert {key: os.environ[key] for key in (*CHOSEN, "OMP_NUM_THREADS") if key in os.environ} == own
