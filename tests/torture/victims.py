"""Training runs that get a signal: ``python train.py`` in forked children of a warm parent, and in fresh processes.

A child runs the program's own main function, with its arguments and its signal handlers; the fork spares the seconds
that importing torch takes. It trains four epochs of three-bit addition on a disk that is slow on purpose, so that a
good part of a run's time is spent inside saves: every flush and every rename takes a while, and files are written in
two halves.
"""

import mmap
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from arith_erd.config.compose import compose
from arith_erd.runs import Run
from arith_erd.system.files import PARTIAL
from arith_erd.system.signals import signals_caught
from arith_erd.training import callbacks, checkpoint, run_pack
from arith_erd.training.__main__ import main
from tests.tiny import FOUR_EPOCHS, TINY

SETTINGS = (*TINY, *FOUR_EPOCHS, "data.batch_size=12", "checkpoint.keep=all")
KINDS = ("new", "overwriting", "continuing")
TRAIN = Path(__file__).parents[2] / "train.py"
PAUSE = 0.01
"""Seconds that the disk takes for anything."""
LISTENING, SAVING = 0, 1


@dataclass
class Outcome:
    """One run that got a signal, and its resumption to the end."""

    wrong: str
    """What is not as it has to be: nothing if the run has the bits of one that got no signal."""
    while_saving: bool
    seconds: float
    """From the signal to the end of the process."""


