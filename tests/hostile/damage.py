"""Causes 2 to 4: damaged neighbours end nobody else's work, unreadable is not damaged, the end of a run is counted."""

import builtins
import errno
import io
import os
import resource
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import torch

from arith_erd.config.build import trust_classes
from arith_erd.config.compose import compose
from arith_erd.losses import CrossEntropy
from arith_erd.report.__main__ import main as report_main
from arith_erd.runs import METRICS, Run
from arith_erd.runs.__main__ import main as runs_main
from arith_erd.training.train import train
from tests.cards import seed_card, table, whole

from .world import WORDS, Attack, Program, World, pick, typed

HEAD = ",".join(METRICS)
FILES = ("config.yaml", "metrics.csv", "summary.json", "weights/seed=0.safetensors", "last.ckpt")


def mutated(data: bytes, random: Random) -> bytes:
    """One to four times: a bit flipped, a part cut off, dropped, doubled or inserted."""
    for _ in range(random.randint(1, 4)):
        at, length = random.randrange(len(data) + 1), random.randint(1, 300)
        flipped = bytes(byte ^ (1 << random.randrange(8)) for byte in data[at : at + 1])
        data = random.choice(
            (
                data[:at] + flipped + data[at + 1 :],
                data[:at],
                data[:at] + data[at + length :],
                data[: at + length] + data[at:],
                data[:at] + random.randbytes(length % 30) + data[at:],
            )
        )
    return data


THINGS: dict[str, Callable[[Path, Random], object]] = {
    "nothing": lambda path, random: None,
    "an empty file": lambda path, random: path.touch(),
    "a folder": lambda path, random: (path / "inside").mkdir(parents=True),
    "a pipe": lambda path, random: os.mkfifo(path),
    "a link to nowhere": lambda path, random: path.symlink_to("nowhere"),
    "a link to a device": lambda path, random: path.symlink_to("/dev/zero"),
    "a binary": lambda path, random: path.write_bytes(b"\x7fELF\xff\xfe\x00\x80"),
    "brackets": lambda path, random: path.write_text('{"a":' + "[" * 100_000),
    "null": lambda path, random: path.write_text("null"),
    "infinite numbers": lambda path, random: path.write_text(f"{HEAD}\n1,0,1e999,1e999,1e999,1e999,1e999,1e999\n"),
    "a late epoch": lambda path, random: path.write_text(f"{HEAD}\n{10**30},0,0.5,0.5,0.5,0.5,0.5,1\n"),
    "a text": lambda path, random: path.write_text("<script>\x1b[2J" * 3000),
}


def spoil(path: Path, random: Random) -> str:
    """Put something else in the place of a file, or change its bytes; what was done."""
    if path.is_file() and random.random() < 0.4:
        path.write_bytes(mutated(path.read_bytes(), random))
        return "changed"
    name = random.choice(list(THINGS))
    path.unlink(missing_ok=True)
    THINGS[name](path, random)
    return name


def neighbour(n: int, random: Random) -> Attack:
    """A damaged run beside the one that is wanted: a longer run, a sweep, a list and a report go on without it."""
    asked, file = ("longer", "sweep", "list", "report", "longer")[n % 5], random.choice(FILES)

    def prepare(world: World) -> Program:
        runs = world.folder / "runs"
        neighbour = world.run.path
        if asked in ("list", "report"):
            neighbour = shutil.copytree(world.run.path, runs / "a-neighbour")
        spoil(neighbour / file, random)
        if asked == "longer":
            return lambda: train(compose("train", [*WORDS, "trainer.max_epochs=5", f"runs_dir={runs}"]))
        if asked == "sweep":
            return world.typed("-m", *WORDS, "trainer.max_epochs=1", "seed=3,4")
        if asked == "list":
            return typed(runs_main, str(runs))
        return lambda: (report_main([str(runs), f"--out={world.folder / 'report'}"]), None)[1]

    return Attack(f"{asked}, {file}", prepare, {"list": "finished"}.get(asked), finishes=True)


def failing_job(n: int, random: Random) -> Attack:
    """One job of a sweep whose own directory is damaged: the other one finishes."""
    file = (*FILES, "previous.ckpt", ".lock", "weights")[n % 8]

    def prepare(world: World) -> Program:
        world.interrupted()
        path = world.file(file)
        shutil.rmtree(path) if path.is_dir() else spoil(path, random)
        if file == "weights":
            path.touch()
        sweep = world.typed("-m", *WORDS[:-1], "seed='0-1','3'")
        other = replace(world.job, seed=(3,), resolved=world.job.resolved | {"seed": 3})

        def run() -> None:
            try:
                sweep()
            finally:
                assert other.run.finished, "the other job did not finish"

        return run

    return Attack(file, prepare, lines=4)


