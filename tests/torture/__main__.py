"""Send signals to training at random moments and see that nothing is lost: ``python -m tests.torture --sigkill 200``.

The runs are new ones, ones that overwrite an old one, and ones that continue a shorter one, in turns. The signal comes
at a moment drawn evenly from the time that a run lasts, or just before a write (a flush to the disk, a rename). The
runs are forks of this process, which spares them the import of torch. Then the same command has to give the bits of a
run that nobody disturbed.

One line for each run that got a signal, and one for each signal; the exit status is 1 if anything was lost.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from arith_erd.config.compose import compose
from arith_erd.runs.directory import Run
from arith_erd.system.files import PARTIAL_PREFIX
from arith_erd.system.signals import catch_signals
from arith_erd.training.__main__ import main as train
from tests.behaviour.interruption import assert_same
from tests.forks import fork
from tests.tiny import FOUR_EPOCHS, TINY

SIGNALS = {signal.SIGKILL: 20, signal.SIGTERM: 10, signal.SIGHUP: 5}  # and how many runs get one by default
KINDS = ("new", "overwriting", "continuing")
SETTINGS = (*TINY, *FOUR_EPOCHS, "data.batch_size=12", "checkpoint.keep=all")
WRITES = ((os, "fsync"), (os, "rmdir"), (Path, "rename"), (Path, "replace"))
MOST_WRITES = 100  # that a run makes, about
SECONDS = 5  # from a signal to the end of the process, at most


def at_a_moment(number: int, seconds: float) -> None:
    """Send this process a signal in so many seconds."""
    threading.Timer(seconds, os.kill, (os.getpid(), number)).start()


def before_a_write(number: int, left: int) -> None:
    """Send this process a signal just before its n-th write from here."""

    def counted(write: Callable[..., Any]) -> Callable[..., Any]:
        def writing(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), number)
            return write(*arguments, **options)

        return writing

    for owner, name in WRITES:
        setattr(owner, name, counted(getattr(owner, name)))


class Victims:
    """Runs that get signals, each in a folder of its own; a log of what they say is in ``folder`` too."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0
        self.shorter, _ = self.undisturbed("shorter", "trainer.max_epochs=2")
        self.whole, self.lasts = self.undisturbed("whole")
        self.old = Run(shutil.copytree(self.whole.path, folder / "old"))  # a finished run that differs from a new one
        shutil.copyfile(self.whole.weights_file(1), self.old.weights_file(0))

    def undisturbed(self, name: str, *more: str) -> tuple[Run, float]:
        """A run that gets no signal, and how long it takes."""
        words, started = [*SETTINGS, *more, f"runs_dir={self.folder / name}"], time.monotonic()
        if status := self.forked(words):
            raise SystemExit(f"{(self.folder / 'log.txt').read_text()}an undisturbed run ended with {status}")
        return compose("train", words).run, time.monotonic() - started

    def prepared(self, kind: str) -> tuple[list[str], Run]:
        """The command of a new run, of one that overwrites an old one, or of one that continues a shorter one."""
        self.count += 1
        home = self.folder / str(self.count)
        run = Run(home / self.whole.name)
        if kind == "overwriting":
            shutil.copytree(self.old.path, run.path)
        if kind == "continuing":
            shutil.copytree(self.shorter.path, home / self.shorter.name)
        return [*SETTINGS, *["overwrite=true"] * (kind == "overwriting"), f"runs_dir={home}"], run

    def forked(self, words: list[str], strike: Callable[..., None] | None = None, *arguments: float) -> int:
        """The exit status, negative for a signal, of a child of this process that calls ``strike`` and then trains."""

        def struck() -> None:
            sys.argv = ["train.py", *words]
            with catch_signals():
                if strike is not None:
                    strike(*arguments)
                train()

        return os.waitstatus_to_exitcode(os.waitpid(fork(struck, self.folder / "log.txt"), 0)[1])

    def tortured(self, number: signal.Signals, kind: str, writes: bool, draw: random.Random) -> str:
        """Send a signal to a run, before a write or at a moment, and start it again; what is wrong then."""
        status = 0
        while status == 0:  # it had finished before the signal, so another takes its place
            words, run = self.prepared(kind)
            moment, started = draw.uniform(0, self.lasts), time.monotonic()
            if writes:
                status = self.forked(words, before_a_write, number, draw.randint(1, MOST_WRITES))
            else:
                status = self.forked(words, at_a_moment, number, moment)
        if not writes and time.monotonic() - started - moment > SECONDS:
            return "ended late"
        removed = status == -number and run.finished  # after the program has removed its handlers
        if not removed and status != (-number if number == signal.SIGKILL else 128 + number):
            return f"ended with {status}"
        weights = [ended.weights_file(0) for ended in (run, run.backup)]
        old = self.old.weights_file(0).read_bytes()
        if kind == "overwriting" and not run.finished and old not in [x.read_bytes() for x in weights if x.is_file()]:
            return "lost the old run"
        status = self.forked(words)
        return f"resumed with {status}" if status else self.differs(run)

    def differs(self, run: Run) -> str:
        """How a run that was started again differs from the one that nobody disturbed, bit for bit."""
        if run.backup.path.exists() or [*run.path.parent.rglob(f"{PARTIAL_PREFIX}*")]:
            return "left files behind"
        mine, theirs = (
            {path.relative_to(ended.path): path.read_bytes() for path in ended.path.rglob("*.safetensors")}
            for ended in (run, self.whole)
        )
        try:
            assert mine == theirs
            assert_same(run, self.whole)
        except AssertionError:
            return "other weights or rows"
        return ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__.partition("\n")[0])
    for number, default in SIGNALS.items():
        name = number.name
        parser.add_argument(f"--{name.lower()}", type=int, default=default, help=f"runs that get a {name} ({default})")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (0)")
    options = parser.parse_args()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored under nohup, and then by the runs too
    torch.set_num_threads(1)  # a child of a process with threads of torch's would wait for them for ever
    folder = Path(tempfile.mkdtemp(prefix="torture-"))
    victims, lost = Victims(folder), 0
    for number in SIGNALS:
        wanted, draw = getattr(options, number.name.lower()), random.Random(f"{options.seed} {number.name}")
        good = 0
        for n in range(wanted):
            kind, writes = KINDS[n % len(KINDS)], n % 2 == 1
            wrong = victims.tortured(number, kind, writes, draw)
            good += not wrong
            place = "before a write" if writes else "at a moment"
            print(f"  {number.name} {n + 1}: {kind} run, {place}: {wrong or 'the same bits'}", flush=True)
        print(f"{good} of {wanted}  {number.name}: resumed to the same, bit for bit", flush=True)
        lost += wanted - good
    if lost:
        print(f"missed: {lost}; the runs are in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
