"""Signals end a program after its step, unless somebody else has decided about them."""

import contextlib
import os
import signal
import time

import pytest

from arith_erd.report import __main__ as report
from arith_erd.system import signals
from arith_erd.system.signals import Interrupted, catch_signals, defer_signals, raise_pending
from tests.behaviour.interruption import Listener


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


@pytest.fixture(autouse=True)
def handlers_as_before():
    watched = {*signals.SIGNALS, *signals.THIRD_PARTY_SIGNALS}
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
    with pytest.raises(Interrupted) as stop, catch_signals():
        send(number)
    assert (stop.value.code, stop.value.signal) == (status, number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGUSR1])
@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda *_: None], ids=["ignored", "heard by another"])
def test_signal_that_somebody_else_has_decided_about_stays_with_them(number, handler):
    before = signal.signal(number, handler)
    try:
        with catch_signals():
            assert signal.getsignal(number) is handler
            send(number)
    finally:
        signal.signal(number, before)


@pytest.fixture
def listener(handlers_as_before, monkeypatch):
    """Somebody listens for SIGUSR1 and SIGUSR2; what takes too long takes a tenth of a second."""
    monkeypatch.setattr(signals, "GRACE_SECONDS", 0.1)
    listener = Listener()
    before = {number: signal.signal(number, listener) for number in signals.THIRD_PARTY_SIGNALS}
    yield listener
    for number, handler in before.items():
        assert signal.getsignal(number) is listener
        signal.signal(number, handler)


@pytest.mark.parametrize("other", signals.THIRD_PARTY_SIGNALS)
@pytest.mark.parametrize("installed", ["before", "within", "alone"])
def test_third_party_handler_runs_between_steps_and_training_continues(listener, other, installed):
    """Installed before our signals are caught or while they are; or nobody catches them, as in a script of Python."""
    with contextlib.ExitStack() as blocks:
        if installed != "alone":
            blocks.enter_context(catch_signals())
        if installed == "within":
            signal.signal(other, later := Listener())
            blocks.callback(signal.signal, other, listener)
            listener = later
        blocks.enter_context(defer_signals())
        send(other)
        assert signals.pending()
        assert not listener.heard
        raise_pending()
        assert listener.heard == [other]
        assert not signals.pending()
        time.sleep(0.3)  # no alarm is left
    assert listener.heard == [other]


@pytest.mark.parametrize(("sent", "status"), [([signal.SIGTERM], 143), ([signal.SIGINT, signal.SIGINT], 130)], ids=str)
def test_program_does_not_wait_for_the_step(cli, sent, status):
    code = f"""
import os, time
from arith_erd.system import cli_errors, signals
signals.GRACE_SECONDS = 0.2
with signals.catch_signals(), signals.defer_signals():
    for number in {[int(number) for number in sent]}:
        os.kill(os.getpid(), number)
    time.sleep(30)
"""
    result = cli("-c", code, timeout=20)
    assert (result.returncode, result.stderr) == (status, "")


@pytest.mark.parametrize("command", ["arith", "train", "probe", "runs", "report"])
def test_ctrl_c_ends_a_command_that_still_loads_its_program(cli, command):
    code = f"""
import os, signal, sys
from arith_erd import __main__
class Interrupting:
    def find_spec(name, *_):
        if name == "numpy":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting)
sys.argv = ["arith-{command}"]
__main__.{command}()
"""
    result = cli("-c", code, timeout=20)
    assert (result.returncode, result.stderr) == (130, "SIGINT: stopped\n")


def test_ctrl_c_that_a_library_turns_into_an_error_ends_a_report(monkeypatch):
    def build(*_, **__):
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except BaseException as error:
            raise TypeError("Cannot compare structured arrays") from error

    monkeypatch.setattr(report, "build", build)
    with pytest.raises(SystemExit, match="130"):
        report.main([])
