"""A folder with a run in it and a file beside it that must not change, watched while a program meets hostile input."""

import atexit
import contextlib
import io
import json
import os
import re
import shutil
import signal
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
from arith_erd.errors import UserError
from arith_erd.interp.loading import load_run
from arith_erd.report.__main__ import build as build_report
from arith_erd.report.collect import collect
from arith_erd.report.paper import load_paper
from arith_erd.runs import Run
from arith_erd.system.boundary import program
from arith_erd.training.callbacks import KeepRows
from arith_erd.training.train import train
from tests.behaviour.interruption import interrupt
from tests.tiny import FOUR_EPOCHS, TINY

SECRET = "s3cr3t-of-the-environment"
SECONDS = 60  # an attack that takes longer hangs
NAMED = ("runs", "report", "out", "tmp")  # folders that the programs were told to write to
Entry = TypeVar("Entry")
Program = Callable[[], object]


@cache
def templates() -> tuple[Job, Path]:
    """A job of two seeds and four epochs, and a folder with its run finished and its run interrupted in epoch 4."""
    folder = Path(tempfile.mkdtemp(prefix="hostile-"))
    atexit.register(shutil.rmtree, folder)
    job = compose("train", [*TINY, *FOUR_EPOCHS, f"runs_dir={folder / 'finished'}"])
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
        victim: a file that is not to be touched.
    """

    def __init__(self, folder: Path) -> None:
        template, self._runs = templates()
        self.folder = folder
        self.canary, self.victim = folder / "canary", folder / "victim"
        self.victim.write_text("precious")
        for name in ("here", *NAMED):
            (folder / name).mkdir()
        self.job = replace(template, runs_dir=folder / "runs")
        self.run = self.job.run
        shutil.copytree(self._runs / "finished" / self.run.name, self.run.path)
        self.config: dict[str, Any] = self.run.config()
        self.summary = self.run.summary()

    @property
    def whole(self) -> Run:
        """The run that nobody interrupted. For reading only."""
        return Run(self._runs / "finished" / self.run.name)

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

    def load(self) -> None:
        load_run(self.run.path, 0)

    def resume(self) -> None:
        train(self.job)

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


@dataclass(frozen=True)
class Attack:
    """One hostile input.

    Attributes:
        name: of the cause and what was drawn.
        prepare: makes the world hostile, and returns the program that meets it.
        says: part of the message that refuses it; "" for any message; None where it may be harmless, too.
        lines: of the message; a sweep prints one for each job, and one more.
    """

    name: str
    prepare: Callable[[World], Program]
    says: str | None = None
    lines: int = 1


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


def attempt(attack: Attack) -> str:
    """Let an attack happen, and return the line that refused it, if any did.

    Raises:
        AssertionError: if it had a side effect, hung, showed a secret, left a run that is called finished and is not,
            or was refused in anything but a short line.
    """
    templates()  # in the system's own temporary folder
    with tempfile.TemporaryDirectory() as name, _surroundings(Path(name)):
        world = World(Path(name))
        call = attack.prepare(world)
        before, finished = snapshot(world.folder), world.run.finished
        output = io.StringIO()
        status: Any = 0
        with _limited(), contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors := io.StringIO()):
            try:
                with contextlib.chdir(world.folder / "here"), program():
                    call()
            except SystemExit as end:
                status = end.code
        lines, said = errors.getvalue().splitlines(), output.getvalue() + errors.getvalue()
        assert not world.canary.exists(), "it ran code"
        assert snapshot(world.folder) == before, "it changed a file outside the named folders"
        written = [path.read_text(errors="replace") for path in (world.folder / "report").glob("*.*")]
        assert SECRET not in "".join([said, *written]), "it shows the environment"
        assert "Traceback" not in said
        assert not list(world.folder.rglob(".partial-*"))
        assert status in (0, 1, 70), status
        if status:
            assert len(lines) <= attack.lines, lines
            assert lines[0].startswith("error: ")
            assert all(line.isprintable() and len(line) < 1100 for line in lines)
        assert status or attack.says is None, "it was not refused"
        assert (attack.says or "") in said, f"{said!r} does not say {attack.says!r}"
        if world.run.finished and not finished:
            for seed in world.job.seeds:
                assert all(x.isfinite().all() for x in load_run(world.run.path, seed).network.parameters())
        return lines[0] if status else ""


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
    class Hangs(BaseException):
        pass

    def hangs(*_: object) -> None:
        raise Hangs

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(SECONDS)
    try:
        yield
    except Hangs:
        raise AssertionError("it hangs") from None
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def attacks(causes: Mapping[str, Cause], each: int, seed: int = 0) -> Iterator[Attack]:
    """``each`` attacks of every cause."""
    for name, cause in causes.items():
        for n in range(each):
            attack = cause(n, Random(f"{seed} {name} {n}"))
            yield replace(attack, name=re.sub(r"\s+", " ", f"{name} {n}: {attack.name}")[:120])
