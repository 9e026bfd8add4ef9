"""Hostile files around a run: links, pipes, tables, summaries, and names that reach the HTML page."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from arith_erd.runs import METRICS

from .world import SECRET, Case, World

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
    yield from pages()


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


SCRIPT = "<script>alert(1)</script>"
FORMULA = '=HYPERLINK("http://evil")'


def pages() -> Iterator[Case]:
    """What a run says of itself, in a page, a table and a spreadsheet."""

    def named(name: str | bytes) -> Callable[[World], Reader]:
        def attack(world: World) -> Reader:
            os.rename(os.fsencode(world.run.path), os.path.join(os.fsencode(world.folder), b"runs", os.fsencode(name)))
            return lambda: (world.report(), inert(world.folder / "report"))

        return attack

    yield Case("a run directory that is a script", named("<img src=x onerror=alert(1)>"), None)
    yield Case("a run directory that is a formula", named(FORMULA.replace("/", "")), None)
    yield Case("a run directory that rewrites the terminal", named("\x1b[2J\nok"), None)
    yield Case("a run directory that is no text", named(b"\xff\xfe"), None)

    def told(change: Callable[[World], object]) -> Callable[[World], Reader]:
        def attack(world: World) -> Reader:
            change(world)
            return lambda: (world.report(), inert(world.folder / "report"))

        return attack

    def device(world: World) -> None:
        world.run.finish(world.summary | {"device": SCRIPT, "versions": {"commit": FORMULA, "torch": SCRIPT}})

    def departure(world: World) -> None:
        world.configure("model.optimizer.lr", f"{SCRIPT}|\n| **x** | {FORMULA}")

    def column(world: World) -> None:
        summary = world.summary
        summary["seeds"][0] |= {FORMULA: FORMULA, SCRIPT: SCRIPT}
        world.run.finish(summary)

    def probe(world: World, name: str, text: str) -> None:
        world.file(f"probes/{name}").mkdir(parents=True)
        world.file(f"probes/{name}/rows.csv").write_text(text)

    yield Case("a device that is a script", told(device), None)
    yield Case(
        "a device that is a script, with figures", lambda w: (device(w), lambda: w.report(figures=True))[1], None
    )
    yield Case("a setting that is a script and a formula", told(departure), None)
    yield Case("a column that is a formula", told(column), None)
    yield Case("a probe that is a script", told(lambda w: probe(w, "new", f"seed,{SCRIPT},x\n0,{SCRIPT},0.5\n")), None)
    yield Case("a probe with a column of ours", told(lambda w: probe(w, "new", "seed,replica,x\n0,5,0.5\n")), None)
    yield Case("a probe without seeds", told(lambda w: probe(w, "new", "x\n0.5\n")), "rows.csv")
    yield Case("a probe of other seeds", told(lambda w: probe(w, "new", "seed,x\n99,0.5\n")), None)
    yield Case("a probe named as a path", told(lambda w: probe(w, "..evil", "seed,x\n0,0.5\n")), None)

    def secret(world: World) -> None:
        text = yaml.safe_dump(world.config | {"seed": "0-1", "logger": {"entity": "${oc.env:SECRET}"}})
        world.file("config.yaml").write_text(text)

    yield Case("a resolver, for the report", told(secret), None)


def inert(report: Path) -> None:
    """No markup, no formula and no secret of a run has come through."""
    page, markdown = ((report / name).read_text() for name in ("index.html", "claims.md"))
    assert "alert(1)<" not in page.replace("&lt;", "")
    for bad in (SCRIPT, "<img src=x"):
        assert bad not in page
        assert bad not in markdown
    for name in ("runs.csv", "claims.csv"):
        cells = (report / name).read_text().replace('"', "").replace("\n", ",").split(",")
        assert not any(cell.startswith(("=", "@")) for cell in cells)
    assert SECRET not in page