def card(n: int, random: Random) -> Attack:
    """Cards that no probe wrote: the report leaves them out and names them."""
    changes: tuple[dict[str, Any], ...] = (
        {"seeds": [seed_card()] * 3},
        {"seeds": [seed_card() | {"evidence": [{"name": "carry"}] * 3}]},
        {"seeds": [seed_card() | {"distances": {"erd": "x"}}]},
        {"seeds": [seed_card() | {"bits": []}]},
        {"seeds": []},
        {"bits": 10**9},
        {"expected": {"carry": {"carry": [0.5]}, "Carry": {}}},
    )
    change = changes[n % len(changes)]

    def prepare(world: World) -> Program:
        folder = world.file("probes/mechanism")
        folder.mkdir(parents=True)
        table(0, 0, 0).to_csv(folder / "rows.csv", index=False)
        (folder / "probe.json").write_text(mutated(b"{}", random).decode(errors="replace"))
        (folder / "card.json").write_text(whole(seed_card(), **change) if "seeds" not in change else whole(**change))
        return world.report

    return Attack(str(change)[:60], prepare, None, finishes=True)


# Cause 3

NUMBERS = (errno.EMFILE, errno.ENFILE, errno.EACCES, errno.EIO, errno.ESTALE, errno.ENOMEM, errno.EINTR, errno.EPERM)


@contextmanager
def refusing(name: str, number: int, skipped: int) -> Iterator[None]:
    """After ``skipped`` times, files of this name cannot be opened, whoever asks."""
    seen: Counter[str] = Counter()

    def guard(original: Callable[..., Any]) -> Callable[..., Any]:
        def opened(file: Any, *arguments: Any, **options: Any) -> Any:
            if isinstance(file, str | Path) and Path(file).name == name:
                seen[name] += 1
                if seen[name] > skipped:
                    raise OSError(number, os.strerror(number), str(file))
            return original(file, *arguments, **options)

        return opened

    with mock.patch.object(builtins, "open", guard(open)), mock.patch.object(io, "open", guard(io.open)):
        yield


def cannot_be_opened(n: int, random: Random) -> Attack:
    """A file that cannot be opened for a while: the run resumes to the same bits, at once or when it can be read."""
    name = ("last.ckpt", "metrics.csv", "summary.json", "config.yaml", "previous.ckpt")[n % 5]
    number, skipped = random.choice(NUMBERS), random.choice((0, 0, 1, 2))
    finished = name == "summary.json" or n // 5 % 3 == 2

    def prepare(world: World) -> Program:
        world.interrupted() if not finished else None
        previous = world.run.previous_checkpoint
        kept = previous.read_bytes() if previous.exists() else b""
        last = world.run.checkpoint.read_bytes()

        def run() -> None:
            try:
                with refusing(name, number, skipped):
                    world.resume_whole()
            except Exception:
                assert world.run.checkpoint.read_bytes() == last, "another checkpoint"
                assert not kept or previous.read_bytes() == kept, "the previous checkpoint is gone"
                world.resume_whole()
                raise

        return run

    return Attack(f"{name}, {errno.errorcode[number]} after {skipped}", prepare)


def few_files(n: int, random: Random) -> Attack:
    """So many files may be open and no more (EMFILE): resuming, asking, reporting."""
    spare, asked = n // 3 % 12, ("resume", "report", "probe")[n % 3]

    def prepare(world: World) -> Program:
        world.interrupted() if asked == "resume" else None

        def run() -> None:
            before = resource.getrlimit(resource.RLIMIT_NOFILE)
            highest = max(map(int, os.listdir("/proc/self/fd")))
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (highest + spare, before[1]))
                getattr(world, asked)()
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, before)
                if asked == "resume":
                    world.resume_whole()

        return run

    return Attack(f"{asked} with {spare} more", prepare)


def full_disk(n: int, random: Random) -> Attack:
    """Files cannot grow beyond a limit: training, probing or reporting; there is room later."""
    asked, limit = ("resume", "probe", "report")[n % 3], random.choice((0, 10, 500, 5000, 20_000, 60_000))

    def prepare(world: World) -> Program:
        world.interrupted() if asked == "resume" else None

        def run() -> None:
            before = resource.getrlimit(resource.RLIMIT_FSIZE)
            try:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
                getattr(world, asked)()
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, before)
                if asked == "resume":
                    world.resume_whole()

        return run

    return Attack(f"{asked}, {limit} bytes", prepare)


