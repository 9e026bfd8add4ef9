"""Hostile files around a run: links, pipes, tables and summaries."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from arith_erd.runs import METRICS

from .world import Case, World

Reader = Callable[[], object]
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
}


def cases() -> Iterator[Case]:
    yield from links()
    for name, (text, says) in TABLES.items():

        def attack(world: World, text: str | bytes = text) -> Reader:
            world.file("metrics.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
            return world.collect

        yield Case(f"metrics.csv: {name}", attack, says)
    for name, (text, says) in SUMMARIES.items():

        def attack(world: World, text: str = text) -> Reader:
            world.file("summary.json").write_text(text)
            return world.collect

        yield Case(f"summary.json: {name}", attack, says)
    yield from entries()


def links() -> Iterator[Case]:
    """Where a run would write, a way out of the run directory."""
    for name in ("metrics.csv", "config.yaml", ".config.yaml.partial", "last.ckpt", ".last.ckpt.partial", "curves.png"):

        def attack(world: World, name: str = name) -> Reader:
            world.file(name).unlink(missing_ok=True)
            world.file(name).symlink_to(world.victim)
            return world.interrupted()

        yield Case(f"a link out: {name}", attack, f"{name}: a link or a pipe")
    for name in ("weights", "probes"):

        def attack(world: World, name: str = name) -> Reader:
            shutil.rmtree(world.file(name), ignore_errors=True)
            world.file(name).symlink_to(world.folder)
            return world.interrupted()

        yield Case(f"a link out: {name}/", attack, f"{name}: a link or a pipe")

    def deep(world: World) -> Reader:
        world.file("probes/errors").mkdir(parents=True)
        world.file("probes/errors/figure.png").symlink_to(world.victim)
        return world.interrupted()

    yield Case("a link out: probes/errors/figure.png", deep, "figure.png: a link or a pipe")

    def replaced(name: str, make: Callable[[Path], object]) -> Callable[[World], Reader]:
        def attack(world: World) -> Reader:
            world.file(name).unlink()
            make(world.file(name))
            return world.interrupted() if name == "last.ckpt" else world.collect

        return attack

    for name, says in (
        ("metrics.csv", "metrics.csv"),
        ("config.yaml", "config.yaml"),
        ("summary.json", None),
        ("weights/seed=0.safetensors", None),
    ):
        yield Case(f"a pipe: {name}", replaced(name, os.mkfifo), says)
        yield Case(f"a folder: {name}", replaced(name, os.mkdir), says)
    yield Case("a pipe: last.ckpt", replaced("last.ckpt", os.mkfifo), "last.ckpt: a link or a pipe")
    for name in ("metrics.csv", "config.yaml"):
        endless = replaced(name, lambda path: path.symlink_to("/dev/zero"))
        yield Case(f"a device without end: {name}", endless, name)


def entries() -> Iterator[Case]:
    """Values of a summary that nobody expects."""
    changes: dict[str, tuple[Callable[[dict[str, Any]], None], str | None]] = {
        "a device that is a list": (lambda summary: summary.update(device=[{"x": 1}]), None),
        "versions that are lists": (lambda summary: summary.update(versions={"torch": [1], "commit": {}}), None),
        "a column that is ours": (lambda summary: summary["seeds"][0].update(replica=7, key=3, kind=None), None),
        "a value that is a list": (lambda summary: summary["seeds"][0].update(note=[1, 2]), "summary.json"),
        "no parameters": (lambda summary: summary.update(params=0), "summary.json"),
        "a time that is text": (lambda summary: summary.update(wall_seconds="long"), "summary.json"),
        "other seeds": (lambda summary: summary["seeds"][0].update(seed=77), "summary.json"),
        "epochs that are a list": (lambda summary: summary.update(epochs=[2]), "summary.json"),
    }
    for name, (change, says) in changes.items():

        def attack(world: World, change: Callable[[dict[str, Any]], None] = change, says: str | None = says) -> Reader:
            summary = world.summary
            change(summary)
            world.run.finish(summary)
            return world.collect if says else world.report

        yield Case(f"summary.json: {name}", attack, says)
    for key, value, says in (
        ("trainer.stop_at", "soon", "config.yaml: not that of a run"),
        ("trainer.max_epochs", 10**30, "config.yaml: not that of a run"),
        ("task.prompt_order", ["x"], "task.prompt_order=['x']: expected a name"),
        ("task.name", "../../x", "task.name=../../x: expected a name"),
        ("task", {0: 1, "name": "add"}, "config.yaml: not that of a run"),
        ("data", {"secret": "${oc.env:SECRET}"}, None),
    ):

        def attack(world: World, key: str = key, value: Any = value) -> Reader:
            world.configure(key, value)
            return world.collect

        yield Case(f"config.yaml, for the report: {key}={str(value)[:20]}", attack, says)
