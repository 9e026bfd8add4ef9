"""Work through a list of runs, unattended: ``python -m arith_erd.launch.queue --help``.

A list is a file of ``conf/queue/``, runs in order of value. Every run is a program of its own, so a run that fails or
is killed leaves the others alone. The same command again skips what is finished and resumes what was interrupted.
"""

import argparse
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import yaml
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from rich.console import Console
from rich.table import Table

from ..config.compose import CONF, compose, hydra_over_conf, refusal
from ..config.job import Job
from ..config.read import read_run
from ..errors import UserError, bad_value, excerpt, first_line
from ..runs import Run
from ..seeds import format_seeds
from ..system import signals
from ..system.boundary import program
from ..system.files import read_text, require_writable
from ..system.threads import usable_processors
from .sweep import expand

Kind = tuple[int, int, str, str, str]
"""Examples, batch size, model, task and ablation: what the time of an epoch depends on most."""
WORD = re.compile(r"""(?:[^\s'"\[]|'[^']*'|"[^"]*"|\[[^\]]*\]|['"\[])+""")
"""An override in a line: quotes, which Hydra reads, and brackets may have spaces inside."""
MARGIN = 30.0
"""Seconds before the limit at which runs in progress are asked to stop: they finish their step and save."""
PAUSE = 0.2
"""Seconds between two looks at the runs in progress."""


@dataclass(frozen=True)
class Entry:
    """One run of the list."""

    words: tuple[str, ...]
    """Of the list: what sets the run apart from others. The last one is ``seed=``."""
    extra: tuple[str, ...]
    """Overrides that every run of the list gets."""
    job: Job

    @property
    def overrides(self) -> tuple[str, ...]:
        """Those that its training gets. Later ones win, and a part of the seeds is the run's own."""
        return (*self.words[:-1], *self.extra, self.words[-1])

    @property
    def kind(self) -> Kind:
        return kind_of(self.job)

    @property
    def finished(self) -> bool:
        return all(run.finished for run in self.job.runs())

    @property
    def epochs_done(self) -> int:
        """The fewest of its packs."""
        return min(epochs_done(run) for run in self.job.runs())

    @property
    def epochs_left(self) -> int:
        """Summed over its seeds."""
        most = self.job.trainer.max_epochs
        return sum(len(pack.seeds) * (most - epochs_done(pack.run)) for pack in self.job.packs())

    @property
    def error(self) -> Path | None:
        """The file that says why its training failed, if there is one."""
        return next((run.error for run in self.job.runs() if run.error.exists()), None)

    @property
    def title(self) -> str:
        """Its words, with the values that win."""
        told = dict(word.partition("=")[::2] for word in self.overrides)
        return " ".join(f"{key}={told[key]}" for key in (word.partition("=")[0] for word in self.words))


def epochs_done(run: Run) -> int:
    """The last epoch that a run has a row of."""
    return max((row["epoch"] for row in run.metrics()), default=0)


def kind_of(job: Job) -> Kind:
    """``(16384, 128, "transformer", "add", "none")``."""
    return job.task.size, job.data.batch_size, job.model.name, job.task.name, job.ablation.name


def read_queue(name: str, pack: int | None, extra: Sequence[str] = ()) -> list[Entry]:
    """The runs of ``conf/queue/{name}.yaml`` in order, each once.

    Args:
        name: of the list.
        pack: seeds in a run; None for all that an entry names.
        extra: overrides that every run is given too.

    Raises:
        UserError: if there is no such list, its file is not a list, or one of its runs is refused.
    """
    known = sorted(path.stem for path in (CONF / "queue").glob("*.yaml"))
    if name not in known:
        raise bad_value("queue", name, " or ".join(known))
    entries: dict[Path, Entry] = {}
    for words in read_list(CONF / "queue" / f"{name}.yaml"):
        whole = compose("train", [*words, *extra])
        if whole.overwrite:
            raise bad_value("overwrite", "true", "false: a queue skips what is finished; train.py trains it anew")
        for seeds in batched(whole.seeds, pack):
            job = whole.with_seeds(seeds)
            title = (*(word for word in words if not word.startswith("seed=")), f"seed={format_seeds(seeds)}")
            entries.setdefault(job.run.path, Entry(title, tuple(extra), job))
    return list(entries.values())


