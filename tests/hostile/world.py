"""A folder with a run in it and a file beside it that must not change, watched while a program meets hostile input."""

import atexit
import contextlib
import io
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import pytest
import torch

from arith_erd.config.compose import compose
from arith_erd.config.job import Job
from arith_erd.interp.loading import load_run
from arith_erd.probes.__main__ import main as probe_main
from arith_erd.report.__main__ import main as report_main
from arith_erd.report.paper import Paper, PaperFigure
from arith_erd.runs import Run
from arith_erd.system.cli_errors import program
from arith_erd.training.__main__ import main as train_main
from arith_erd.training.callbacks import MetricsWriter
from arith_erd.training.train import train
from tests.behaviour.interruption import interrupt
from tests.tiny import FOUR_EPOCHS, TINY

ROOT = Path(__file__).parents[2]
SECRET = "s3cr3t-of-the-environment"
SECONDS = 120  # an attack that takes longer hangs
NAMED = ("runs", "report", "out", "tmp")  # folders that the programs were told to write to
WORDS = (*TINY, *FOUR_EPOCHS)


@cache
def templates() -> tuple[Job, Path]:
    """A job of two seeds and four epochs, and a folder with its run, finished, and interrupted in epoch 4."""
    folder = Path(tempfile.mkdtemp(prefix="hostile-"))
    atexit.register(shutil.rmtree, folder)
    job = compose("train", [*WORDS, f"runs_dir={folder / 'finished'}"])
    with contextlib.redirect_stdout(io.StringIO()):
        train(job)
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(RuntimeError):
            interrupt(patch, MetricsWriter, epoch=4, after=True)
            train(replace(job, runs_dir=folder / "interrupted"))
    return job, folder


class World:
    """A run to be made hostile, in a folder of its own; ``victim`` is a file there, ``canary`` is not to be made."""

    def __init__(self, folder: Path) -> None:
        template, self._runs = templates()
        self.folder, self.canary, self.victim = folder, folder / "canary", folder / "victim"
        for name in ("here", *NAMED):
            (folder / name).mkdir()
        for path in (self.victim, folder / "here" / "victim"):
            path.write_text("precious")
        self.job = replace(template, runs_dir=folder / "runs")
        self.run = self.job.run
        self.whole = Run(self._runs / "finished" / self.run.name)  # nobody interrupted it; for reading only
        shutil.copytree(self.whole.path, self.run.path)
        self.config: dict[str, Any] = self.run.config()
        self.summary = self.run.summary()

    def interrupted(self) -> None:
        """Turn to the run as it was interrupted: the next `resume` trains its fourth epoch."""
        shutil.rmtree(self.run.path)
        shutil.copytree(self._runs / "interrupted" / self.run.name, self.run.path)

    def file(self, name: str) -> Path:
        return self.run.path / name

    @property
    def checkpoint(self) -> dict[str, Any]:
        return torch.load(self.run.checkpoint, weights_only=True)

    def configure(self, key: str, value: Any) -> None:
        """Write another value into ``config.yaml``."""
        put(self.config, key.split("."), value)
        self.file("config.yaml").write_text(json.dumps(self.config))  # which is YAML too

    # Programs that meet it

    def type(self, *words: str, main: Callable[[], object] = train_main) -> None:
        """`typed`, with its runs in this world."""
        runs = [] if any(word.startswith("runs_dir") for word in words) else [f"runs_dir={self.folder / 'runs'}"]
        typed(main, *words, *runs)

    def load(self) -> None:
        load_run(self.run.path, 0)

    def resume(self) -> None:
        train(self.job)

    def resume_whole(self) -> None:
        """Resume, to the rows and the weights of a run that nobody disturbed."""
        self.resume()
        for seed in (0, 1):
            assert self.run.weights(seed).read_bytes() == self.whole.weights(seed).read_bytes(), "other weights"
        rows = [(row["epoch"], row["seed"]) for row in self.run.metrics()]
        assert sorted(rows) == [(epoch, seed) for epoch in range(1, 5) for seed in (0, 1)], "other rows"

    def probe(self) -> None:
        typed(probe_main, "probe=errors", f"run={self.run.path}")

    def report(self) -> None:
        """Make the report, without the figures, which take most of the time; it names what it leaves out."""
        with mock.patch("arith_erd.report.__main__.paper_figures", _undrawn):
            report_main([str(self.folder / "runs"), f"--out={self.folder / 'report'}"])


def typed(main: Callable[[], object], *arguments: str) -> None:
    """Call a program as from a shell."""
    with mock.patch.object(sys, "argv", ["program.py", *arguments]):
        main()


