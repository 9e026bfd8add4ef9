"""Signals, which of them put a job of Slurm back into the queue, and how a program ends or loses its output."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest

from arith_erd.report import __main__ as report
from arith_erd.system import signals
from arith_erd.system.cli_errors import EXIT_FAILED, EXIT_INTERNAL, USER_CODE_NOTE, line_and_status
from arith_erd.system.signals import Interrupted, catch_signals, defer_signals, raise_pending
from arith_erd.system.slurm_commands import requeue
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


@pytest.mark.parametrize("command", ["train", "probe", "runs", "report"])
def test_ctrl_c_ends_a_command_that_still_loads_its_program(cli, command):
    code = f"""
import os, signal, sys
from arith_erd import commands
class Interrupting:
    def find_spec(name, *_):
        if name == "numpy":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting)
sys.argv = ["arith-{command}"]
commands.{command}()
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


RUNNING = "JobId=42 JobState=RUNNING PreemptTime=None"
PREEMPTED = "JobId=42 JobState=RUNNING PreemptTime=2026-11-21T14:35:14"
ALONE = {"SLURM_JOB_ID": "42"}
# The last task of an array has the id of the whole array, which would requeue those that run, too.
IN_AN_ARRAY = ALONE | {"SLURM_ARRAY_JOB_ID": "42", "SLURM_ARRAY_TASK_ID": "3"}
CANCELLED = "JobId=42 JobState=COMPLETING PreemptTime=2026-11-21T14:35:14"


@pytest.mark.parametrize(
    ("number", "shown", "environment", "told"),
    [
        (signal.SIGUSR1, RUNNING, ALONE, "requeue 42\n"),
        (signal.SIGUSR2, RUNNING, ALONE, "requeue 42\n"),
        (signal.SIGUSR1, RUNNING, IN_AN_ARRAY, "requeue 42_3\n"),
        (signal.SIGTERM, RUNNING, ALONE, ""),
        (signal.SIGINT, PREEMPTED, ALONE, ""),
        (signal.SIGTERM, PREEMPTED, ALONE, "requeue 42\n"),
        (signal.SIGTERM, CANCELLED, ALONE, ""),
        (signal.SIGUSR1, RUNNING, {}, ""),
    ],
)
def test_job_requeues_itself_before_a_time_limit_and_when_preempted(
    tmp_path, monkeypatch, number, shown, environment, told
):
    """The `scontrol` of the test only notes what it is told."""
    said, program = tmp_path / "said", tmp_path / "scontrol"
    said.touch()
    program.write_text(f'#!/bin/sh\nif [ "$1" = show ]; then echo "{shown}"; else echo "$@" >>{said}; fi\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for variable in ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    requeue(number)
    assert said.read_text() == told


def test_missing_scontrol_gives_a_one_line_message(monkeypatch, capsys):
    monkeypatch.setenv("SLURM_JOB_ID", "42")
    monkeypatch.setenv("PATH", "")
    requeue(signal.SIGUSR1)
    assert capsys.readouterr().err.count("\n") == 1


PRINTS = """
import sys
from arith_erd.system.cli_errors import one_line_errors
with one_line_errors():
    print("\u00fc" * 10, flush=True)
    print("\u00fc", file=sys.stderr)
    open(sys.argv[1], "w").write("done")
"""


@pytest.mark.parametrize("redirected", [">&-", "<&- >&- 2>&-", ">/dev/full", "| true"])
def test_output_that_is_closed_or_full_ends_nothing(redirected, tmp_path):
    command = f'"$1" -c "$2" "$3" {redirected}'
    arguments = ["sh", "-c", command, "sh", sys.executable, PRINTS, str(tmp_path / "file")]
    result = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert "Traceback" not in result.stdout + result.stderr
    assert result.returncode == 0
    assert (tmp_path / "file").read_text() == "done"


def test_characters_that_the_terminal_lacks_are_escaped(tmp_path):
    arguments = [sys.executable, "-c", PRINTS, str(tmp_path / "file")]
    environment = {"PYTHONIOENCODING": "ascii", "PATH": ""}
    result = subprocess.run(arguments, capture_output=True, text=True, check=True, env=environment)
    assert (result.stdout, result.stderr) == ("\\xfc" * 10 + "\n", "\\xfc\n")


def test_line_is_written_at_once_into_a_pipe_and_a_warning_is_a_line(cli):
    code = "import os; from arith_erd.system.cli_errors import one_line_errors as lines\nwith lines():"
    assert cli("-c", f"{code}\n    print('a line')\n    os._exit(0)").stdout == "a line\n"
    warns = f"{code}\n    import warnings; [warnings.warn('few pairs', stacklevel=n) for n in (1, 2)]"
    assert cli("-c", warns).stderr == "warning: few pairs\n"


def test_error_of_own_code_is_a_failure_that_names_the_code():
    error = KeyError("margin")
    assert line_and_status(error)[1] == EXIT_INTERNAL
    error.add_note(f"{USER_CODE_NOTE}step 5: my_package.losses.Margin")
    error.add_note("see error.txt")
    line = "step 5: my_package.losses.Margin: KeyError: 'margin'; the traceback is in error.txt"
    assert line_and_status(error) == (line, EXIT_FAILED)
