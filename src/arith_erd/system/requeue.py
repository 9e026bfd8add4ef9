"""A job of Slurm that puts itself back into the queue, since it is to go on later.

So it does after SIGUSR1, which comes ahead of a time limit (``#SBATCH --signal=USR1@60``), and after a SIGTERM with
which Slurm preempts it: a job that uses its GraceTime to end is not requeued by Slurm itself. `scancel` sends SIGTERM
too, and a job that requeues itself then would come back from the dead.
"""

import os
import re
import signal
import subprocess
import sys


def requeue(number: signal.Signals) -> None:
    """Put a Slurm job that got SIGUSR1, or is preempted, back into the queue."""
    job = _slurm_job()
    if job is None or not (number == signal.SIGUSR1 or (number == signal.SIGTERM and _preempted(job))):
        return
    signal.setitimer(signal.ITIMER_REAL, 0)  # the alarm would do it once more; the program is at its end
    try:
        _scontrol("requeue", job)
        print(f"Slurm job {job}: requeued", flush=True)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        print(f"Slurm job {job}: not requeued ({said.strip()}); submit it again to go on", file=sys.stderr, flush=True)


def _slurm_job() -> str | None:
    """The id of the job that this process belongs to, in an array ``17_3``.

    One task of each array has the array's own id as ``SLURM_JOB_ID``, and requeueing that requeues every task.
    """
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array and task else os.environ.get("SLURM_JOB_ID")


def _preempted(job: str) -> bool:
    """Whether a job is running on borrowed time; one that was cancelled is COMPLETING."""
    try:
        said = _scontrol("show", "job", "--oneliner", job)
    except (OSError, subprocess.SubprocessError):
        return False
    return "JobState=RUNNING" in said and re.search(r"PreemptTime=\d", said) is not None


def _scontrol(*arguments: str) -> str:
    command = ["scontrol", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=1).stdout
