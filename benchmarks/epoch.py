"""How fast is an epoch, beside the authors' code? ``python benchmarks/epoch.py --help``.

Every measurement runs in a fresh process (so that none warms another's caches or adds to its memory), under the same
number of threads, ours and theirs in turn. Ours are in `ours`, those of the paper authors' code in `authors`. Loads no
torch itself. `profile_gpu` times the steps of packs.
"""

import argparse
import importlib
import json
import os
import threading
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import partial
from itertools import product
from multiprocessing import get_context, parent_process
from pathlib import Path
from statistics import median
from typing import Any

from hydra.errors import HydraException
from joblib import cpu_count

from arith_erd.config.compose import compose
from arith_erd.config.job import Job
from arith_erd.errors import UserError, counted
from arith_erd.system.files import require_writable
from arith_erd.system.machine import configure_threads, cpu_name, git_commit

AUTHORS = {  # in a clone of their repository: the file that trains a model, and its function
    "transformer": ("EncoderDecoderTransformer/TransformerTraining.py", "transformer_training"),
    "nanogpt": ("nanoGPT/train_arithmetic.py", "nanogpt_training"),
}
AUTHORS_OPERATIONS = {"add": "+", "mul": "x", "random_output": "R"}
Result = dict[str, Any]


def main() -> None:
    options = build_parser().parse_args()
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(options.threads)
    configure_threads()
    try:
        job = compose("train", options.overrides)
        if options.reference is not None:
            require_comparable(job, options.reference)
        if options.out is not None:
            require_writable("--out", options.out.parent)
    except (UserError, HydraException) as error:
        raise SystemExit(f"error: {error}") from None
    result: Result = {}
    try:
        measure(options, job, result)
    finally:  # what was measured before an interruption is kept
        if options.out is not None and result:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(result, indent=2) + "\n")


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Time epochs on whatever device is there.")
    parser.add_argument("--repeats", default=3, type=int, help="of each measurement (default: 3)")
    parser.add_argument("--threads", default=cpu_count(), type=int, help="default: every core this process may use")
    parser.add_argument("--reference", type=Path, metavar="PATH", help="a clone of the authors' repository")
    parser.add_argument("--out", type=Path, metavar="FILE", help="JSON with every single measurement")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="as for train.py: task=mul model=nanogpt ...")
    return parser


def measure(options: argparse.Namespace, job: Job, result: Result) -> None:
    """Measure epochs into ``result``, printing each line as soon as it is known."""
    machine = {"cpu": cpu_name(), "cores": cpu_count(), "load": os.getloadavg()}
    environment = run_in_fresh_process("ours.describe_environment", job=job)
    result |= {"when": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine, **environment}
    result["overrides"] = options.overrides
    print(*(f"{key}: {result[key]}" for key in ("machine", *environment)), sep="\n", flush=True)
    print(f"\none epoch: {job.run.name}, {counted(len(job.seeds), 'replica')}; seconds", flush=True)
    sides = {"ours": partial(run_in_fresh_process, "ours.time_epoch", job=job)}
    if options.reference is not None:
        sides["authors'"] = partial(time_authors_epoch, job, options.reference)
        result["their_commit"] = git_commit(options.reference)
    epochs: dict[str, list[Result]] = {"ours": [], "authors'": []}
    result["epoch"] = epochs
    for _, (side, time_epoch) in product(range(options.repeats), sides.items()):
        measured = time_epoch()
        epochs[side].append(measured)
        phases = " ".join(f"{phase} {seconds:.2f}" for phase, seconds in measured["seconds"].items())
        print(f"{side:9}{phases}, {format_memory(measured['memory'])}", flush=True)
    ours, authors = ([measurement["seconds"]["total"] for measurement in side] for side in epochs.values())
    print(f"median of ours {median(ours):.2f}", end="")
    if authors:
        ratios = [len(job.seeds) * slow / fast for fast, slow in zip(ours, authors, strict=True)]
        speedup = len(job.seeds) * median(authors) / median(ours)
        print(f", of theirs {median(authors):.2f}: {speedup:.1f} times faster", end="")
        print(f" per seed ({min(ratios):.1f} to {max(ratios):.1f})", end="")
    print(flush=True)


def format_memory(peak: dict[str, int | None]) -> str:
    return ", on the device ".join(f"{size / 2**30:.2f} GiB" for size in peak.values() if size is not None)


def time_authors_epoch(job: Job, clone: Path) -> Result:
    script, function = AUTHORS[job.model.name]
    operation, cpu = AUTHORS_OPERATIONS[job.option_names["task"]], job.trainer.accelerator == "cpu"
    measured: Result = run_in_fresh_process(
        "authors.time_epoch", script=clone.resolve() / script, function=function, operation=operation, cpu=cpu
    )
    return measured


def require_comparable(job: Job, clone: Path) -> None:
    """Refuse a comparison of different things, before anything is timed.

    Raises:
        UserError: if there is no clone, or their code has no counterpart of the configuration.
    """
    task, model = job.option_names["task"], job.model.name
    if model not in AUTHORS or task not in AUTHORS_OPERATIONS:
        raise UserError(f"--reference: their code has no task={task} model={model}")
    script = clone / AUTHORS[model][0]
    if not script.is_file():
        raise UserError(f"--reference {clone}: expected a clone of their repository; found no {script}")
    default_job = compose("train", [f"task={task}", f"model={model}"])
    for key in ("task", "split", "model", "ablation", "data"):
        if job.resolved[key] != default_job.resolved[key]:
            raise UserError(f"--reference: their code knows only our defaults of {key}.*; leave out {key} overrides")


def run_in_fresh_process(target: str, /, **arguments: Any) -> Any:
    """``("ours.time_steps", steps=24)`` calls ``ours.time_steps(steps=24)`` in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=leave_with_parent) as pool:
        return pool.submit(call_by_name, target, arguments).result()


def call_by_name(target: str, arguments: dict[str, Any]) -> Any:
    module, _, name = target.partition(".")
    return getattr(importlib.import_module(module), name)(**arguments)


def leave_with_parent() -> None:
    """A worker whose parent was killed at a time limit would wait for its next task, with the caller's pipe open."""

    def wait() -> None:
        parent = parent_process()
        assert parent is not None, "called in a worker"
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    main()
