"""The launcher ``slurm``: one array task for each job that is missing and not yet under way.

Slurm's queue alone tells which jobs are under way: it names the script of each array, and the keys of the jobs lie
beside that script. So nothing is lost when you log out.
"""

import math
import shlex
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ..checks import require_integer
from ..errors import UserError, bad_value, counted
from ..system.files import lock, run_path
from ..system.slurm_commands import accounted_state, array_tasks, max_array_size, submit
from .sweep import SweepJob, old_runs_renamed
from .task_folder import log_file, start_command, task_keys, write_tasks

Place = tuple[Path, str]  # the folder of `write_tasks`, and the index of a task
POLL_SECONDS = 15  # at most; gentle on Slurm's controller
SBATCH_NAMES = {"name": "job-name", "timeout_min": "time", "tasks_per_node": "ntasks-per-node"}
OUR_OPTIONS = ("mem_gb", "array_parallelism", "signal_delay_s", "max_num_timeout", "setup", "additional_parameters")
_ENDS = "BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED REVOKED TIMEOUT"
ENDED = tuple(_ENDS.split())  # the states of tasks that have ended
EXIT_STATUS = {"COMPLETED": 0, "FAILED": 1}  # exit status by state; in other states the task was killed
SCRIPT = """#!/bin/bash
{setup}
[ "${{SLURM_RESTART_COUNT:-0}}" -le {restarts} ] || {{ echo "error: max_num_timeout={restarts}: reached"; exit 1; }}
# srun gives a step one CPU unless told; exec, since a shell would end at SIGTERM, before its step has saved.
exec srun --ntasks=1 ${{SLURM_CPUS_PER_TASK:+--cpus-per-task=$SLURM_CPUS_PER_TASK}} {start} "$SLURM_ARRAY_TASK_ID"
"""


def run(jobs: Sequence[SweepJob], command: Sequence[str], root: Path, config: DictConfig) -> None:
    """Submit the jobs that are not under way, and wait for all; with ``wait=false`` check them once."""
    node: Any = OmegaConf.to_container(config.hydra.launcher, resolve=True)
    _check(node)
    root.mkdir(parents=True, exist_ok=True)
    try:
        with run_path(root / ".lock").open("a") as file:
            with suppress(OSError):  # not every file system has locks
                lock(file, wait=True)  # until the same command elsewhere has submitted its jobs
            waiting = _under_way(jobs)
            new, limit = [job for job in jobs if job not in waiting.values()], max_array_size()
            with old_runs_renamed(new) as undo:
                for part in (new[i : i + limit] for i in range(0, len(new), limit)):
                    waiting |= _submit(part, write_tasks(root, [job.task(command) for job in part]), node)
                    undo.pop_all()
    except (OSError, subprocess.SubprocessError) as error:
        reason = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1]
        raise UserError(f"hydra/launcher=slurm: {reason}") from error
    _wait_for(waiting, config.get("wait") is not False)


def _check(node: Mapping[str, Any]) -> None:
    def require(is_valid: bool, key: str, accepted: str) -> None:
        if not is_valid:
            raise bad_value(f"hydra.launcher.{key}", node[key], accepted)

    for key in ("nodes", "tasks_per_node"):
        require(node[key] in (1, None) and node[key] is not True, key, "1 or null, since one process trains a pack")
    memory, setup = node["mem_gb"], node["setup"]
    is_memory = memory is None or (type(memory) in (int, float) and 0 < memory < math.inf)
    require(is_memory, "mem_gb", "a number, such as 1.5, or null")
    for key, least in (("array_parallelism", 1), ("max_num_timeout", 0), ("signal_delay_s", 0)):
        if node[key] is not None:
            require_integer(f"hydra.launcher.{key}", node[key], least)
    is_mapping = isinstance(node["additional_parameters"], dict | None)
    require(is_mapping, "additional_parameters", "options of sbatch, KEY=VALUE each, or null")
    are_commands = setup is None or (isinstance(setup, list) and all(isinstance(line, str) for line in setup))
    require(are_commands, "setup", "a list of shell commands, such as ['module load cuda'], or null")
    if not shutil.which("srun"):
        raise UserError("hydra/launcher=slurm: there is no srun here; expected a machine of a Slurm cluster")


def _under_way(jobs: Sequence[SweepJob]) -> dict[Place, SweepJob]:
    """The jobs that are in Slurm's queue."""
    by_key, keys = {job.key: job for job in jobs}, cache(task_keys)
    queued = [place for place, task in array_tasks().items() if task.state not in ENDED]
    found = {(folder, index): keys(folder).get(index) for folder, index in queued}
    return {place: by_key[key] for place, key in found.items() if key in by_key}


def _submit(jobs: Sequence[SweepJob], folder: Path, node: Mapping[str, Any]) -> dict[Place, SweepJob]:
    options: dict[str, Any] = {
        **{SBATCH_NAMES.get(key, key): value for key, value in node.items() if key not in OUR_OPTIONS},
        "mem": node["mem_gb"] and f"{math.ceil(1024 * node['mem_gb'])}M",
        "array": f"0-{len(jobs) - 1}%{node['array_parallelism'] or len(jobs)}",
        "signal": f"USR1@{node['signal_delay_s'] or 0}",
        "output": log_file(Path(str(folder).replace("%", "%%")), "%a"),  # Slurm expands single ones
        "open-mode": "append",  # after a requeue
        **(node["additional_parameters"] or {}),
    }
    script, setup, start = folder / "sweep.sh", "\n".join(node["setup"] or []), shlex.join(start_command(folder))
    script.write_text(SCRIPT.format(setup=setup, restarts=node["max_num_timeout"] or 0, start=start), encoding="utf-8")
    print(f"submitted {counted(len(jobs), 'job')} as {submit(script, options)}; logs: {folder}/logs")
    return {(folder, str(index)): job for index, job in enumerate(jobs)}


def _wait_for(waiting: dict[Place, SweepJob], wait: bool) -> None:
    """Wait for each job; a requeued job is still under way. Print the number under way whenever it changes."""
    start, total, before = time.monotonic(), len(waiting), None
    ids, ended = dict[Place, str](), set[Place]()
    while True:
        try:
            queue, reasons = array_tasks(), set[str]()
        except (OSError, subprocess.SubprocessError):  # Slurm's controller may be down for a while
            if not wait:
                return
            time.sleep(POLL_SECONDS)
            continue
        for place, job in [*waiting.items()]:
            task = queue.get(place)
            if task and task.state not in ENDED:
                job.status = "pending" if task.state == "PENDING" else "running"
                reasons |= {task.reason} if job.status == "pending" else set()
                ids[place] = task.id
                ended.discard(place)
            elif task and task.state != "COMPLETED" and place not in ended:
                ended.add(place)  # it may yet be requeued, as after NODE_FAIL
            else:
                state = task.state if task else accounted_state(ids.get(place, ""))
                if state in (*ENDED, "unknown") or job.finished:  # else the queue has just omitted it
                    waiting.pop(place).end(log_file(*place), EXIT_STATUS.get(state, -1), state)
        if (now := Counter(job.status for job in waiting.values())) != before:
            before, why = now, f" ({', '.join(sorted(reasons))})" if reasons else ""
            counts = ", ".join(f"{number} {status}" for status, number in sorted(now.items(), reverse=True))
            print(f"{len(waiting)} of {total} jobs under way{': ' if counts else ''}{counts}{why}")
        if not waiting or not wait:
            return
        time.sleep(min(POLL_SECONDS, max(1, (time.monotonic() - start) / 20)))
