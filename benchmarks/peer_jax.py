"""Is our compiled pack quicker than the same pack in JAX? ``python benchmarks/peer_jax.py --help``. On a CPU.

Needs the extra: pip install -c requirements.lock -e '.[jax]'.

First it checks that both compute the same: logits, and weights after training steps with dropout. Then each side trains
the same batches from the same weights, in turn, every time in a process of its own that loads only that side's library.
Both may use the same processors: OpenMP is told how many, and XLA makes a thread for each that it may run on. With
``--out`` each measurement is kept as it comes, and the same command continues.
"""

import argparse
import csv
import importlib.util
import os
import platform
import resource
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from epoch import console, cores, in_fresh_process, positive, progress, sizes
from rich.table import Table

from arith_erd.config.compose import compose
from arith_erd.config.job import Job
from arith_erd.errors import UserError
from arith_erd.system.files import require_writable
from arith_erd.system.machine import commit, cpu_name

SMALL = ("task.bits=3", "data.batch_size=16", "model.net.d_model=16", "model.net.num_heads=2", "model.net.num_layers=1")
SCALES: dict[str, tuple[str, ...]] = {"full": (), "smoke": SMALL}
SIDES = ("ours", "jax")
LOGITS, WEIGHTS = 1e-5, 1e-9  # largest differences: in 32 bits; after two steps in 64 bits, of 1e-4 each
LOSSES = 1e-3  # of the timed steps' mean loss, in 32 bits
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description="Time training steps of a pack, ours and the same in JAX, in turn.")
    parser.add_argument("--packs", default=[1, 5], type=sizes, metavar="R,R", help="sizes of packs (default: 1,5)")
    parser.add_argument("--repeats", default=3, type=positive, help="processes of each side (default: 3)")
    parser.add_argument("--steps", default=30, type=positive, help="timed in each process (default: 30)")
    parser.add_argument("--threads", default=cores(), type=positive, help="default: every core this process may use")
    parser.add_argument("--scale", default="full", choices=SCALES, help="smoke: a tiny network, to see that it works")
    parser.add_argument("--cache", type=Path, metavar="DIR", help="keep compiled code here (default: until the end)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="CSV with every single measurement")
    options = parser.parse_args()
    if importlib.util.find_spec("jax") is None:
        parser.exit(2, "error: no jax; pip install -c requirements.lock -e '.[jax]'\n")
    try:
        for key, folder in (("--out", options.out and options.out.parent), ("--cache", options.cache)):
            if folder is not None:
                require_writable(key, folder)
        same = settings(options)
        rows = [] if options.out is None else read(options.out, same)
    except UserError as error:
        parser.exit(2, f"error: {error}\n")
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(options.threads))
    os.environ |= {"JAX_PLATFORMS": "cpu", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    console.print(", ".join(f"{key} {value}" for key, value in same.items()), f"\nload {os.getloadavg()[0]:.2f}")
    found = in_fresh_process("sides.differences", job=job_of(options.scale, 2))
    console.print(", ".join(f"{what} differ by {value:.1e}" for what, value in found.items()))
    if not (found["logits"] <= LOGITS and found["weights"] <= WEIGHTS):  # nan is no agreement
        sys.exit(f"not the same network: at most {LOGITS} and {WEIGHTS} are rounding. Nothing was timed.")
    with ExitStack() as stack:
        cache = options.cache or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for replicas in options.packs:
            measure(options, replicas, cache, same, rows)
            its = [row for row in rows if int(row["replicas"]) == replicas]
            console.print(table(its, replicas))
            losses = [float(row["loss"]) for row in its]
            if not max(losses) - min(losses) <= LOSSES:
                sys.exit("the losses differ by more than rounding: the two sides did not train the same")


def measure(options: argparse.Namespace, replicas: int, cache: Path, same: Row, rows: list[Row]) -> None:
    """Time each side ``--repeats`` times, in turn, where ``rows`` does not have it yet."""
    done = {(row["side"], int(row["replicas"]), int(row["repeat"])) for row in rows}
    job = job_of(options.scale, replicas)
    start: Row = {}
    for repeat in range(options.repeats):
        for side in SIDES if repeat % 2 == 0 else SIDES[::-1]:
            if (side, replicas, repeat) in done:
                continue
            start = start or in_fresh_process("sides.beginning", job=job, steps=options.steps)
            folder = cache / f"{side}-{replicas}-{options.scale}"
            kept = (folder / "complete").is_file()
            if not kept:  # what an interrupted compilation left would make the next one look quicker
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
            progress.print(f"pack of {replicas}, {repeat + 1}/{options.repeats}: {side}{'' if kept else ', compiling'}")
            os.environ |= dict.fromkeys(("TORCHINDUCTOR_CACHE_DIR", "JAX_COMPILATION_CACHE_DIR"), str(folder))
            load, before = os.getloadavg()[0], cpu_of_children()
            measured = in_fresh_process("sides.timed", side=side, job=job, **start)
            # A compiler may be a process of its own, which counts once it has ended.
            measured["first_cpu_s"] = round(cpu_of_children() - before - measured.pop("other_cpu_s"), 2)
            (folder / "complete").touch()
            cached = {"cache": "warm" if kept else "cold"}
            rows.append(
                {
                    "side": side,
                    "replicas": replicas,
                    "repeat": repeat,
                    **cached,
                    **measured,
                    "load": f"{load:.2f}",
                    "commit": commit(),
                    **same,
                }
            )
            if options.out is not None:
                append(options.out, rows[-1])


def table(rows: Sequence[Row], replicas: int) -> Table:
    """Medians over processes; a range says how far a machine can be believed."""
    shown = Table(title=f"training steps, {replicas} replica(s)")
    columns = (
        "",
        "ms a step",
        "range",
        "steps/s",
        "replica-steps/s",
        "CPU ms",
        "first step, cold",
        "CPU",
        "warm",
        "peak",
    )
    for name in columns:
        shown.add_column(name, justify="right" if name else "left")
    steps = {}
    for side in SIDES:
        its = [row for row in rows if row["side"] == side]
        ms = [float(row["ms"]) for row in its]
        steps[side] = median(ms)
        cold, warm = ([row for row in its if row["cache"] == cache] for cache in ("cold", "warm"))
        shown.add_row(
            side,
            f"{median(ms):.1f}",
            f"{min(ms):.1f} to {max(ms):.1f}",
            f"{1e3 / median(ms):.2f}",
            f"{1e3 * replicas / median(ms):.2f}",
            middle(its, "cpu_ms", ""),
            middle(cold, "first_s", " s"),
            middle(cold, "first_cpu_s", " s"),
            middle(warm, "first_s", " s"),
            f"{middle(cold, 'peak_mib', '')}, warm {middle(warm, 'peak_mib', ' MiB')}",
        )
    ahead = min(SIDES, key=lambda side: steps[side])
    shown.caption = f"ahead: {ahead}, {max(steps.values()) / min(steps.values()):.2f} times as quick"
    return shown


def middle(rows: Sequence[Row], column: str, unit: str) -> str:
    return f"{median(float(row[column]) for row in rows):.0f}{unit}" if rows else "-"


def settings(options: argparse.Namespace) -> Row:
    """What all rows of a file have in common."""
    packages = {name: version(name) for name in ("torch", "jax", "optax")}
    return {
        "cpu": cpu_name(),
        "threads": options.threads,
        "scale": options.scale,
        "steps": options.steps,
        "python": platform.python_version(),
        **packages,
    }


def read(path: Path, same: Row) -> list[Row]:
    """The rows of an earlier, interrupted measurement.

    Raises:
        UserError: if it measured something else.
    """
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        rows: list[Row] = list(csv.DictReader(file))
    for key, value in same.items():
        for row in rows:
            if row.get(key) != str(value):
                raise UserError(f"--out {path}: has {key}={row.get(key)}; expected {value}, or a new file")
    return rows


def append(path: Path, row: Row) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = not path.is_file()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(row), lineterminator="\n")
        if fresh:
            writer.writeheader()
        writer.writerow(row)


def job_of(scale: str, replicas: int) -> Job:
    return compose(
        "train", [*SCALES[scale], "trainer.accelerator=cpu", "trainer.compile=true", f"seed='0-{replicas - 1}'"]
    )


def cpu_of_children() -> float:
    """CPU seconds of all processes that have ended, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
