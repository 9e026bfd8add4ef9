"""A folder with a run and a file that must not change, watched while hostile input is read."""

import contextlib
import io
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import yaml
from safetensors.torch import save_file

from arith_erd.config.compose import compose
from arith_erd.config.job import Job, read_job
from arith_erd.errors import UserError
from arith_erd.interp.subject import load_run
from arith_erd.report.__main__ import build as build_report
from arith_erd.report.collect import Collection, collect
from arith_erd.report.figures import paper_figures
from arith_erd.report.paper import load_paper
from arith_erd.runs import METRICS
from tests.tiny import TINY

SECRET = "s3cr3t-of-the-environment"
SECONDS = 30  # a case that takes longer hangs


@cache
def _job() -> Job:
    return compose("train", [*TINY, "seed=0-1"])


@cache
def _state() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return _job().network().state_dict()


class World:
    """A finished run of two seeds, as training would leave it, in a folder of its own.

    Attributes:
        folder: with all of it.
        run: to be made hostile.
        canary: does not exist; gadgets make it.
        victim: a file that is not to be touched.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.canary = folder / "canary"
        self.victim = folder / "victim"
        self.victim.write_text("precious")
        self.data = self.config | {"runs_dir": str(folder / "runs")}
        self.run = read_job(self.data).run
        self.run.create(self.data)
        rows = [dict.fromkeys(METRICS, 0.5) | {"epoch": epoch, "seed": seed} for epoch in (1, 2) for seed in (0, 1)]
        self.run.write_metrics(rows)
        state = _state()
        for seed in (0, 1):
            save_file(state, self.run.weights(seed))
        self.checkpoint = {"state_dict": {f"pack.stacked.{name}": torch.stack([x, x]) for name, x in state.items()}}
        torch.save(self.checkpoint, self.run.checkpoint)
        seeds = [{"seed": seed, "val_seq_acc": 0.5, "val_mae": 1.0, "epochs_to_95": None} for seed in (0, 1)]
        about = {"status": "finished", "params": 3000, "epochs": 2, "wall_seconds": 1.0, "train_flops": 1e9}
        self.summary = about | {"device": "a CPU", "versions": {"torch": "2.13.0"}, "seeds": seeds}
        self.run.finish(self.summary)

    @property
    def config(self) -> dict[str, Any]:
        return json.loads(json.dumps(_job().resolved))

    @property
    def state(self) -> dict[str, torch.Tensor]:
        return dict(_state())

    def configure(self, key: str, value: Any) -> None:
        """Write another value into ``config.yaml``."""
        node = config = self.config | {"runs_dir": str(self.folder / "runs")}
        *path, last = key.split(".")
        for part in path:
            node = node[part]
        node[last] = value
        self.file("config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))

    def file(self, name: str) -> Path:
        return self.run.path / name

    def in_progress(self) -> None:
        """Leave no final weights and no summary, so that ``last.ckpt`` is what is read."""
        self.file("summary.json").unlink()
        shutil.rmtree(self.file("weights"))

    # Who reads

    def load(self) -> None:
        load_run(self.run.path, 0)

    def interrupted(self) -> Callable[[], None]:
        """Who goes on with the run, which is not finished now; to be refused before anything is written."""
        from arith_erd.training.train import train

        self.file("summary.json").unlink(missing_ok=True)
        return lambda: train(read_job(self.data))

    def collect(self) -> None:
        """Read the folder of runs as the report does; what could not be read is told as an error would be."""
        _tell(collect(self.folder / "runs", load_paper().setup))

    def report(self, figures: bool = False) -> None:
        """The same, and write the page."""
        drawn = paper_figures if figures else lambda *_: ()
        with mock.patch("arith_erd.report.__main__.paper_figures", drawn):  # they take most of the time
            found, _ = build_report(self.folder / "runs", self.folder / "report")
        _tell(found)


def _tell(found: Collection) -> None:
    if found.problems:
        raise UserError(" | ".join(f"{name}: {problem}" for name, problem in found.problems.items()))


@dataclass(frozen=True)
class Case:
    """One hostile input.

    Attributes:
        attack: makes the world hostile, and returns who reads it.
        expected: part of the message that refuses it; None where it is harmless and simply read.
    """

    name: str
    attack: Callable[[World], Callable[[], object]]
    expected: str | None


def attempt(case: Case) -> str:
    """Let a case happen, and return the message that refused it, if any did.

    Raises:
        AssertionError: if it had a side effect, hung, showed a secret, or was refused in more than a short line.
    """
    with tempfile.TemporaryDirectory() as name, _environment(), _limited(case.name):
        world = World(Path(name))
        read = case.attack(world)
        before = snapshot(world.folder)
        message = ""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            try:
                read()
            except UserError as error:
                message = str(error)
        own = {".lock", "error.txt"}  # a run that goes on and fails leaves these
        after = {path: held for path, held in snapshot(world.folder).items() if Path(path).name not in own}
        after = {path: held for path, held in after.items() if "report" not in Path(path).parts[:1]}
        assert not world.canary.exists(), "it ran code"
        assert after == before, f"it changed {sorted(set(after.items()) ^ set(before.items()))[:3]}"
        written = [path.read_text() for path in (world.folder / "report").glob("*.*")]
        assert SECRET not in "".join([message, printed.getvalue(), *written]), "it shows the environment"
        assert "Traceback" not in printed.getvalue()
        assert "\n" not in message
        assert len(message) <= 1100
        if case.expected is None:
            assert not message, f"it was refused: {message}"
        else:
            assert case.expected in message, f"{message!r} does not say {case.expected!r}"
        return message


def snapshot(folder: Path) -> dict[str, object]:
    """All that is there: where links lead, and what plain files hold."""
    held: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = os.fsdecode(os.fsencode(path.relative_to(folder)))
        if path.is_symlink():
            held[name] = os.readlink(path)
        elif path.is_file():
            held[name] = path.read_bytes()
        else:
            held[name] = path.lstat().st_mode
    return held


@contextlib.contextmanager
def _environment() -> Iterator[None]:
    os.environ["SECRET"] = SECRET
    try:
        yield
    finally:
        del os.environ["SECRET"]


@contextlib.contextmanager
def _limited(name: str) -> Iterator[None]:
    def hangs(*_: object) -> None:
        raise AssertionError(f"{name} hangs")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
