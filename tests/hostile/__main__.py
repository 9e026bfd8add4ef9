"""Damage run directories in every way we know, and let the programs meet them: ``python -m tests.hostile --cases 300``.

A case is a place in a run (a file, a folder), a damage (a link out, a pipe, deep nesting, no permission, ...) and a
program, which runs in a fork of this process. The damaged run is its subject, or a neighbour of a healthy run. Nothing
may hang, end with an internal error or by a signal, print a traceback or an escape character, or change a file outside;
a program that reads many runs leaves the damaged one out; and a file without permission is not called damaged. Cases
are drawn from all combinations, each once.

One line for each kind of damage; the exit status is 1 if a case failed.
"""

import argparse
import os
import random
import re
import resource
import shutil
import signal
import socket
import stat
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
import yaml

from arith_erd import load_run, load_table
from arith_erd.config.compose import compose
from arith_erd.errors import UserError
from arith_erd.probes.__main__ import main as probe
from arith_erd.report.__main__ import main as report
from arith_erd.runs.__main__ import main as list_runs
from arith_erd.runs.directory import Run
from arith_erd.runs.identity import flatten
from arith_erd.training import run_pack
from arith_erd.training.__main__ import main as train
from tests.forks import fork
from tests.tiny import FOUR_EPOCHS, TINY
from tests.values import put

SECONDS = 10  # of a processor that a program may take; a minute in all, since the machine may be busy
NOBODY = 65534
SETTINGS = (*TINY, *FOUR_EPOCHS, "checkpoint.keep=all")
TEXTS = ("add", "../x", "${task}", "\0", "", "\x1b[2J")
LEAVES = (*TEXTS, None, True, -1, 10**20, 10**300, 0.5, float("nan"), float("inf"))

# Damages of any place: each gets the place, and the folder of what must not change.


def replaced(by: Callable[[Path, Path], Any], path: Path, outside: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    by(path, outside)


def linked_loop(path: Path, _: Path) -> None:
    path.symlink_to(path.with_name("loop"))
    path.with_name("loop").symlink_to(path.name)


def bound_socket(path: Path, _: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the whole path may be too long for a socket
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(path.name)
    os.chdir(here)


def sparse(path: Path, _: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)


PLACED: dict[str, Callable[[Path, Path], Any]] = {
    "link to a file": lambda path, outside: path.symlink_to(outside / "file"),
    "link to a folder": lambda path, outside: path.symlink_to(outside),
    "link to a device": lambda path, _: path.symlink_to("/dev/zero"),
    "link to nothing": lambda path, outside: path.symlink_to(outside / "new"),
    "link to itself": lambda path, _: path.symlink_to(path.name),
    "loop": linked_loop,
    "other name of a file": lambda path, outside: path.hardlink_to(outside / "file"),
    "pipe": lambda path, _: os.mkfifo(path),
    "socket": bound_socket,
    "device": lambda path, _: os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5)),
    "folder": lambda path, _: path.mkdir(),
    "file": lambda path, _: path.write_text("a file"),
    "empty": lambda path, _: path.touch(),
    "sparse": sparse,
}

# Damages of what a file contains.


def anything(draw: random.Random, depth: int = 3) -> Any:
    """A tree of values that nobody expects."""
    kind = draw.random() if depth else 0
    if kind < 0.6:
        return draw.choice(LEAVES)
    items = [anything(draw, depth - 1) for _ in range(draw.randrange(4))]
    return items if kind < 0.8 else {draw.choice(("x", "name", 3)): item for item in items}


def cut(data: bytes, draw: random.Random) -> bytes:
    return data[: draw.randrange(len(data))]


def other_bytes(data: bytes, draw: random.Random) -> bytes:
    at, length = draw.randrange(len(data)), draw.randint(1, 300)
    return data[:at] + draw.choice((b"\xff", b"\0", b"", data[max(0, at - length) :])) + data[at + length :]


def other_value(data: bytes, draw: random.Random) -> bytes:
    """A value of YAML or JSON, which is YAML too, or a cell of a table."""
    if data[:1] in (b"{", b"t") and b": " in data:
        values = yaml.safe_load(data)
        return yaml.safe_dump(put(values, draw.choice([key for key, _ in flatten(values)]), anything(draw))).encode()
    odd = (b"nan", b"-inf", b"1e400", b"-1", b"9" * 300, b"9" * 5000, b"=cmd|x", b"\x1b[2J", b"", b"0x1", b"1_0", b"\0")
    cells = [*re.finditer(rb"[^,\n]+", data)]
    cell = draw.choice(cells)
    return data[: cell.start()] + draw.choice(odd) + data[cell.end() :]


