"""Causes 2 to 4: damaged neighbours end nobody else's work, unreadable is not damaged, the end of a run is counted."""

import builtins
import errno
import io
import os
import re
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from arith_erd.config.build import trust_classes
from arith_erd.config.compose import compose
from arith_erd.losses import CrossEntropy
from arith_erd.runs import METRICS
from arith_erd.runs.__main__ import main as runs_main
from arith_erd.training.train import train

from .world import WORDS, Attack, Case, World, typed

HEAD = ",".join(METRICS)
FILES = ("config.yaml", "metrics.csv", "summary.json", "weights/seed=0.safetensors", "last.ckpt")
THINGS: tuple[Callable[[Path], object], ...] = (
    lambda path: None,
    lambda path: path.touch(),
    lambda path: (path / "inside").mkdir(parents=True),
    lambda path: path.symlink_to(path),
    lambda path: path.write_bytes(b"\x7fELF\xff\xfe\x00\x80"),
    lambda path: path.write_text(f"{HEAD}\n1,0,1e999,1e999,1e999,1e999,1e999,1e999\n"),
    lambda path: path.write_text(f"{HEAD}\n{10**30},0,0.5,0.5,0.5,0.5,0.5,1\n"),
    lambda path: path.write_text("<script>\x1b[2J" * 3000),
)


def spoil(path: Path, n: int, random: Random) -> None:
    """Put something else in the place of a file, or flip a bit, cut a part off, drop, double or insert one."""
    if not path.is_file() or n % 17 < len(THINGS):
        path.unlink(missing_ok=True)
        THINGS[n % len(THINGS)](path)
        return
    data = path.read_bytes()
    at, length = random.randrange(len(data) + 1), random.randint(1, 300)
    flipped = bytes(byte ^ (1 << random.randrange(8)) for byte in data[at : at + 1])
    middle = random.choice((flipped + data[at + 1 :], b"", data[at + length :], data[max(0, at - length) :]))
    path.write_bytes(data[:at] + middle)


# Cause 2


def neighbour(world: World, n: int, random: Random) -> Case:
    """A damaged run beside the one that is wanted: a longer run, a sweep, a list and a report go on without it."""
    asked, file, runs = ("longer", "sweep", "list", "report")[n % 4], FILES[n % 5], world.folder / "runs"
    beside = shutil.copytree(world.run.path, runs / "beside") if asked in ("list", "report") else world.run.path
    spoil(beside / file, n, random)
    yield Attack(f"{asked}, {file}", "finished" if asked == "list" else None, finishes=True)
    if asked == "longer":
        train(compose("train", [*WORDS, "trainer.max_epochs=5", f"runs_dir={runs}"]))
    elif asked == "sweep":
        world.type("-m", *WORDS, "trainer.max_epochs=1", "seed=3,4")
    elif asked == "list":
        typed(runs_main, str(runs))
    else:
        world.report()


def failing_job(world: World, n: int, random: Random) -> Case:
    """One job of a sweep whose own directory is damaged: the other one finishes."""
    file = (*FILES, "previous.ckpt", ".lock")[n % 7]
    world.interrupted()
    spoil(world.file(file), n, random)
    yield Attack(file, lines=4)
    try:
        world.type("-m", *WORDS[:-1], "seed='0-1','3'")
    finally:
        other = replace(world.job, seed=(3,), resolved=world.job.resolved | {"seed": 3})
        assert other.run.finished, "the other job did not finish"


# Cause 3

NUMBERS = (errno.EMFILE, errno.ENFILE, errno.EACCES, errno.EIO, errno.ESTALE, errno.ENOMEM, errno.EPERM)


@contextmanager
def refusing(name: str, number: int, skipped: int) -> Iterator[None]:
    """After ``skipped`` times, files of this name cannot be opened, whoever asks."""
    seen: list[str] = []

    def guard(original: Callable[..., Any]) -> Callable[..., Any]:
        def opened(file: Any, *arguments: Any, **options: Any) -> Any:
            if isinstance(file, str | Path) and Path(file).name == name:
                seen.append(str(file))
                if len(seen) > skipped:
                    raise OSError(number, os.strerror(number), str(file))
            return original(file, *arguments, **options)

        return opened

    with mock.patch.object(builtins, "open", guard(open)), mock.patch.object(io, "open", guard(io.open)):
        yield


