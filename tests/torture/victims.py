"""Training runs in forked children, to be killed: a warm parent spares each the seconds that importing torch takes.

The children train three epochs of three-bit addition on a disk that is slow on purpose, so that a good part of a run's
time is spent inside saves: every flush and every rename takes a while, and a checkpoint is written in two halves.
"""

import mmap
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from arith_erd.config.compose import compose
from arith_erd.config.job import Job
from arith_erd.runs import Run
from arith_erd.system.files import PARTIAL
from arith_erd.system.signals import signals_caught
from arith_erd.training import checkpoint, train
from tests.tiny import FOUR_EPOCHS, TINY

SETTINGS = (*TINY, *FOUR_EPOCHS, "data.batch_size=12")
TRAIN = Path(__file__).parents[2] / "train.py"
PAUSE = 0.01
"""Seconds that the disk takes for anything."""
LISTENING, SAVING = 0, 1


@dataclass
class Outcome:
    """One run that got a signal, and its resumption to the end."""

    same: bool
    """Bit for bit as a run that got none."""
    while_saving: bool
    seconds: float
    """From the signal to the end of the process."""


class Victims:
    """Makes runs in children of this process.

    Args:
        folder: where each gets a run directory of its own.
    """

    def __init__(self, folder: Path) -> None:
        torch.set_num_threads(1)  # a child of a process with threads of torch's would wait for them for ever
        self.folder = folder
        self.count = 0
        self.job = compose("train", [*SETTINGS, f"runs_dir={folder / 'untouched'}"])
        started = time.monotonic()
        self.untouched = self.job.run
        status = self.wait(self.start(self.job, mmap.mmap(-1, 2)))
        self.lasts = time.monotonic() - started
        if status != 0:
            raise SystemExit(f"{(folder / 'log.txt').read_text()}a run that nobody disturbs ended with {status}")

    def fresh(self) -> Job:
        """A new run of the same seeds."""
        self.count += 1
        return replace(self.job, runs_dir=self.folder / str(self.count))

    def start(self, job: Job, flags: mmap.mmap) -> int:
        """A child that trains; its process id. Of the ``flags`` one says that it listens, one that it is in a save."""
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            self._train(job, flags)
        return child

    def _train(self, job: Job, flags: mmap.mmap) -> None:
        status = 1
        try:
            log = os.open(self.folder / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            with signals_caught(), slow_disk(flags):
                flags[LISTENING] = 1
                train.train(job)
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(status)

    @staticmethod
    def wait(child: int) -> int:
        """The exit status of a child, negative for a signal."""
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def signalled(
        self, number: signal.Signals, moments: random.Random, in_save: bool = False
    ) -> tuple[Job, int, bool, float]:
        """Send a signal to a new run, at a moment drawn evenly from the time that a run lasts.

        Args:
            number: of the signal.
            moments: where the moment comes from.
            in_save: wait for the next save after that moment, and strike while it goes on.

        Returns:
            The job, its exit status, whether it was inside a save, and the seconds that it took to end. A run
            that was finished by then does not count; another takes its place.
        """
        while True:
            job, flags = self.fresh(), mmap.mmap(-1, 2)
            child = self.start(job, flags)
            self._await(child, flags, LISTENING)  # a SIGTERM before that is the kernel's to answer
            time.sleep(moments.uniform(0, self.lasts))
            if in_save:
                self._await(child, flags, SAVING)
                time.sleep(moments.uniform(0, 4 * PAUSE))
            os.kill(child, number)
            sent = time.monotonic()
            status = self.wait(child)
            if status != 0:
                return job, status, flags[SAVING] == 1, time.monotonic() - sent

    @staticmethod
    def _await(child: int, flags: mmap.mmap, flag: int) -> None:
        ended = os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT
        while flags[flag] == 0 and os.waitid(*ended) is None:
            time.sleep(PAUSE / 20)

    def resumed(self, job: Job) -> bool:
        """Start the same run again; whether it came to the same end as the one that nobody disturbed."""
        status = self.wait(self.start(job, mmap.mmap(-1, 2)))
        return status == 0 and same(job.run, self.untouched)

    def killed_and_resumed(self, moments: random.Random, in_save: bool) -> Outcome:
        job, status, saving, seconds = self.signalled(signal.SIGKILL, moments, in_save)
        return Outcome(status == -signal.SIGKILL and self.resumed(job), saving, seconds)

    def stopped_and_resumed(self, number: signal.Signals, moments: random.Random) -> Outcome:
        job, status, saving, seconds = self.signalled(number, moments)
        return Outcome(status == 128 + number and self.resumed(job), saving, seconds)

    def typed_and_resumed(self, moments: random.Random) -> bool:
        """``python train.py``: killed after its first rows, then told to stop, then left alone."""
        job = self.fresh()
        run = job.run
        command = [sys.executable, str(TRAIN), *SETTINGS, f"runs_dir={job.runs_dir}"]
        with (self.folder / "log.txt").open("a") as log:
            for number, rows in ((signal.SIGKILL, 2), (signal.SIGTERM, 4)):
                child = subprocess.Popen(command, stdout=log, stderr=log)
                while child.poll() is None and len(run.metrics()) < rows:
                    time.sleep(0.005)
                time.sleep(moments.uniform(0, PAUSE))
                child.send_signal(number)
                if child.wait() not in (0, -signal.SIGKILL, 128 + signal.SIGTERM):
                    return False
            return subprocess.run(command, stdout=log, stderr=log).returncode == 0 and same(run, self.untouched)


def same(one: Run, other: Run) -> bool:
    """Bit for bit: weights, rows but for their seconds, and the summary's verdict; and no half-written file is left."""
    left = [path for path in one.path.rglob("*") if path.name.startswith(PARTIAL)]
    return (
        not left
        and [row | {"seconds": 0} for row in one.metrics()] == [row | {"seconds": 0} for row in other.metrics()]
        and one.summary()["seeds"] == other.summary()["seeds"]
        and all(one.weights(seed).read_bytes() == other.weights(seed).read_bytes() for seed in (0, 1))
    )


@contextmanager
def slow_disk(flags: mmap.mmap) -> Iterator[None]:
    """Make everything that saves take its time, and mark in memory shared with the parent when something does."""

    def slow(function: Callable[..., Any]) -> Callable[..., Any]:
        def slowly(*arguments: Any) -> Any:
            time.sleep(PAUSE)
            result = function(*arguments)
            time.sleep(PAUSE)
            return result

        return slowly

    def marked(function: Callable[..., Any]) -> Callable[..., Any]:
        def marking(*arguments: Any, **options: Any) -> Any:
            flags[SAVING] = 1
            try:
                return function(*arguments, **options)
            finally:
                flags[SAVING] = 0

        return marking

    def write_in_two_halves(path: Path, content: bytes) -> None:
        with path.open("wb") as file:
            for half in (content[: len(content) // 2], content[len(content) // 2 :]):
                file.write(half)
                file.flush()
                time.sleep(PAUSE)

    os.fsync, os.replace = slow(os.fsync), slow(os.replace)  # type: ignore[assignment]
    Path.write_bytes = write_in_two_halves  # type: ignore[method-assign]
    checkpoint.ResumePoint.save = marked(checkpoint.ResumePoint.save)  # type: ignore[method-assign]
    Run.append_metrics = marked(Run.append_metrics)  # type: ignore[method-assign]
    train.save_weights = marked(train.save_weights)
    train.finish = marked(train.finish)
    train.learning_curves = lambda *_, **__: Figure((0.1, 0.1))  # drawing the curves would take half of such a run
    yield  # for good: the process ends here
