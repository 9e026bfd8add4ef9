"""The launchers ``gpus``, for all GPUs of this machine, and ``ray_gpus``, for the GPUs of a Ray cluster."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ..checks import import_extra, require_integer
from ..errors import UserError, counted, first_line
from ..system.machine import visible_gpus
from ..system.signals import GRACE_SECONDS, Interrupted, set_alarm
from .sweep import SweepJob, old_runs_renamed
from .task_folder import log_file, start_command, write_tasks

Submit = Callable[[Path, int], "Future[int]"]  # from the folder and the index of a task to its exit status


def run(jobs: Sequence[SweepJob], command: Sequence[str], root: Path, config: DictConfig) -> None:
    """Run the jobs. If one fails, or its process is killed, the others go on."""
    options: Any = OmegaConf.to_container(config.hydra.launcher, resolve=True)
    with _ray(**options["ray"]) if "ray" in options else _gpus(**options) as submit:
        with old_runs_renamed(jobs):
            folder = write_tasks(root, [job.task(command) for job in jobs])
        print(f"{counted(len(jobs), 'job')}; logs: {folder}/logs")
        indices = {submit(folder, index): index for index in range(len(jobs))}
        for ended, task in enumerate(as_completed(indices), 1):
            job = jobs[indices[task]]
            try:
                status = task.result()
                state = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
            except Exception as error:  # Ray raises its own if a worker was killed
                status, state = -1, first_line(error)
            job.end(log_file(folder, indices[task]), status, state)
            print(f"{job.title}: {job.status}; {len(jobs) - ended} of {len(jobs)} jobs under way")


@contextmanager
def _gpus(jobs_per_gpu: int) -> Iterator[Submit]:
    """Run tasks on the GPUs of this machine. After a signal they save and stop."""
    require_integer("hydra.launcher.jobs_per_gpu", jobs_per_gpu, 1, 1024)
    gpus = visible_gpus() * jobs_per_gpu
    if not gpus:
        raise UserError("hydra/launcher=gpus: no GPU is visible; expected CUDA_VISIBLE_DEVICES=0,1 to name them")
    free, running, stopping = SimpleQueue[str](), set[subprocess.Popen[bytes]](), False
    for gpu in gpus:
        free.put(gpu)
    # Under Slurm this process, not each task, puts the job back into the queue.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SLURM_")}

    def run_task(folder: Path, index: int) -> int:
        gpu = free.get()
        try:
            process = _start(folder, index, environment | {"CUDA_VISIBLE_DEVICES": gpu})
            running.add(process)
            if stopping:
                process.terminate()
            return process.wait()
        finally:
            free.put(gpu)

    with ThreadPoolExecutor(len(gpus)) as pool:
        try:
            yield lambda folder, index: pool.submit(run_task, folder, index)
        except Interrupted:
            stopping = True
            set_alarm(2 * GRACE_SECONDS)  # later than the alarms of the tasks
            pool.shutdown(wait=False, cancel_futures=True)
            for process in [*running]:
                process.terminate()
            raise


@contextmanager
def _ray(init: dict[str, Any], remote: dict[str, Any]) -> Iterator[Submit]:
    """Run tasks on a Ray cluster, whose workers have CUDA_VISIBLE_DEVICES."""
    ray = import_extra("ray", "ray", "hydra/launcher=ray_gpus")
    ray.init(**init)
    task = ray.remote(**remote)(_run_on_worker)
    yield lambda folder, index: task.remote(folder, index).future()


def _run_on_worker(folder: Path, index: int) -> int:
    status = _start(folder, index, dict(os.environ)).wait()
    if status < 0:  # the task was killed; kill the worker, so that Ray tries again
        os.kill(os.getpid(), signal.SIGKILL)
    return status


def _start(folder: Path, index: int, environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    """Start a task in its own session, so that Ctrl-C reaches it only through `_gpus`, and once."""
    command, null = [*start_command(folder), str(index), str(os.getpid())], subprocess.DEVNULL
    with log_file(folder, index).open("ab") as log:
        return subprocess.Popen(command, env=environment, stdin=null, stdout=log, stderr=log, start_new_session=True)