def cannot_be_opened(world: World, n: int, random: Random) -> Case:
    """A file that cannot be opened for a while: the run resumes to the same bits, at once or when it can be read."""
    name = ("last.ckpt", "metrics.csv", "summary.json", "config.yaml", "previous.ckpt")[n % 5]
    number, skipped = NUMBERS[n % 7], random.choice((0, 0, 1, 2))
    if name != "summary.json":
        world.interrupted()
    files = {path: path.read_bytes() for path in world.run.path.rglob("*.*") if path.suffix in (".ckpt", ".json")}
    yield Attack(f"{name}, {errno.errorcode[number]} after {skipped}")
    try:
        with refusing(name, number, skipped):
            world.resume_whole()
    except Exception:
        assert all(path.read_bytes() == content for path, content in files.items()), "a file was replaced"
        world.resume_whole()
        raise


def limited(world: World, n: int, random: Random) -> Case:
    """So many files can be open, or files be so large, and no more; later there is room."""
    kind, asked = (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE)[n % 2], ("resume", "report", "probe")[n % 3]
    files, size = max(map(int, os.listdir("/proc/self/fd"))) + n // 6, (0, 10, 500, 5000, 20_000, 60_000)[n // 6 % 6]
    most = files if kind == resource.RLIMIT_NOFILE else size
    if asked == "resume":
        world.interrupted()
    before = resource.getrlimit(kind)
    yield Attack(f"{asked}, {('files', 'bytes')[n % 2]}: {most}")
    try:
        resource.setrlimit(kind, (most, before[1]))
        getattr(world, asked)()
    finally:
        resource.setrlimit(kind, before)
        if asked == "resume":
            world.resume_whole()


# Cause 4


class Ending(CrossEntropy):
    """A loss that ends everything at one of its calls."""

    left: int
    error: type[BaseException]

    def forward(self, *arguments: Any) -> Any:
        Ending.left -= 1
        if Ending.left < 0:
            raise Ending.error
        return super().forward(*arguments)


ERRORS = (KeyError, SystemExit, StopIteration, GeneratorExit, MemoryError, RuntimeError)


def ending_loss(world: World, n: int, random: Random) -> Case:
    """A loss that fails, or raises what others take for an end: the run has not finished, and says so."""
    trust_classes(Ending)
    Ending.error, Ending.left = ERRORS[n % len(ERRORS)], 9 + n // len(ERRORS)
    target = f"model.loss._target_={Ending.__module__}.Ending"
    job = compose("train", [*WORDS, target, f"runs_dir={world.folder / 'runs'}"])
    yield Attack(f"{Ending.error.__name__} after {Ending.left}", "Ending" if n % len(ERRORS) == 0 else "")
    try:
        train(job)
    finally:
        assert not job.run.finished, "it is called finished"


ROWS: dict[str, Callable[[list[str], int], list[str]]] = {
    "missing": lambda rows, at: [*rows[:at], *rows[at + 1 :]],
    "doubled": lambda rows, at: [*rows[:at], rows[at], *rows[at:]],
    "later": lambda rows, at: [*rows, f"9{rows[at]}"],
    "another seed": lambda rows, at: [*rows[:at], re.sub(",[01],", ",7,", rows[at], count=1), *rows[at + 1 :]],
}


def other_rows(world: World, n: int, random: Random) -> Case:
    """Rows of ``metrics.csv`` missing, doubled, moved or of later epochs: what is called finished is whole."""
    deed, at = list(ROWS)[n % len(ROWS)], n // len(ROWS) % 8
    world.interrupted()
    head, *rows = world.run.metrics_file.read_text().splitlines()
    world.run.metrics_file.write_text("\n".join([head, *ROWS[deed](rows, at)]) + "\n")
    yield Attack(f"{deed}, {at}")
    world.resume_whole()


def paths(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something is in a tree of dictionaries and lists."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield (*path, key)
        yield from paths(value, (*path, key))


NEIGHBOURS = [neighbour, failing_job]
UNREADABLE = [cannot_be_opened, limited]
COUNTED = [ending_loss, other_rows]