def aliases(_: bytes, __: random.Random) -> bytes:
    return b"a: &a [1, 1]\n" + b"".join(b"%c: &%c [*%c, *%c]\n" % (x, x, x - 1, x - 1) for x in range(98, 122))


CONTAINED: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "cut": cut,
    "other bytes": other_bytes,
    "other value": other_value,
    "aliases": aliases,
    "megabyte of [": lambda *_: b"[" * 2**20,
    "megabyte of {": lambda *_: b'{"a":' * 2**18,
    "nested 900 deep": lambda *_: b"[" * 900 + b"]" * 900,
    "set and date": lambda data, _: data + b"\ntask: !!set {add}\nsplit: 2026-01-01\n",
    "huge numbers": lambda data, draw: re.sub(rb"\d+", lambda x: draw.choice((x[0], b"9" * 20, b"9" * 300)), data),
    "invalid UTF-8": lambda data, _: data.replace(b"e", b"\xff\xfe"),
}
FILES = (
    *("config.yaml", "summary.json", "metrics.csv", "tokens.csv", "slices.csv", "last.ckpt", ".lock", "error.txt"),
    *("curves.png", "x.csv", "weights/seed=0.safetensors", "weights/epoch=3/seed=1.safetensors"),
    *("weights/epoch=1/seed=0.safetensors", "probes/attention/rows.csv", "probes/attention/probe.json"),
)
FOLDERS = ("weights", "weights/epoch=1", "weights/epoch=3", "probes", "probes/attention")

# Programs: each gets the damaged run, and says whether it must end with 0, since a healthy run is there too.


def program(main: Callable[[], Any], *words: str) -> None:
    sys.argv = [main.__module__, *words]
    main()


def loaded(run: Run) -> None:
    try:
        load_run(run.path, 0)
    except (UserError, OSError) as error:
        raise SystemExit(1) from error


PROGRAMS: dict[str, tuple[Callable[[Run], Any], bool]] = {
    "list": (lambda run: program(list_runs, str(run.path.parent)), True),
    "list --csv": (lambda run: program(list_runs, str(run.path.parent), "--csv", "--sort=split.fraction"), False),
    "list --json": (lambda run: program(list_runs, str(run.path.parent), "--json", "--sort=device"), True),
    "list --by": (lambda run: program(list_runs, str(run.path.parent), "--by=task,split"), True),
    "list --by length": (lambda run: program(list_runs, str(run.path.parent), "--by=length"), False),
    "load_table": (lambda run: load_table(run.path.parent), True),
    "report": (lambda run: report([str(run.path.parent), f"--out={run.path.parent}/../report", "--claims=mini"]), True),
    "load_run": (loaded, False),
    "probe": (lambda run: program(probe, "probe=attention", f"run={run.path}"), False),
    "probe of a glob": (lambda run: program(probe, "probe=attention", f"run={run.path.parent}/*"), True),
    "train again": (lambda run: program(train, *SETTINGS, f"runs_dir={run.path.parent}"), False),
    "overwrite": (lambda run: program(train, *SETTINGS, f"runs_dir={run.path.parent}", "overwrite=true"), False),
    "continue": (lambda run: program(train, *SETTINGS, "trainer.max_epochs=5", f"runs_dir={run.path.parent}"), True),
}


