"""Slurm's programs: submit a script, ask what became of its tasks, requeue this job."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

CLUSTER_VARIABLES = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT")  # these say which cluster it is


class ArrayTask(NamedTuple):
    id: str  # 17_3
    state: str
    reason: str  # why it waits


def requeue(number: signal.Signals) -> None:
    """Requeue this Slurm job after SIGUSR1, SIGUSR2 or a SIGTERM that preempts it, but not after `scancel`.

    Slurm itself does not requeue a job that ends within its GraceTime.
    """
    # For a task of an array SLURM_JOB_ID may be the id of the whole array, and would requeue every task.
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    job = f"{array}_{task}" if array and task else os.environ.get("SLURM_JOB_ID")
    if job is None or number.name not in ("SIGUSR1", "SIGUSR2", "SIGTERM"):
        return
    signal.setitimer(signal.ITIMER_REAL, 0)  # else the alarm would requeue once more
    try:
        if number == signal.SIGTERM:  # a preempted job is still RUNNING, a cancelled one is COMPLETING
            shown = _output("scontrol", "show", "job", "--oneliner", job, timeout=10)
            if "JobState=RUNNING" not in shown or not re.search(r"PreemptTime=\d", shown):
                return
        print(f"Slurm job {job}: requeueing", flush=True)
        time.sleep(0.5)  # time for srun to forward the line, before Slurm kills it and us
        _output("scontrol", "requeue", job, timeout=10)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"Slurm job {job}: not requeued ({error}); submit it again to continue", file=sys.stderr, flush=True)


def submit(script: Path, options: Mapping[str, object]) -> str:
    """Submit a script with options of `sbatch`, except None and False, and return the job's id."""
    given = [(f"--{key.replace('_', '-')}", value) for key, value in options.items() if value not in (None, False)]
    words = [flag if value is True else f"{flag}={value}" for flag, value in given]
    return _output("sbatch", "--parsable", *words, str(script), timeout=300).strip()


def max_array_size() -> int:
    """How many tasks an array may have on this cluster."""
    size = re.search(r"MaxArraySize\s*=\s*(\d+)", _output("scontrol", "show", "config", timeout=60))
    return max(1, int(size[1])) if size else 1001  # Slurm's default


def array_tasks() -> dict[tuple[Path, str], ArrayTask]:
    """This user's array tasks, by the script's folder and index: those in the queue, and those that ended recently.

    This needs no accounting. Slurm forgets an ended task after a while (MinJobAge); then see `accounted_state`.
    """
    words = ("--noheader", "--array", "--states=all", f"--user={os.geteuid()}", "--format=%F|%K|%T|%r|%o")
    lines = (line.split("|", 4) for line in _output("squeue", *words, timeout=60).splitlines())
    return {  # a script's arguments may hold anything, even a new line
        (Path(script).parent, index): ArrayTask(f"{job}_{index}", state, reason)
        for job, index, state, reason, script in (parts for parts in lines if len(parts) == 5 and parts[1].isdigit())
    }


def accounted_state(task: str) -> str:
    """The state of a task that has left the queue, from the accounting; ``unknown`` without accounting."""
    if not task:  # `sacct` would list other jobs
        return "unknown"
    try:
        output = _output("sacct", "--noheader", "--parsable2", "-X", f"--jobs={task}", "--format=State", timeout=60)
    except (OSError, subprocess.SubprocessError):
        output = ""
    return next(iter(output.split()), "unknown")  # such as "CANCELLED by 1000"


def _output(*words: str, timeout: float) -> str:
    """The output of a program, without the caller's filters and formats, and the variables of a job that it is in."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in CLUSTER_VARIABLES or not name.startswith(("SLURM_", "SQUEUE_", "SACCT_"))
    }
    options: dict[str, Any] = {"capture_output": True, "text": True, "errors": "replace", "env": environment}
    return subprocess.run(words, check=True, timeout=timeout, **options).stdout
