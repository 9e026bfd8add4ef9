"""Hostile files around a run: in the way, damaged, or too large for the disk."""

import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import torch

from arith_erd.runs import METRICS, Run

from .configurations import anything, paths
from .world import Attack, Cause, Program, World, pick, put

HEAD = ",".join(METRICS)
TABLES = {  # metrics.csv -> what the report says of it
    "numbers without end": (f"{HEAD}\n1,0,1e999,1e999,1e999,1e999,1e999,1e999\n", "no fraction from 0 to 1"),
    "an epoch beyond counting": (f"{HEAD}\n{10**30},0,0.5,0.5,0.5,0.5,0.5,1\n", "metrics.csv"),
    "a quote that never ends": (f'{HEAD}\n"' + "1,0\n" * 100, "metrics.csv"),
    "a binary": (b"\x7fELF\xff\xfe\x00\x80", "metrics.csv"),
}
SUMMARIES = {
    "brackets without end": ('{"a":' + "[" * 100_000, "summary.json"),
    "null": ("null", "summary.json"),
    "not finished": ('{"status": "running", "seeds": []}', "summary.json"),
}


PLACES = (
    *("config.yaml", "metrics.csv", "summary.json", "last.ckpt", "previous.ckpt", "error.txt", "curves.png", ".lock"),
    *(".attempt", "weights", "weights/seed=0.safetensors", "probes", "probes/errors", "probes/errors/rows.csv"),
    *("probes/errors/figure.png", "probes/errors/probe.json", "wandb", "."),
)


def folder(path: Path, world: World) -> None:
    (path / "inside").mkdir(parents=True)


def forbidden(path: Path, world: World) -> None:
    path.touch()
    path.chmod(0)


THINGS: dict[str, Callable[[Path, World], object]] = {
    "nothing": lambda path, world: None,
    "an empty file": lambda path, world: path.touch(),
    "a folder": folder,
    "a link out": lambda path, world: path.symlink_to(world.victim),
    "no permission": forbidden,
}


def in_the_way(n: int, random: Random) -> Attack:
    """Something else where a file of a run should be, met by whoever reads or writes it."""
    (name, put_there), place = pick(THINGS, n), random.choice(PLACES)
    asked = random.choice(("load", "collect", "resume", "resume", "probe"))

    def prepare(world: World) -> Program:
        if asked == "resume":
            world.interrupted()
        path = world.file(place)
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        put_there(path if place != "." else world.run.path, world)
        return getattr(world, asked)

    return Attack(f"{name}: {place}, {asked}", prepare)


def mutated(data: bytes, random: Random) -> bytes:
    """One to four times: a bit flipped, a part cut off, dropped, doubled or inserted."""
    for _ in range(random.randint(1, 4)):
        at, length = random.randrange(len(data) + 1), random.randint(1, 300)
        data = random.choice(
            (
                data[:at] + bytes(byte ^ (1 << random.randrange(8)) for byte in data[at : at + 1]) + data[at + 1 :],
                data[:at],
                data[:at] + data[at + length :],
                data[: at + length] + data[at:],
                data[:at] + random.randbytes(length % 30) + data[at:],
            )
        )
    return data


def damaged(n: int, random: Random) -> Attack:
    """Bytes of a file changed: a run resumes to the same weights, or it says in one line why not."""
    files = ("config.yaml", "metrics.csv", "summary.json", "weights/seed=0.safetensors", "last.ckpt", "previous.ckpt")
    name = files[n % len(files)]
    asked = "resume" if name.endswith("ckpt") else random.choice(("load", "collect", "resume"))

    def prepare(world: World) -> Program:
        if asked == "resume" and name != "summary.json":
            world.interrupted()
        if not world.file(name).exists():
            return world.load
        world.file(name).write_bytes(mutated(world.file(name).read_bytes(), random))
        if not name.endswith("ckpt"):
            return getattr(world, asked)
        whole = {seed: world.whole.weights(seed).read_bytes() for seed in world.job.seeds}

        def resume_and_compare() -> None:
            world.resume()
            assert {seed: world.run.weights(seed).read_bytes() for seed in whole} == whole, "Traceback: other weights"

        return resume_and_compare

    return Attack(f"{name}, {asked}", prepare)


TENSORS = (torch.zeros(()), torch.zeros(1), torch.zeros(1).expand(1000), torch.ones(2, 3, dtype=torch.int32))


def other_checkpoint(n: int, random: Random) -> Attack:
    """Any value at any place of a checkpoint: it may lead anywhere that is a number, but not to a traceback."""
    value = random.choice((anything(random), *TENSORS))

    def prepare(world: World) -> Program:
        world.interrupted()
        saved = world.checkpoint
        path = random.choice([*paths(saved)])
        put(saved, path, value)
        torch.save(saved, world.run.checkpoint)
        return world.resume

    return Attack("a value", prepare)


def full_disk(n: int, random: Random) -> Attack:
    """Files cannot grow beyond a limit: training, probing or reporting."""
    asked, limit = ("resume", "probe", "report")[n % 3], random.choice((0, 10, 500, 5000, 20_000, 60_000))

    def prepare(world: World) -> Program:
        world.interrupted() if asked == "resume" else None

        def limited() -> None:
            before = resource.getrlimit(resource.RLIMIT_FSIZE)
            try:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
                getattr(world, asked)()
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, before)

        return limited

    return Attack(f"{asked}, {limit} bytes", prepare)


def moved_away(n: int, random: Random) -> Attack:
    """The run directory is moved, removed or replaced while it is trained in."""
    deed = ("moved", "removed", "replaced")[n % 3]

    def prepare(world: World) -> Program:
        world.interrupted()
        elsewhere = world.folder / "tmp" / "moved"
        original = Run.append_metrics

        def away(run: Run, rows: Any) -> None:
            run.path.rename(elsewhere)
            if deed == "removed":
                shutil.rmtree(elsewhere)
            if deed == "replaced":
                run.path.touch()
            original(run, rows)

        def train() -> None:
            with mock.patch.object(Run, "append_metrics", away):
                world.resume()

        return train

    return Attack(deed, prepare, "error: ")


def table(n: int, random: Random) -> Attack:
    """Text in place of ``metrics.csv`` or ``summary.json``, read by the report."""
    file, texts = (("metrics.csv", TABLES), ("summary.json", SUMMARIES))[n % 2]
    name, (text, says) = pick(texts, n // 2)

    def prepare(world: World) -> Program:
        world.file(file).write_bytes(text if isinstance(text, bytes) else text.encode())
        return world.collect

    return Attack(f"{file}: {name}", prepare, says)


CAUSES: dict[str, Cause] = {
    cause.__name__: cause for cause in (in_the_way, damaged, other_checkpoint, full_disk, moved_away, table)
}