def confined(action: Callable[[], Any], home: Path, uid: int = 0) -> tuple[int, str]:
    """Do something in a fork of this process, perhaps as another user: its exit status, and what it printed."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        os.chdir(home)
        if uid:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
        action()

    child, ends = fork(limited, log := home / "log.txt"), time.monotonic() + 6 * SECONDS
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < ends:
        time.sleep(0.01)
    if ended[0] == 0:
        os.kill(child, signal.SIGKILL)
        ended = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(ended[1]), log.read_text(errors="replace")


class Hostile:
    """Cases in a folder of their own, from one small run."""

    def __init__(self, folder: Path, whole: Run) -> None:
        self.folder, self.whole = folder, whole
        folder.chmod(0o755)
        self.outside = folder / "outside"
        shutil.copytree(whole.path, self.outside)
        shutil.copytree(whole.path / "weights", self.outside, dirs_exist_ok=True)
        (self.outside / "file").write_text("somebody's own\n")
        (self.outside / "rows.csv").write_text("somebody's own\n")
        self.before = self.changes()

    def changes(self) -> dict[str, Any]:
        files = [self.outside, *self.outside.rglob("*")]
        return {str(path): (path.stat().st_mode, path.read_bytes() if path.is_file() else b"") for path in files}

    def tried(self, number: int, place: str, damage: str, name: str, seed: int) -> str:
        """Damage a copy of the run, let a program meet it, and say what is wrong."""
        draw, home = random.Random(f"{seed} {number}"), self.folder / str(number)
        run = Run(shutil.copytree(self.whole.path, home / "runs" / self.whole.name))
        shutil.copytree(self.whole.path, home / "runs" / "healthy")
        (run.path / "x.csv").write_text("a,b\n1,2\n")
        run.slices_file.write_text("epoch,seed,slice,value,val_seq_acc\n4,0,length,3,0.5\n")
        for file in draw.choice(((), (run.summary_file,), (run.summary_file, run.checkpoint_file))):
            if name == "train again":  # skipped, continued or started again
                file.unlink()
        path = run.path / place
        uid = NOBODY if damage == "no permission" and os.getuid() == 0 else 0  # root has all permissions
        if damage in CONTAINED:
            path.write_bytes(CONTAINED[damage](path.read_bytes() if path.is_file() else b"text: 1", draw))
        elif damage in PLACED:
            replaced(PLACED[damage], path, self.outside)
        elif path.exists():
            path.chmod(0)
        for owned in [home, *home.rglob("*")] if uid else []:
            if owned != path:
                os.chown(owned, uid, uid)
        status, said = confined(partial(PROGRAMS[name][0], run), home, uid)
        if damage == "no permission" and path.exists():
            path.chmod(0o700)
        wrong = [f"ended with {status}"] if status not in (0, 1) else []
        written = name == "probe of a glob" and place.startswith("probes/")  # where it may not go on, as on a full disk
        wrong += ["did not leave it out"] if status and PROGRAMS[name][1] and not written else []
        wrong += [word for word in ("Traceback", "internal error", "\x1b") if word in said]
        calls_it_damaged = re.search(r"damaged|cannot be read|not a run|not that of|No such file|\[Errno", said)
        wrong += ["called it damaged"] if damage == "no permission" and calls_it_damaged else []
        wrong += ["changed a file outside"] if self.changes() != self.before else []
        if wrong:
            return f"{', '.join(map(repr, wrong))}: {said.strip()[-300:]!r}"
        shutil.rmtree(home)
        return ""


def combinations() -> list[tuple[str, str, str]]:
    """All places, damages and programs that fit each other."""
    placed = product((*FILES, *FOLDERS), PLACED, PROGRAMS)
    contained = product(FILES, CONTAINED, PROGRAMS)
    closed = product(("", *FILES, *FOLDERS), ("no permission",), PROGRAMS)
    return [*placed, *contained, *closed]


def small_run(folder: Path) -> Run:
    """A finished run of two seeds with the weights of all epochs, and a probe of it."""
    job = compose("train", [*SETTINGS, f"runs_dir={folder}"])
    run_pack.train_pack(job)
    program(probe, "probe=attention", f"run={job.run.path}")
    report([str(folder), f"--out={folder.parent / 'report'}"])  # imports what another user may not read
    return job.run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=300, help="how many (300); 0: all combinations")
    parser.add_argument("--seed", type=int, default=0, help="of the choice and of the damages (0)")
    options = parser.parse_args()
    torch.set_num_threads(1)  # a child of a process with threads of torch's would wait for them for ever
    folder = Path(tempfile.mkdtemp(prefix="hostile-"))
    hostile = Hostile(folder, small_run(folder / "whole"))
    cases = combinations()
    random.Random(options.seed).shuffle(cases)
    tried: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for number, (place, damage, name) in enumerate(cases[: options.cases or None]):
        tried[damage] += 1
        if wrong := hostile.tried(number, place, damage, name, options.seed):
            failed[damage] += 1
            print(f"  {number}: {name}, {damage} at {place or 'the run'}: {wrong}", flush=True)
    print("\n".join(f"{damage:22} {failed[damage]} of {count} failed" for damage, count in sorted(tried.items())))
    if failed:
        print(f"failed: {failed.total()} of {tried.total()}; the runs are in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