def read_list(path: Path) -> list[list[str]]:
    """The overrides of each run of a list: a line ``task=add,mul seed=0`` is two of them, the first key slowest.

    Raises:
        UserError: if the file is no list of lines, or a line is not what ``train.py -m`` takes.
    """
    line = None
    try:
        lines = yaml.safe_load(read_text(path))
        if not isinstance(lines, list) or not lines or not all(isinstance(line, str) for line in lines):
            raise TypeError(excerpt(str(lines)))
        found = []
        with hydra_over_conf():
            loader = GlobalHydra.instance().config_loader()
            for line in lines:
                found += expand(loader, {}, WORD.findall(line))
        return found
    except (yaml.YAMLError, TypeError, ValueError, HydraException) as error:
        why = str(refusal("train", error, ())) if isinstance(error, HydraException) else first_line(error)
        what = why if line is None else f"{line}: {why}"
        raise UserError(f"{path}: {what}; expected a list of runs, each a line as - task=add,mul seed=0") from error


def batched(seeds: tuple[int, ...], pack: int | None) -> list[tuple[int, ...]]:
    """``(0, 1, 2)`` in packs of two: ``[(0, 1), (2,)]``."""
    size = pack or len(seeds)
    return [seeds[i : i + size] for i in range(0, len(seeds), size)]


def timings(runs_dir: Path) -> dict[Kind, float]:
    """Seconds of an epoch of one replica, the median over the runs of a kind that this machine's folder holds.

    Of each run the median epoch counts, so that one in which the machine slept does not.
    """
    found: dict[Kind, list[float]] = defaultdict(list)
    for path in sorted(runs_dir.glob("*/metrics.csv")):
        try:
            job = read_run(Run(path.parent))
            rows = Run(path.parent).metrics()
        except UserError:
            continue
        if rows:
            found[kind_of(job)].append(median(row["seconds"] for row in rows) / len(job.seeds))
    return {kind: median(seconds) for kind, seconds in found.items()}


def cost(entry: Entry, measured: Mapping[Kind, float]) -> float | None:
    """Seconds that a run still takes at most; None if nothing comparable has been timed here.

    The nearest timings count: of the same kind, else of another ablation, else of another task of the same size.
    """
    for known in (5, 4, 3):
        if seconds := [value for kind, value in measured.items() if kind[:known] == entry.kind[:known]]:
            return median(seconds) * entry.epochs_left
    return None


def show(entries: Iterable[Entry], measured: Mapping[Kind, float], jobs: int = 1) -> None:
    """Print what there is to do and what it will cost at most."""
    table = Table("run", "epochs", "hours", box=None, header_style="bold", pad_edge=False)
    total, unknown = 0.0, 0
    for entry in entries:
        seconds = 0.0 if entry.finished else cost(entry, measured)
        total += seconds or 0.0
        unknown += seconds is None
        hours = "finished" if entry.finished else "?" if seconds is None else f"{seconds / 3600:.1f}"
        table.add_row(entry.title, f"{entry.epochs_done}/{entry.job.trainer.max_epochs}", hours)
    console = Console()
    console.print(table)
    console.print(f"{bound(total, unknown, jobs)}.", highlight=False)


def bound(seconds: float, unknown: int, jobs: int) -> str:
    """``At most 8 hours of runs, 2 at a time, by the timings in the runs folder``."""
    never = f"{unknown} run{'s' if unknown > 1 else ''} of models that were never timed here"
    if unknown and not seconds:
        return f"How many hours is not known for {never}"
    parallel = f" of runs, {jobs} at a time" if jobs > 1 else ""
    beside = f"; not counted: {never}" if unknown else ""
    return f"At most {math.ceil(seconds / 3600)} hours{parallel}, by the timings in the runs folder{beside}"


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