# Cause 4


class Ending(CrossEntropy):
    """A loss that ends everything at its tenth call."""

    calls, error = 0, Exception

    def forward(self, *arguments: Any) -> Any:
        Ending.calls += 1
        if Ending.calls > 9:
            raise Ending.error
        return super().forward(*arguments)


def ending_loss(n: int, random: Random) -> Attack:
    """A loss that raises what others take for an end: the run has not finished, and says so."""
    error = (StopIteration, SystemExit, GeneratorExit, StopAsyncIteration, KeyboardInterrupt, EOFError, IndexError,
             MemoryError, RecursionError, BrokenPipeError, AssertionError, UnicodeError)[n % 12]  # fmt: skip

    def prepare(world: World) -> Program:
        trust_classes(Ending)
        Ending.calls, Ending.error = 0, error
        target = f"{Ending.__module__}.Ending"

        def run() -> None:
            job = compose("train", [*WORDS, f"model.loss._target_={target}", f"runs_dir={world.folder / 'runs'}"])
            try:
                train(job)
            finally:
                assert not job.run.finished, "it is called finished"

        return run

    return Attack(error.__name__, prepare, "")


def other_rows(n: int, random: Random) -> Attack:
    """Rows of ``metrics.csv`` missing, doubled, moved or of later epochs: whatever is called finished is whole."""
    deed = ("missing", "doubled", "later", "swapped", "another seed", "the header alone", "no header")[n % 7]

    def prepare(world: World) -> Program:
        world.interrupted()
        head, *rows = world.run.metrics_file.read_text().splitlines()
        at = random.randrange(len(rows))
        if deed == "missing":
            del rows[at]
        elif deed == "doubled":
            rows.insert(at, rows[at])
        elif deed == "later":
            rows.append(f"9{rows[at]}")
        elif deed == "swapped":
            rows.reverse()
        elif deed == "another seed":
            rows[at] = rows[at].replace(",0,", ",7,", 1).replace(",1,", ",7,", 1)
        lines = [head] if deed == "the header alone" else rows if deed == "no header" else [head, *rows]
        world.run.metrics_file.write_text("\n".join(lines) + "\n")

        def run() -> None:
            world.resume_whole()
            rows = sorted((row["epoch"], row["seed"]) for row in world.run.metrics())
            assert rows == [(epoch, seed) for epoch in range(1, 5) for seed in (0, 1)], "rows are missing or doubled"

        return run

    return Attack(deed, prepare)


COUNTERS = ("global_step", "epoch", "loops.fit_loop.epoch_progress.current.processed",
            "loops.fit_loop.epoch_progress.current.completed", "loops.fit_loop.epoch_loop.batch_progress.current.ready",
            "loops.fit_loop.epoch_loop.automatic_optimization.optim_progress.optimizer.step.total.completed")  # fmt: skip


def other_counter(n: int, random: Random) -> Attack:
    """A counter of the checkpoint says something else: the run ends whole, or in a line."""
    key, value = COUNTERS[n % len(COUNTERS)], random.choice((0, 1, 2, 4, 7, 100, 10**12, -1))

    def prepare(world: World) -> Program:
        world.interrupted()
        saved = world.checkpoint
        node = saved
        *path, last = key.split(".")
        for part in path:
            node = node[part]
        node[last] = value
        torch.save(saved, world.run.checkpoint)

        def run() -> None:
            world.resume()
            rows = Counter((row["epoch"], row["seed"]) for row in world.run.metrics())
            assert rows == {(epoch, seed): 1 for epoch in range(1, 5) for seed in (0, 1)}, f"rows {rows}"

        return run

    return Attack(f"{key}={value}", prepare)


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

        def run() -> None:
            with mock.patch.object(Run, "append_metrics", away):
                world.resume()

        return run

    return Attack(deed, prepare, "")


NEIGHBOURS = [neighbour, neighbour, failing_job, card]
UNREADABLE = [cannot_be_opened, cannot_be_opened, few_files, full_disk]
COUNTED = [ending_loss, other_rows, other_counter, moved_away]
__all__ = ["COUNTED", "NEIGHBOURS", "UNREADABLE", "pick"]
