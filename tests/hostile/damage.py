"""Cause 2: damaged neighbours end nobody else's work."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from arith_erd.config.compose import compose
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
    file = (*FILES, ".lock")[n % 6]
    world.interrupted()
    spoil(world.file(file), n, random)
    yield Attack(file, lines=4)
    try:
        world.type("-m", *WORDS[:-1], "seed='0-1','3'")
    finally:
        other = replace(world.job, seed=(3,), resolved=world.job.resolved | {"seed": 3})
        assert other.run.finished, "the other job did not finish"


def paths(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something is in a tree of dictionaries and lists."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield (*path, key)
        yield from paths(value, (*path, key))


NEIGHBOURS = [neighbour, failing_job]
