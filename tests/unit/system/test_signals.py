"""Signals, in the process of the test itself."""

import contextlib
import os
import signal
import time

import pytest

from arith_erd.system import signals
from arith_erd.system.signals import Preempted, deferred, raise_pending, signals_caught
from tests.behaviour.interruption import Listener


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


@pytest.fixture(autouse=True)
def handlers_as_before():
    watched = {*signals.SIGNALS, *signals.OTHERS}
    before = {number: signal.getsignal(number) for number in (*watched, signal.SIGALRM)}
    yield
    for number in watched:
        assert signal.getsignal(number) == before[number]
    signal.signal(signal.SIGALRM, before[signal.SIGALRM])
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    raise_pending()  # nothing is left to say


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGUSR1, 128 + signal.SIGUSR1), (signal.SIGINT, 130)]
)
def test_exit_status_names_the_signal(number, status):
    with pytest.raises(Preempted) as stop, signals_caught():
        send(number)
    assert (stop.value.code, stop.value.signal) == (status, number)


def test_current_step_finishes_first():
    done = []
    with pytest.raises(Preempted), signals_caught(), deferred():
        send(signal.SIGTERM)
        done.append("the step")
        raise_pending()
        done.append("another")
    assert done == ["the step"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGUSR1])
@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda *_: None], ids=["ignored", "heard by another"])
def test_signal_that_somebody_else_has_decided_about_stays_with_them(number, handler):
    before = signal.signal(number, handler)
    try:
        with signals_caught():
            assert signal.getsignal(number) is handler
            send(number)
    finally:
        signal.signal(number, before)


@pytest.fixture
def listener(handlers_as_before, monkeypatch):
    """Somebody listens for SIGUSR1 and SIGUSR2; what takes too long takes a tenth of a second."""
    monkeypatch.setattr(signals, "GRACE", 0.1)
    listener = Listener()
    before = {number: signal.signal(number, listener) for number in signals.OTHERS}
    yield listener
    for number, handler in before.items():
        assert signal.getsignal(number) is listener
        signal.signal(number, handler)


@pytest.mark.parametrize("other", signals.OTHERS)
@pytest.mark.parametrize("installed", ["before", "within", "alone"])
def test_third_party_handler_runs_between_steps_and_training_continues(listener, other, installed):
    """Installed before our signals are caught or while they are; or nobody catches them, as in a script of Python."""
    with contextlib.ExitStack() as blocks:
        if installed != "alone":
            blocks.enter_context(signals_caught())
        if installed == "within":
            signal.signal(other, later := Listener())
            blocks.callback(signal.signal, other, listener)
            listener = later
        blocks.enter_context(deferred())
        send(other)
        assert signals.pending()
        assert not listener.heard
        raise_pending()
        assert listener.heard == [other]
        assert not signals.pending()
        time.sleep(0.3)  # no alarm is left
    assert listener.heard == [other]


@pytest.mark.parametrize("ours", [signal.SIGTERM, signal.SIGINT])
def test_own_signal_handled_after_a_third_party_handler(listener, ours):
    with pytest.raises(Preempted), signals_caught(), deferred():
        send(signal.SIGUSR2)
        send(ours)
        raise_pending()
        pytest.fail("went on")
    assert listener.heard == [signal.SIGUSR2]


@pytest.mark.parametrize("error", [SystemExit(-1), RuntimeError("timed out too many times")])
def test_exception_of_a_third_party_handler_ends_the_block(listener, error):
    def ends():
        if isinstance(error, SystemExit):
            send(signal.SIGTERM)  # too late: this is the end, and with that status
        raise error

    listener.work = ends
    with pytest.raises(type(error)) as raised, signals_caught(), deferred():
        send(signal.SIGUSR2)
        raise_pending()
    assert raised.value is error


@pytest.mark.parametrize(
    ("sent", "status"),
    [([signal.SIGTERM], 143), ([signal.SIGINT, signal.SIGINT], 130)],
    ids=["a step longer than the grace period", "a second interrupt"],
)
def test_program_does_not_wait_for_the_step(cli, sent, status):
    code = f"""
import os, time
from arith_erd.system import cli_errors, signals
signals.GRACE = 0.2
with signals.signals_caught(), signals.deferred():
    for number in {[int(number) for number in sent]}:
        os.kill(os.getpid(), number)
    time.sleep(30)
"""
    result = cli("-c", code, timeout=20)
    assert (result.returncode, result.stderr) == (status, "")