def process(*words: str, limits: str = ":", **environment: str) -> None:
    """The same in a process of its own: words after ``python``, in a shell that sets ``limits`` before."""
    script = ["bash", "-c", f'{limits}; exec "$0" "$@"', sys.executable, *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", **environment}
    ended = subprocess.run(script, env=environment, capture_output=True, timeout=SECONDS)
    print(ended.stdout.decode(errors="replace"))
    print(ended.stderr.decode(errors="replace"), file=sys.stderr, end="")
    if ended.returncode:
        raise SystemExit(ended.returncode)


@dataclass(frozen=True)
class Attack:
    """What is expected of a program that meets something hostile.

    Attributes:
        name: what was drawn.
        says: part of the message that refuses it; None where it may be harmless, too.
        lines: of the message; a sweep prints one for each job, and one more.
        finishes: whether the program's work goes on beside what is damaged, to status 0.
    """

    name: str
    says: str | None = None
    lines: int = 1
    finishes: bool = False


Case = Iterator[Attack]
Cause = Callable[[World, int, Random], Case]
"""Its n-th case makes a world hostile, yields what is expected, and calls the program that meets it."""


@dataclass(frozen=True)
class Outcome:
    """The line that refused an attack ("" where it was harmless), and what is not as it should be ("" if all is)."""

    name: str
    line: str
    wrong: str


def put(node: Any, path: Sequence[Any], value: Any) -> None:
    """Replace what is at a path of a tree of dictionaries and lists."""
    for part in path[:-1]:
        node = node[part]
    node[path[-1]] = value


def attempt(cause: Cause, n: int, seed: int = 0) -> Outcome:
    """Try the n-th case of a cause, with a secret in the environment and temporary files where they are seen."""
    templates()  # in the system's own temporary folder
    folder = Path(tempfile.mkdtemp())
    output, errors, status, raised = io.StringIO(), io.StringIO(), 0, ""
    try:
        with mock.patch.dict(os.environ, SECRET=SECRET), mock.patch.object(tempfile, "tempdir", str(folder / "tmp")):
            world = World(folder)
            case = cause(world, n, Random(f"{seed} {cause.__name__} {n}"))
            attack = next(case)
            before, memory = snapshot(folder), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            signal.signal(signal.SIGALRM, _hangs)
            signal.alarm(SECONDS)
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
                try:
                    with contextlib.chdir(folder / "here"), program():
                        next(case, None)
                except SystemExit as end:
                    status = end.code if isinstance(end.code, int) else int(end.code is not None)
                except BaseException as error:  # whatever it is, it is a finding
                    raised = f"raised {type(error).__name__}: {error}"
        said, lines = output.getvalue() + errors.getvalue(), errors.getvalue().splitlines()
        written = [path.read_text(errors="replace") for path in (folder / "report").glob("*.*") if path.is_file()]
        wrong = {
            raised: bool(raised),
            "it shows a traceback": "Traceback" in said,
            "it calls it an internal error": status == 70 or "internal error" in said,
            "it wrote outside its folders": snapshot(folder) != before or world.canary.exists(),
            "it shows the environment": SECRET in "".join([said, *written]),
            "it left a partial file": bool(list(folder.rglob(".partial-*"))),
            "it took more than a gigabyte": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > memory + 2**20,
            f"status {status}": status not in (0, 1, 2, 75),
            f"not one line: {lines}": status != 0 and not 1 <= len(lines) <= attack.lines,
            f"not for people: {lines}": any(not line.isprintable() or len(line) > 1100 for line in lines),
            f"no error: {lines}": status == 1 and bool(lines) and not lines[0].startswith("error: "),
            "it was not refused": status == 0 and attack.says is not None and not attack.finishes,
            f"it ended others' work: {lines}": status != 0 and attack.finishes,
            f"it does not say {attack.says}: {said[:300]}": (attack.says or "") not in said,
        }
        return Outcome(
            name=re.sub(r"\s+", " ", f"{cause.__name__} {n}: {attack.name}")[:120],
            line=lines[0] if status and lines else "",
            wrong="; ".join(what for what, true in wrong.items() if true),
        )
    finally:
        signal.alarm(0)
        shutil.rmtree(folder)


def snapshot(folder: Path) -> dict[str, object]:
    """All that is outside the folders that programs may write to: where links lead, and what plain files hold."""
    return {
        str(path): os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else "folder"
        for path in folder.rglob("*")
        if path.relative_to(folder).parts[0] not in NAMED
    }


def _hangs(*_: object) -> None:
    raise KeyboardInterrupt("it hangs")  # no code of ours takes that for input


def _undrawn(paper: Paper, *_: object) -> list[tuple[PaperFigure, None]]:
    return [(about, None) for about in paper.figures]
