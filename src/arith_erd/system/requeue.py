"""Requeueing: a Slurm job that was stopped early puts itself back into the queue, to resume later.

It does so after SIGUSR1, which Slurm sends before a time limit (``#SBATCH --signal=USR1@60``), and after the SIGTERM of
a preemption: Slurm itself does not requeue a job that ends within its GraceTime. It does not after the SIGTERM of
`scancel`, since a cancelled job must stay cancelled.
"""

import os
import re
import signal
import subprocess
import sys


def requeue(number: signal.Signals) -> None:
    """Requeue this Slurm job if ``number`` is SIGUSR1, or a SIGTERM by which it is preempted."""
    job = _slurm_job()
    if job is None or not (number == signal.SIGUSR1 or (number == signal.SIGTERM and _preempted(job))):
        return
    signal.setitimer(signal.ITIMER_REAL, 0)  # else the alarm would requeue once more
    try:
        _scontrol("requeue", job)
        print(f"Slurm job {job}: requeued", flush=True)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        again = "submit it again to continue"
        print(f"Slurm job {job}: not requeued ({said.strip()}); {again}", file=sys.stderr, flush=True)


def _slurm_job() -> str | None:
    """The id of this process's job; ``17_3`` for a task of an array.

    Not ``SLURM_JOB_ID`` in an array: for one of its tasks that is the id of the whole array, and requeueing it requeues
    every task.
    """
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array and task else os.environ.get("SLURM_JOB_ID")


def _preempted(job: str) -> bool:
    """Whether Slurm is preempting a job: then it is RUNNING still, while a cancelled job is COMPLETING."""
    try:
        said = _scontrol("show", "job", "--oneliner", job)
    except (OSError, subprocess.SubprocessError):
        return False
    return "JobState=RUNNING" in said and re.search(r"PreemptTime=\d", said) is not None


def _scontrol(*arguments: str) -> str:
    command = ["scontrol", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=1).stdout
