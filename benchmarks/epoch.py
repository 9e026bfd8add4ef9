"""How fast, and where the time goes: ``python benchmarks/epoch.py --help``. Loads no torch itself.

Every measurement runs in a fresh process (so that none warms another's caches or adds to its memory), under the same
number of threads. Ours are in `ours`, those of the paper authors' code in `authors`, and `tables` prints both.
"""

import argparse
import importlib
import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from hydra.errors import HydraException
from rich.console import Console
from tables import Result, epoch_table, heading, mean_total, pack_table, profile_table

from arith_erd.config.compose import CONF, compose
from arith_erd.config.job import Job
from arith_erd.errors import UserError
from arith_erd.seeds import format_seeds
from arith_erd.system.files import require_writable
from arith_erd.system.machine import commit, cpu_name

AUTHORS = {  # in a clone of their repository: the file that trains a model, and its function
    "transformer": ("EncoderDecoderTransformer/TransformerTraining.py", "transformer_training"),
    "nanogpt": ("nanoGPT/train_arithmetic.py", "nanogpt_training"),
}
OPERATIONS = {"add": "+", "mul": "x", "random_output": "R"}

console = Console(width=None if sys.stdout.isatty() else 120)
progress = Console(stderr=True)


def main() -> None:
    parser = command_line()
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(options.threads)
    try:
        job = compose("train", overrides(options, options.seeds))
        packs = [compose("train", overrides(options, f"0-{replicas - 1}")) for replicas in options.packs]
        if options.reference is not None:
            require_comparable(options, job)
        if options.out is not None:
            require_writable("--out", options.out.parent)
    except (UserError, HydraException) as error:
        parser.exit(2, f"error: {error}\n")
    result: Result = {}
    try:
        measure_all(options, job, packs, result)
    finally:  # what was measured before an interruption is kept
        if options.out is not None and result:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(result, indent=2) + "\n")
            console.print(f"written to {options.out}")


def command_line() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Time training, evaluation and overhead on whatever device is there.")
    parser.add_argument("--task", default="add", choices=sorted(path.stem for path in (CONF / "task").glob("*.yaml")))
    parser.add_argument(
        "--model", default="transformer", choices=sorted(path.stem for path in (CONF / "model").glob("*.yaml"))
    )
    parser.add_argument("--seeds", default="0", help="seeds of the timed pack: 0, 0-4 (default: 0)")
    parser.add_argument("--epochs", default=1, type=natural, help="epochs per repeat; 0 skips them (default: 1)")
    parser.add_argument(
        "--repeats", default=3, type=positive, help="repeats of each measurement except the profile (default: 3)"
    )
    parser.add_argument("--threads", default=cores(), type=positive, help="default: every core this process may use")
    parser.add_argument(
        "--packs", default=[1, 5], type=sizes, metavar="R,R", help="pack sizes whose steps are timed, or none"
    )
    parser.add_argument("--steps", default=24, type=positive, help="timed in one repeat of a pack (default: 24)")
    parser.add_argument("--profile", action="store_true", help="the 15 operators that take most time")
    parser.add_argument(
        "--reference",
        type=Path,
        metavar="PATH",
        help="a clone of the authors' repository, timed in turn with ours",
    )
    parser.add_argument(
        "--fraction", default=1.0, type=fraction, help="of the examples in a timed epoch; the rest is extrapolated"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="JSON with every single measurement")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="as for train.py: trainer.compile=true ...")
    return parser


def measure_all(options: argparse.Namespace, job: Job, packs: Sequence[Job], result: Result) -> None:
    """Measure what was asked for into ``result``, printing each table as soon as it is complete."""
    seeds = job.seeds
    result |= {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"cpu": cpu_name(), "cores": cores(), "load": os.getloadavg()},
        **in_fresh_process("ours.environment", job=job),
        "task": options.task,
        "model": options.model,
        "overrides": options.overrides,
        "fraction": options.fraction,
        "extrapolated": options.fraction < 1,
    }
    console.print(heading(result))
    if options.epochs:
        ours, theirs = [], []
        for repeat in range(options.repeats):
            progress.print(f"epoch {repeat + 1}/{options.repeats}: ours")
            ours.append(in_fresh_process("ours.epochs", job=job, count=options.epochs, fraction=options.fraction))
            if options.reference is not None:
                progress.print(f"epoch {repeat + 1}/{options.repeats}: theirs")
                theirs.append(their_epochs(options, job))
        result["epoch"] = {"seeds": format_seeds(seeds), "ours": ours}
        if theirs:
            result["epoch"] |= {"theirs": theirs, "their_commit": commit(options.reference)}
            result["epoch"]["ratios"] = [
                len(seeds) * mean_total(their) / mean_total(our) for our, their in zip(ours, theirs, strict=True)
            ]
        console.print(epoch_table(result))
    if packs:
        result["packs"] = []
        for replicas, pack in zip(options.packs, packs, strict=True):
            progress.print(f"steps of a pack of {replicas}")
            measured = in_fresh_process("ours.speed", job=pack, steps=options.steps, repeats=options.repeats)
            floor = in_fresh_process("ours.matrix_floor", job=pack)
            result["packs"].append({"replicas": replicas, **measured, "floor": floor})
        console.print(pack_table(result["packs"]))
    if options.profile:
        progress.print("profile")
        result["profile"] = in_fresh_process("ours.operators", job=job, steps=5)
        console.print(profile_table(result["profile"], len(seeds)))


def their_epochs(options: argparse.Namespace, job: Job) -> Result:
    script, function = AUTHORS[options.model]
    measured: Result = in_fresh_process(
        "authors.epochs",
        script=options.reference.resolve() / script,
        function=function,
        operation=OPERATIONS[options.task],
        count=options.epochs,
        fraction=options.fraction,
        cpu=job.trainer.accelerator == "cpu",
    )
    return measured


def require_comparable(options: argparse.Namespace, job: Job) -> None:
    """Refuse a comparison of different things, before anything is timed.

    Raises:
        UserError: if there is no clone, or their code has no counterpart of the configuration.
    """
    if options.model not in AUTHORS or options.task not in OPERATIONS:
        raise UserError(f"--reference: their code has no --task {options.task} --model {options.model}")
    script = options.reference / AUTHORS[options.model][0]
    if not script.is_file():
        raise UserError(f"--reference {options.reference}: expected a clone of their repository; found no {script}")
    usual = compose("train", [f"task={options.task}", f"model={options.model}"])
    for key in ("task", "split", "model", "ablation", "data"):
        if job.resolved[key] != usual.resolved[key]:
            raise UserError(f"--reference: their code knows only our defaults of {key}.*; leave out {key} overrides")


def overrides(options: argparse.Namespace, seeds: str) -> list[str]:
    return [f"task={options.task}", f"model={options.model}", *options.overrides, f"seed='{seeds}'"]


def in_fresh_process(target: str, /, **arguments: Any) -> Any:
    """``in_fresh_process("ours.speed", steps=24)`` calls ``ours.speed(steps=24)`` in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(call, target, arguments).result()


def call(target: str, arguments: dict[str, Any]) -> Any:
    module, _, name = target.partition(".")
    return getattr(importlib.import_module(module), name)(**arguments)


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def natural(text: str) -> int:
    if (number := int(text)) < 0:
        raise ValueError
    return number


def positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise ValueError
    return number


def fraction(text: str) -> float:
    if not 0 < (number := float(text)) <= 1:
        raise ValueError
    return number


def sizes(text: str) -> list[int]:
    return [] if text == "none" else [positive(size) for size in text.split(",")]


if __name__ == "__main__":
    main()
