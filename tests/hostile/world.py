"""A folder with a run in it and a file beside it that must not change, watched while a program meets hostile input."""

import atexit
import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, TypeVar
from unittest import mock

import pytest
import torch
import yaml
from safetensors.torch import load_file

from arith_erd.config.compose import compose
from arith_erd.config.job import Job
from arith_erd.errors import UserError, first_line
from arith_erd.interp.loading import load_run
from arith_erd.report.__main__ import build as build_report
from arith_erd.report.collect import collect
from arith_erd.report.paper import load_paper
from arith_erd.runs import Run
from arith_erd.system.boundary import program
from arith_erd.training.__main__ import main as train_main
from arith_erd.training.callbacks import KeepRows
from arith_erd.training.train import train
from tests.behaviour.interruption import interrupt
from tests.tiny import FOUR_EPOCHS, TINY

ROOT = Path(__file__).parents[2]
SECRET = "s3cr3t-of-the-environment"
SECONDS = 120  # an attack that takes longer hangs
NAMED = ("runs", "report", "out", "tmp")  # folders that the programs were told to write to
WORDS = (*TINY, *FOUR_EPOCHS)
Entry = TypeVar("Entry")
Program = Callable[[], object]


@cache
def templates() -> tuple[Job, Path]:
    """A job of two seeds and four epochs, and a folder with its run finished and its run interrupted in epoch 4."""
    folder = Path(tempfile.mkdtemp(prefix="hostile-"))
    atexit.register(shutil.rmtree, folder)
    job = compose("train", [*WORDS, f"runs_dir={folder / 'finished'}"])
    with contextlib.redirect_stdout(io.StringIO()):
        train(job)
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(RuntimeError):
            interrupt(patch, KeepRows, epoch=4, after=True)
            train(replace(job, runs_dir=folder / "interrupted"))
    return job, folder