class Victims:
    """Makes runs and sends them signals.

    Args:
        folder: where each run gets a folder of its own; a log of what they say is there too.
    """

    def __init__(self, folder: Path) -> None:
        torch.set_num_threads(1)  # a child of a process with threads of torch's would wait for them for ever
        self.folder, self.count = folder, 0
        self.shorter = self._undisturbed("shorter", "trainer.max_epochs=2")
        started = time.monotonic()
        self.untouched = self._undisturbed("untouched")
        self.lasts = time.monotonic() - started
        self.old = self.untouched.path.with_name("old")  # a finished run that differs from a new one
        shutil.copytree(self.untouched.path, self.old)
        shutil.copyfile(self.untouched.weights(1), Run(self.old).weights(0))

    def _undisturbed(self, name: str, *more: str) -> Run:
        words = [*SETTINGS, *more, f"runs_dir={self.folder / name}"]
        if status := self._wait(self._start(words, mmap.mmap(-1, 2))):
            raise SystemExit(f"{(self.folder / 'log.txt').read_text()}an undisturbed run ended with {status}")
        return compose("train", words).run

    def prepared(self, kind: str) -> tuple[list[str], Run]:
        """The command of a new run, of one that overwrites an old one, or of one that continues a shorter one."""
        self.count += 1
        home = self.folder / str(self.count)
        run = Run(home / self.untouched.name)
        if kind == "overwriting":
            shutil.copytree(self.old, run.path)
        if kind == "continuing":
            shutil.copytree(self.shorter.path, home / self.shorter.name)
        overwrite = ["overwrite=true"] if kind == "overwriting" else []
        return [*SETTINGS, *overwrite, f"runs_dir={home}"], run

    def forked(self, number: signal.Signals, kind: str, moments: random.Random, in_save: bool = False) -> Outcome:
        """Send a signal to a child, at a moment drawn evenly from the time that a run lasts; then run it again.

        Args:
            number: of the signal.
            kind: of `KINDS`.
            moments: where the moment comes from.
            in_save: wait for the next save after that moment, and strike while it goes on.
        """
        while True:
            words, run = self.prepared(kind)
            flags = mmap.mmap(-1, 2)
            child = self._start(words, flags)
            self._await(child, flags, LISTENING)  # a SIGTERM before that is the kernel's to answer
            time.sleep(moments.uniform(0, self.lasts))
            if in_save:
                self._await(child, flags, SAVING)
                time.sleep(moments.uniform(0, 4 * PAUSE))
            os.kill(child, number)
            sent = time.monotonic()
            status = self._wait(child)
            if status != 0:  # else it had finished by then, and another takes its place
                break
        seconds, saving = time.monotonic() - sent, flags[SAVING] == 1
        expected = -number if number == signal.SIGKILL else 128 + number
        wrong = f"ended with {status}" if status != expected else self._lost(run, kind)
        again = self._wait(self._start(words, mmap.mmap(-1, 2)))
        return Outcome(wrong or self._differs(again, run), saving, seconds)

    def fresh(self, number: signal.Signals, kind: str, moments: random.Random) -> Outcome:
        """The same with ``python train.py``, which gets the signal anywhere from its start to its last epoch."""
        words, run = self.prepared(kind)
        command = [sys.executable, str(TRAIN), *words]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        rows = moments.choice((0, 2, 4, 6))  # of the new run; an old one has them from the start
        with (self.folder / "log.txt").open("a") as log:
            child = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
            while child.poll() is None and rows and (self._old_is_at(run.path) or len(run.metrics()) < rows):
                time.sleep(PAUSE / 2)
            time.sleep(moments.uniform(0, 30 * PAUSE))
            child.send_signal(number)
            sent = time.monotonic()
            status = child.wait()
            seconds = time.monotonic() - sent
            early = () if rows else (-number,)  # before Python has set up the program's handlers
            wrong = "" if status in (0, -signal.SIGKILL, 128 + number, *early) else f"ended with {status}"
            wrong = wrong or self._lost(run, kind)
            again = subprocess.run(command, stdout=log, stderr=log, env=environment).returncode
        return Outcome(wrong or self._differs(again, run), False, seconds)

    def _lost(self, run: Run, kind: str) -> str:
        """An old run stays until the new one has finished."""
        old = kind != "overwriting" or self._old_is_at(run.path) or self._old_is_at(run.backup.path)
        return "" if old or run.finished else "lost the old run"

    def _old_is_at(self, path: Path) -> bool:
        try:
            return Run(path).weights(0).read_bytes() == Run(self.old).weights(0).read_bytes()
        except OSError:  # not there, or renamed at this moment
            return False

    def _differs(self, status: int, run: Run) -> str:
        """How a run that was started again ended differently from the one that nobody disturbed, bit for bit."""
        if status != 0:
            return f"resumed with {status}"
        if left := [path.name for path in run.path.parent.rglob(f"{PARTIAL}*")]:
            return f"left {left}"
        if run.backup.path.exists():
            return "left the old run"
        mine, theirs = (
            {path.relative_to(one.path): path.read_bytes() for path in one.path.rglob("*.safetensors")}
            for one in (run, self.untouched)
        )
        if mine != theirs:
            return "other weights"
        mine, theirs = ([row | {"seconds": 0} for row in one.metrics()] for one in (run, self.untouched))
        if mine != theirs or run.summary()["seeds"] != self.untouched.summary()["seeds"]:
            return "other results"
        return ""

    # Children

    def _start(self, words: list[str], flags: mmap.mmap) -> int:
        """A child that trains; its process id. Of the ``flags`` one says that it listens, one that it is in a save."""
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            self._run_program(words, flags)
        return child

    def _run_program(self, words: list[str], flags: mmap.mmap) -> None:
        status = 1
        try:
            log = os.open(self.folder / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            sys.argv = [str(TRAIN), *words]
            slow_disk(flags)
            with signals_caught():
                flags[LISTENING] = 1
                main()
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(status)

    @staticmethod
    def _wait(child: int) -> int:
        """The exit status of a child, negative for a signal."""
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    @staticmethod
    def _await(child: int, flags: mmap.mmap, flag: int) -> None:
        ended = os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT
        while flags[flag] == 0 and os.waitid(*ended) is None:
            time.sleep(PAUSE / 20)


def slow_disk(flags: mmap.mmap) -> None:
    """In this child, make all that saves take its time, and mark in memory shared with the parent when one goes on."""

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
    Path.rename, Path.replace = slow(Path.rename), slow(Path.replace)  # type: ignore[method-assign]
    Path.write_bytes = write_in_two_halves  # type: ignore[method-assign]
    checkpoint.ResumePoint.save = marked(checkpoint.ResumePoint.save)  # type: ignore[method-assign]
    callbacks.append_rows = marked(callbacks.append_rows)
    Run.set_aside = marked(Run.set_aside)  # type: ignore[method-assign]
    Run.drop_backup = marked(Run.drop_backup)  # type: ignore[method-assign]
    run_pack.save_weights = marked(run_pack.save_weights)
    run_pack.continue_shorter = marked(run_pack.continue_shorter)
    run_pack.finish = marked(run_pack.finish)
    run_pack.learning_curves = lambda *_, **__: Figure((0.1, 0.1))  # drawing the curves would take half of such a run
