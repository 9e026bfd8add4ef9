"""Which signals put a job of Slurm back into the queue, with a `scontrol` that only notes what it is told."""

import os
import signal

import pytest

from arith_erd.system.signals import requeue

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


def test_slurm_without_requeue_is_one_line(monkeypatch, capsys):
    monkeypatch.setenv("SLURM_JOB_ID", "42")
    monkeypatch.setenv("PATH", "")
    requeue(signal.SIGUSR1)
    assert capsys.readouterr().err.count("\n") == 1
