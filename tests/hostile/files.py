"""Hostile files around a run: in the way, damaged, too large for the disk, and with names that reach the HTML page."""

import contextlib
import os
import resource
import shutil
import socket
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
    "numbers that are none": (f"{HEAD}\n1,0,nan,nan,nan,nan,nan,nan\n1,1,0.5,0.5,0.5,0.5,0.5,1\n", "metrics.csv"),
    "numbers without end": (f"{HEAD}\n1,0,1e999,1e999,1e999,1e999,1e999,1e999\n", "no fraction from 0 to 1"),
    "an epoch beyond counting": (f"{HEAD}\n{10**30},0,0.5,0.5,0.5,0.5,0.5,1\n", "metrics.csv"),
    "epochs before the first": (f"{HEAD}\n-5,0,0.5,0.5,0.5,0.5,0.5,1\n", "metrics.csv"),
    "a cell of a megabyte": (f"{HEAD}\n{'9' * 2**20},0,0.5,0.5,0.5,0.5,0.5,1\n", "metrics.csv"),
    "zeros": ("\0" * 5000, "metrics.csv"),
    "a quote that never ends": (f'{HEAD}\n"' + "1,0\n" * 100, "metrics.csv"),
    "a binary": (b"\x7fELF\xff\xfe\x00\x80", "metrics.csv"),
}
SUMMARIES = {
    "brackets without end": ('{"a":' + "[" * 100_000, "summary.json"),
    "brackets, closed again": ("[" * 5000 + "]" * 5000, "summary.json"),
    "numbers without end": ('{"params": 1e999, "seeds": [{"seed": 1e999}]}', "summary.json"),
    "an integer of 5000 digits": ('{"params": ' + "9" * 5000 + "}", "summary.json"),
    "null": ("null", "summary.json"),
    "a number": ("3", "summary.json"),
    "nothing": ("", "summary.json"),
    "not finished": ('{"status": "running", "seeds": []}', "summary.json"),
}


PLACES = (
    *("config.yaml", "metrics.csv", "summary.json", "last.ckpt", "previous.ckpt", "error.txt", "curves.png", ".lock"),
    *(".attempt", "weights", "weights/seed=0.safetensors", "probes", "probes/errors", "probes/errors/rows.csv"),
    *("probes/errors/figure.png", "probes/errors/probe.json", "wandb", "."),
)


def folder(path: Path, world: World) -> None:
    (path / "inside").mkdir(parents=True)


def sparse(path: Path, world: World) -> None:
    path.touch()
    os.truncate(path, 2**40)


def unix_socket(path: Path, world: World) -> None:
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as listener:  # long paths are refused
        listener.bind(path.name)


def forbidden(path: Path, world: World) -> None:
    path.touch()
    path.chmod(0)


THINGS: dict[str, Callable[[Path, World], object]] = {
    "nothing": lambda path, world: None,
    "an empty file": lambda path, world: path.touch(),
    "a folder": folder,
    "a pipe": lambda path, world: os.mkfifo(path),
    "a socket": unix_socket,
    "a link out": lambda path, world: path.symlink_to(world.victim),
    "a link to a folder": lambda path, world: path.symlink_to(world.folder / "here"),
    "a link to itself": lambda path, world: path.symlink_to(path.name),
    "a device": lambda path, world: path.symlink_to("/dev/zero"),
    "a second name": lambda path, world: os.link(world.victim, path),
    "a terabyte of nothing": sparse,
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


def summarised(change: Callable[[dict[str, Any]], object]) -> Callable[[World], object]:
    def tell(world: World) -> None:
        change(world.summary)
        world.run.finish(world.summary)

    return tell


def probed(text: str, name: str = "new") -> Callable[[World], object]:
    def tell(world: World) -> None:
        world.file(f"probes/{name}").mkdir(parents=True)
        world.file(f"probes/{name}/rows.csv").write_text(text)

    return tell


TOLD: dict[str, Callable[[World], object]] = {
    "a run directory that is no text": lambda world: os.rename(
        os.fsencode(world.run.path), os.fsencode(world.folder / "runs") + b"/\xff\xfe"
    ),
    "a device that is a list": summarised(lambda s: s.update(device=[{"x": 1}])),
    "versions that are lists": summarised(lambda s: s.update(versions={"torch": [1], "commit": {}})),
    "a column that is ours": summarised(lambda s: s["seeds"][0].update(replica=7, key=3, kind=None)),
    "a value that is a list": summarised(lambda s: s["seeds"][0].update(note=[1, 2])),
    "other seeds": summarised(lambda s: s["seeds"][0].update(seed=77)),
    "a probe with a column of ours": probed("seed,replica,x\n0,5,0.5\n"),
    "a probe without seeds": probed("x\n0.5\n"),
    "a probe of other seeds": probed("seed,x\n99,0.5\n"),
    "a probe named as a path": probed("seed,x\n0,0.5\n", "..evil"),
}


def told(n: int, random: Random) -> Attack:
    """What a run says of itself, read by the report; ``test_report.py`` looks at the page."""
    name, tell = pick(TOLD, n)

    def prepare(world: World) -> Program:
        tell(world)
        return world.collect

    return Attack(name, prepare)


CAUSES: dict[str, Cause] = {
    cause.__name__: cause for cause in (in_the_way, damaged, other_checkpoint, full_disk, moved_away, table, told)
}
