"""What Slurm is told and asked, and which signals put a job back into the queue."""

import os
import signal
from pathlib import Path

import pytest

from arith_erd.system import slurm_commands
from arith_erd.system.slurm_commands import ArrayTask, requeue

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


def test_queue_may_hold_jobs_whose_arguments_break_a_line(monkeypatch):
    array, other = "17|3|RUNNING|None|/runs/.slurm-1000/a/sweep.sh", "9|N/A|RUNNING|None|/job.sh first\nsecond | line"
    monkeypatch.setattr(slurm_commands, "_output", lambda *words, timeout: f"{array}\n{other}\nCLUSTER: x")
    assert slurm_commands.array_tasks() == {(Path("/runs/.slurm-1000/a"), "3"): ArrayTask("17_3", "RUNNING", "None")}


def test_slurm_is_asked_without_filters_and_formats_of_the_caller(monkeypatch, tmp_path):
    (tmp_path / "squeue").write_text("#!/bin/sh\nenv | grep -E '^S(LURM|QUEUE)_' | sort | tr '\\n' ' '\n")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for name in ("SQUEUE_PARTITION", "SLURM_TIME_FORMAT", "SLURM_MEM_PER_CPU", "SLURM_CONF"):
        monkeypatch.setenv(name, "x")
    assert slurm_commands._output("squeue", timeout=60).strip() == "SLURM_CONF=x"


def test_state_of_a_task_that_was_never_seen_is_unknown(monkeypatch):
    monkeypatch.setattr(slurm_commands, "_output", lambda *words, timeout: "COMPLETED\n")  # of other jobs
    assert slurm_commands.accounted_state("") == "unknown"
    assert slurm_commands.accounted_state("17_3") == "COMPLETED"
