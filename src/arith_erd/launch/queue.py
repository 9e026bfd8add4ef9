"""Work through a list of runs, unattended: ``python -m arith_erd.launch.queue --help``.

A list is a file of ``conf/queue/``, runs in order of value. Every run is a program of its own, so a run that fails or
is killed leaves the others alone. The same command again skips what is finished and resumes what was interrupted.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.table import Table

from ..errors import bad_value
from ..system import signals
from ..system.boundary import program
from ..system.files import require_writable
from ..system.processors import usable_processors
from .cost import Kind, cost, timings, total
from .entries import Entry, read_queue

MARGIN = 30.0
"""Seconds before the limit at which runs in progress are asked to stop: they finish their step and save."""
PAUSE = 0.2
"""Seconds between two looks at the runs in progress."""


def show(entries: Iterable[Entry], measured: Mapping[Kind, float], jobs: int = 1) -> None:
    """Print what there is to do and what it will cost, about."""
    table = Table("run", "epochs", "hours", box=None, header_style="bold", pad_edge=False)
    left, unknown = 0.0, 0
    for entry in entries:
        seconds = 0.0 if entry.finished else cost(entry, measured)
        left += seconds or 0.0
        unknown += seconds is None
        hours = "finished" if entry.finished else "?" if seconds is None else f"{seconds / 3600:.1f}"
        table.add_row(entry.title, f"{entry.epochs_done}/{entry.job.trainer.max_epochs}", hours)
    console = Console()
    console.print(table)
    console.print(f"{total(left, unknown, jobs)}.", highlight=False)


def work(entries: Sequence[Entry], seconds: float | None, jobs: int = 1) -> int:
    """Train what is not finished, in order, until the time is up.

    Args:
        jobs: runs at a time. They share the processors.

    Returns:
        The exit status: 0, or 1 if a run failed. The time limit is not a failure.
    """
    end = None if seconds is None else time.monotonic() + seconds - MARGIN
    waiting = deque(enumerate(entries, 1))
    running: dict[subprocess.Popen[bytes], Entry] = {}
    failed, stopping = [], False
    try:
        while running or waiting:
            late, killed = end is not None and time.monotonic() >= end, False
            for process in [process for process in running if process.poll() is not None]:
                entry, status = running.pop(process), process.returncode
                by_signal = status == -signal.SIGTERM or status > 128
                killed |= by_signal
                failed += [(entry, status)] if status and not by_signal else []
            if (late or killed) and not stopping:
                print(f"{'the time is up' if late else 'stopped'}; the same command continues from here", flush=True)
                stopping = True
                waiting.clear()
                terminate(running)
            while waiting and len(running) < jobs:
                number, entry = waiting.popleft()
                if not entry.finished:
                    print(f"[{number}/{len(entries)}] {entry.title}", flush=True)
                    running[start(entry.overrides, jobs)] = entry
            time.sleep(PAUSE)
    except BaseException:  # Ctrl-C and SIGHUP may have reached the processes too; they ignore a second signal
        signals.wait_longer()
        terminate(running)
        for process in running:
            process.wait()
        raise
    for entry, status in failed:
        why = f"see {entry.error}" if entry.error else f"its process ended with status {status}"
        print(f"failed: {entry.title}; {why}", file=sys.stderr)
    return 1 if failed else 0


def start(overrides: Sequence[str], jobs: int) -> subprocess.Popen[bytes]:
    """Begin to train a run in a process of its own. With other jobs beside it, it gets its share of the processors.

    Then its bar is hidden, too: two bars would write over one another.
    """
    environment = dict(os.environ)
    if jobs > 1:
        environment.setdefault("OMP_NUM_THREADS", str(max(1, usable_processors() // jobs)))
        environment["TTY_COMPATIBLE"] = "0"
    command = [sys.executable, "-m", "arith_erd.training", *overrides]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment)


def terminate(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """Ask runs to finish their step, save and stop."""
    for process in processes:
        process.terminate()


def has_gpu() -> bool:
    """Whether an NVIDIA GPU seems to be there, without loading torch."""
    return shutil.which("nvidia-smi") is not None


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and work through the list; every exception becomes one line."""
    parser = argparse.ArgumentParser(
        prog="python -m arith_erd.launch.queue",
        description="Train the runs of a list in order of value. Finished runs are skipped, interrupted ones resume.",
        epilog="Example: python -m arith_erd.launch.queue paper --hours 8 trainer.compile=true",
    )
    parser.add_argument("name", help="a list of conf/queue/, such as paper")
    parser.add_argument("--hours", type=float, help="stop, resumably, after this time")
    parser.add_argument("--pack", type=int, help="seeds in a run; default: 1 on a CPU, all of an entry on a GPU")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time, which share the processors; default: 1")
    parser.add_argument("--list", action="store_true", help="print the runs and their cost, and train nothing")
    parser.add_argument("overrides", nargs="*", help="KEY=VALUE for every run, as train.py takes them")
    given = parser.parse_intermixed_args(arguments)  # overrides before and after options
    with program():
        for option in ("hours", "jobs", "pack"):
            if getattr(given, option) is not None and not getattr(given, option) > 0:
                raise bad_value(f"--{option}", getattr(given, option), "a number above 0")
        entries = read_queue(given.name, given.pack or (None if has_gpu() else 1), given.overrides)
        runs_dir = entries[0].job.runs_dir
        if not given.list:
            require_writable("runs_dir", runs_dir)
        show(entries, timings(runs_dir), given.jobs)
        return 0 if given.list else work(entries, given.hours and given.hours * 3600, given.jobs)


if __name__ == "__main__":
    sys.exit(main())
