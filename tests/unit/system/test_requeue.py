"""Which signals put a job of Slurm back into the queue, with a `scontrol` that only notes what it is told."""

import os
import signal

import pytest

from arith_erd.system.requeue import requeue


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A job of Slurm that runs, and a `scontrol` that keeps what it is told to do: a function that reads it.

    ``JOB`` is what it shows of the job.
    """
    said = tmp_path / "said"
    program = tmp_path / "scontrol"
    program.write_text(f'#!/bin/sh\nif [ "$1" = show ]; then echo "$JOB"; else echo "$@" >>{said}; fi\n')
    program.chmod(0o755)
    monkeypatch.setenv("JOB", "JobId=42 JobState=RUNNING PreemptTime=None")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "42")
    for variable in ("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"):
        monkeypatch.delenv(variable, raising=False)
    return lambda: said.read_text() if said.exists() else None


def test_sigusr1_requeues_under_slurm(slurm):
    requeue(signal.SIGUSR1)
    assert slurm() == "requeue 42\n"


def test_task_of_an_array_requeues_itself_alone(slurm, monkeypatch):
    """The last task of an array has the id of the whole array, which would requeue those that run, too."""
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "42")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    requeue(signal.SIGUSR1)
    assert slurm() == "requeue 42_3\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_other_signals_do_not_requeue(slurm, number):
    requeue(number)
    assert slurm() is None


def test_sigterm_does_in_the_grace_time_of_a_preemption(slurm, monkeypatch):
    monkeypatch.setenv("JOB", "JobId=42 JobState=RUNNING PreemptTime=2026-11-21T14:35:14")
    requeue(signal.SIGTERM)
    assert slurm() == "requeue 42\n"


def test_cancelled_job_is_not_requeued(slurm, monkeypatch):
    monkeypatch.setenv("JOB", "JobId=42 JobState=COMPLETING PreemptTime=2026-11-21T14:35:14")
    requeue(signal.SIGTERM)
    assert slurm() is None


def test_nothing_is_requeued_where_there_is_no_slurm(slurm, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID")
    requeue(signal.SIGUSR1)
    assert slurm() is None


def test_slurm_without_requeue_is_one_line(monkeypatch, capsys):
    monkeypatch.setenv("SLURM_JOB_ID", "42")
    monkeypatch.setenv("PATH", "")
    requeue(signal.SIGUSR1)
    assert capsys.readouterr().err.count("\n") == 1