class World:
    """A run that has finished, or that was interrupted, in a folder of its own.

    Attributes:
        folder: with all of it.
        run: to be made hostile.
        canary: does not exist; gadgets make it.
        victim: a file that is not to be touched; there is another one in ``here``, the current folder.
    """

    def __init__(self, folder: Path) -> None:
        template, self._runs = templates()
        self.folder = folder
        self.canary, self.victim = folder / "canary", folder / "victim"
        for name in ("here", *NAMED):
            (folder / name).mkdir()
        self.victim.write_text("precious")
        (folder / "here" / "victim").write_text("precious")
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
    def state(self) -> dict[str, torch.Tensor]:
        return load_file(self.run.weights(0))

    @property
    def checkpoint(self) -> dict[str, Any]:
        return torch.load(self.run.checkpoint, weights_only=True)

    def configure(self, key: str, value: Any) -> None:
        """Write another value into ``config.yaml``."""
        config = json.loads(json.dumps(self.config))
        put(config, key.split("."), value)
        self.file("config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))

    # Who meets it

    def typed(self, *words: str, main: Callable[[], object] = train_main) -> Program:
        """A program as it is called from a shell, with its runs in this world."""
        runs = [] if any(word.startswith("runs_dir") for word in words) else [f"runs_dir={self.folder / 'runs'}"]
        return typed(main, *words, *runs)

    def load(self) -> None:
        load_run(self.run.path, 0)

    def resume(self) -> None:
        train(self.job)

    def resume_whole(self) -> None:
        """Resume; the weights are those of a run that nobody disturbed, or `resume` says in a line why not."""
        self.resume()
        for seed in self.job.seeds:
            if self.run.weights(seed).read_bytes() != self.whole.weights(seed).read_bytes():
                raise AssertionError("other weights")

    def probe(self) -> None:
        """Ask the run a question, with the files that this writes into its directory."""
        from arith_erd.probes.ask import answer

        answer(compose("probe", ["probe=errors", f"run={self.run.path}"]))

    def collect(self) -> None:
        """Read the folder of runs as the report does; what could not be read is told as an error would be."""
        problems = collect(self.folder / "runs", load_paper().setup).problems
        if problems:
            raise UserError(" | ".join(f"{name}: {problem}" for name, problem in problems.items()))

    def report(self) -> None:
        """The same, and write the page, without the figures, which take most of the time."""
        with mock.patch("arith_erd.report.__main__.paper_figures", return_value=()):
            build_report(self.folder / "runs", self.folder / "report")


def typed(main: Callable[[], object], *arguments: str) -> Program:
    """A program as it is called from a shell."""

    def run() -> None:
        with mock.patch.object(sys, "argv", ["program.py", *arguments]):
            main()

    return run


def process(*words: str, limits: str = ":", **environment: str) -> Program:
    """The same in a process of its own: words after ``python``, in a shell that sets ``limits`` before."""

    def run() -> None:
        inherited = {key: value for key, value in os.environ.items() if key not in ("PYTHONSAFEPATH", "PYTHONUTF8")}
        script = ["bash", "-c", f'{limits}; exec "$0" "$@"', sys.executable, *words]
        paths = {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "SECRET": SECRET}
        ended = subprocess.run(script, env=inherited | paths | environment, capture_output=True, timeout=SECONDS)
        print(ended.stdout.decode(errors="replace"))
        print(ended.stderr.decode(errors="replace"), file=sys.stderr, end="")
        if ended.returncode:
            raise SystemExit(ended.returncode)

    return run


@dataclass(frozen=True)
class Attack:
    """One hostile input.

    Attributes:
        name: what was drawn.
        prepare: makes the world hostile, and returns the program that meets it.
        says: part of the message that refuses it; "" for any message; None where it may be harmless, too.
        lines: of the message; a sweep prints one for each job, and one more.
        finishes: whether the program's work goes on beside what is damaged: it ends with status 0, and says ``says``.
    """

    name: str
    prepare: Callable[[World], Program]
    says: str | None = None
    lines: int = 1
    finishes: bool = False


@dataclass(frozen=True)
class Outcome:
    """What became of an attack: the line that refused it ("" where it was harmless), and what is not as it should be."""

    name: str
    line: str = ""
    traceback: bool = False
    internal: bool = False
    outside: bool = False
    wrong: str = ""

    @property
    def held(self) -> bool:
        return not (self.traceback or self.internal or self.outside or self.wrong)


Cause = Callable[[int, Random], Attack]
"""The n-th attack of a cause; what is not enumerated by n is drawn."""


def pick(table: Mapping[str, Entry], n: int) -> tuple[str, Entry]:
    """Entry n of a table, beginning again at its end, and its name."""
    return list(table.items())[n % len(table)]


def put(node: Any, path: Sequence[Any], value: Any) -> None:
    """Replace what is at a path of a tree of dictionaries and lists."""
    for part in path[:-1]:
        node = node[part]
    node[path[-1]] = value


def attempt(attack: Attack) -> Outcome:
    """Let an attack happen."""
    templates()  # in the system's own temporary folder
    with tempfile.TemporaryDirectory() as name, _surroundings(Path(name)):
        world = World(Path(name))
        call = attack.prepare(world)
        before, finished = snapshot(world.folder), world.run.finished
        output, errors, status, raised = io.StringIO(), io.StringIO(), 0, ""
        with _limited(), contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            try:
                with contextlib.chdir(world.folder / "here"), program():
                    call()
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else 1
            except BaseException as error:  # whatever it is, it is a finding
                raised = f"raised {type(error).__name__}: {error}"
        said = output.getvalue() + errors.getvalue()
        lines = [line for line in errors.getvalue().splitlines() if "ResourceWarning" not in line]
        outside = snapshot(world.folder) != before or world.canary.exists()
        written = [path.read_text(errors="replace") for path in (world.folder / "report").glob("*.*")]
        wrong = [
            raised,
            "it shows the environment" * (SECRET in "".join([said, *written])),
            "it left a partial file" * bool(list(world.folder.rglob(".partial-*"))),
            f"status {status}" * (status not in (0, 1, 2, 75)),
            f"not one line: {lines}" * (bool(status) and not (1 <= len(lines) <= attack.lines)),
            f"no line for people: {lines}" * any(not line.isprintable() or len(line) > 1100 for line in lines),
            "it was not refused" * (not status and attack.says is not None and not attack.finishes),
            f"it ended others' work: {lines}" * bool(status and attack.finishes),
            f"it does not say {attack.says!r}: {said[:300]!r}" * ((attack.says or "") not in said),
        ]
        if status in (1, 75) and lines and not (lines[0].startswith(("error: ", "usage: "))):
            wrong.append(f"no error: {lines[0]}")
        if world.run.finished and not finished:
            for seed in world.job.seeds:
                if not all(x.isfinite().all() for x in load_run(world.run.path, seed).network.parameters()):
                    wrong.append("it is called finished and is not")
        problems = "; ".join(filter(None, wrong))
        return Outcome(attack.name, lines[0] if status and lines else "", "Traceback" in said or bool(raised),
                       status == 70 or "internal error" in said, outside, problems)  # fmt: skip


def snapshot(folder: Path) -> dict[str, object]:
    """All that is outside the folders that programs may write to: where links lead, and what plain files hold."""
    return {
        str(path): os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else "folder"
        for path in folder.rglob("*")
        if path.relative_to(folder).parts[0] not in NAMED
    }


@contextlib.contextmanager
def _surroundings(folder: Path) -> Iterator[None]:
    """A secret in the environment, and temporary files where they are seen."""
    with mock.patch.dict(os.environ, SECRET=SECRET), mock.patch.object(tempfile, "tempdir", str(folder / "tmp")):
        yield


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    def hangs(*_: object) -> None:
        raise KeyboardInterrupt("it hangs")  # no code of ours takes that for input

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def attacks(causes: Mapping[str, Sequence[Cause]], each: int, seed: int = 0) -> Iterator[tuple[str, Attack]]:
    """``each`` attacks of every cause, evenly from its generators."""
    for name, generators in causes.items():
        for n in range(each):
            cause, turn = generators[n % len(generators)], n // len(generators)
            attack = cause(turn, Random(f"{seed} {cause.__name__} {turn}"))
            title = re.sub(r"\s+", " ", f"{name}, {cause.__name__} {turn}: {attack.name}")[:120]
            yield name, replace(attack, name=title)


__all__ = ["Attack", "Cause", "Outcome", "Program", "World", "attacks", "attempt", "first_line", "process", "typed"]
