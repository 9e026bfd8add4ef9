"""Tasks of a launcher: a folder with a command line for each job. Run as a program, this file starts one task.

It imports only the standard library, to be quick. Signals wait until the program can handle them. If a launcher is
killed, its tasks are killed, too: otherwise they would hold the locks of their runs when it is started again.
"""

import ctypes
import json
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path


def write_tasks(root: Path, jobs: Iterable[tuple[str, Sequence[str]]]) -> Path:
    """A new folder, as ``runs/.slurm-1000/2026-11-28_05-10-56_x1f2/``, with each job's key and command line."""
    import tempfile
    import time

    root.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=time.strftime("%Y-%m-%d_%H-%M-%S_"), dir=root.absolute()))
    (folder / "logs").mkdir()
    tasks = [{"key": key, "folder": os.getcwd(), "command": command} for key, command in jobs]
    file = folder / "tasks.json"
    try:
        file.write_text(json.dumps(dict(enumerate(tasks)), indent=0), encoding="utf-8")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(file)) from error  # Python does not name it
    return folder


def task_keys(folder: Path) -> dict[str, str]:
    """The keys of the jobs in a folder of `write_tasks`, by index; none in another folder."""
    try:
        tasks = json.loads((folder / "tasks.json").read_text(encoding="utf-8"))
        return {index: task["key"] for index, task in tasks.items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}


def start_command(folder: Path) -> list[str]:
    """The command line that starts a task of a folder. Append the task's index, and optionally the parent's id."""
    return [sys.executable, "-IS", __file__, str(folder / "tasks.json")]


def log_file(folder: Path, index: int | str) -> Path:
    """The file to which a launcher writes the output of a task."""
    return folder / "logs" / f"{index}_log.txt"


if __name__ == "__main__":
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if sys.argv[3:] not in ([], [str(os.getppid())]):
        sys.exit("error: the launcher was killed before this task began")
    with open(sys.argv[1], encoding="utf-8") as file:
        task = json.load(file)[sys.argv[2]]
    os.chdir(task["folder"])
    os.execv(task["command"][0], task["command"])
