"""Where does the time of a training step go, and how near is it to what the machine can do? See ``--help``.

For each pack: milliseconds a step and peak memory, then a profile of further steps: kernels by total time, their
number, and the time in which none runs. The bound of a step is the larger of two times: its products at the rate of one
large product, and the bytes that must move at the rate of one large copy, both measured here. On a CPU operators
replace kernels.
"""

import argparse
import csv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from epoch import format_memory, run_in_fresh_process
from hydra.errors import HydraException
from ours import fit_steps, peak_memory, synchronized_time, training_device
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from arith_erd.config.compose import compose
from arith_erd.config.job import Job
from arith_erd.errors import UserError
from arith_erd.interp.sites import layers
from arith_erd.models import attention
from arith_erd.models.network import shift_right
from arith_erd.system.machine import device_name, git_commit
from arith_erd.training.build import build_module, build_task_data

COLUMNS = ("what", "replicas", "ms", "percent_of_bound", "device", "commit")
BYTES_PER_WEIGHT = 4 * 10  # read forward and backward; the gradient written and read; weight and moments read, written
BYTES_PER_ACTIVATION = 4 * 5  # of a block: input and output forward; input and both gradients backward
SHOWN = 12  # kernels of a profile


def main() -> None:
    options = build_parser().parse_intermixed_args()
    try:
        packs = [compose("train", [*options.overrides, f"seed='0-{size - 1}'"]) for size in options.packs]
    except (UserError, HydraException) as error:
        raise SystemExit(f"error: {error}") from None
    for job in packs:
        measured = run_in_fresh_process("profile_gpu.measure", job=job, steps=options.steps)
        what = options.what or job.model.name
        bound = max(measured["products_ms"], measured["bytes_ms"])
        percent = 100 * bound / measured["ms"]
        print("\n".join(describe(what, len(job.seeds), measured, percent)), flush=True)
        if options.csv is not None:
            new = not options.csv.exists()
            with options.csv.open("a", newline="") as file:
                rows = csv.writer(file, lineterminator="\n")
                rows.writerows([COLUMNS] * new)
                values = (f"{measured['ms']:.3f}", f"{percent:.1f}", measured["device"], git_commit())
                rows.writerow((what, len(job.seeds), *values))


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Time and profile the training steps of packs.")
    parser.add_argument("--packs", default=[5], type=sizes, metavar="R,R", help="replicas (default: 5)")
    parser.add_argument("--steps", default=20, type=int, help="timed three times, then profiled (default: 20)")
    parser.add_argument("--what", help="first column of the row (default: the model's name)")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="append a row for each pack")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="as for train.py: model=nanogpt ...")
    return parser


def sizes(text: str) -> list[int]:
    return [int(size) for size in text.split(",")]


def measure(job: Job, steps: int) -> dict[str, Any]:
    """Milliseconds of a step, of its bounds and of the time without a kernel; and the kernels, longest first."""
    device, data = training_device(job), build_task_data(job)
    module = build_module(job, device, data)
    steps = min(steps, data.steps_per_epoch)
    fit_steps(job, module, data, 8)
    seconds, memory = median(fit_steps(job, module, data, steps) for _ in range(3)), peak_memory()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    with profile(activities=activities) as profiled:
        fit_steps(job, module, data, steps)
    events = [e for e in profiled.events() if e.device_type.name.lower() == device.type and not e.is_user_annotation]
    kernels: dict[str, list[float]] = {}
    for event in events:
        total = kernels.setdefault(event.name, [0.0, 0])
        total[0] += (event.self_device_time_total if device.type == "cuda" else event.self_cpu_time_total) / 1e3 / steps
        total[1] += 1 / steps
    operations, num_bytes = work_of_a_step(job)
    products, copies = ceilings(device)
    return {
        "attention": attention.CHOSEN or "the device's",
        "ms": 1e3 * seconds,
        "memory": memory,
        "idle_ms": idle_time(sorted((e.time_range.start, e.time_range.end) for e in events)) / 1e3 / steps,
        "kernels": sorted(([ms, number, name] for name, (ms, number) in kernels.items()), reverse=True),
        "operations": operations,
        "bytes": num_bytes,
        "products_ms": 1e3 * operations / products,
        "bytes_ms": 1e3 * num_bytes / copies,
        "ceilings": f"{products / 1e12:.3g} TFLOP/s of products, {copies / 1e9:.4g} GB/s of copies",
        "device": device_name(device).replace(",", ""),
    }


def idle_time(intervals: list[tuple[float, float]]) -> float:
    """The time between the first start and the last end that no interval covers; intervals are sorted."""
    idle, end = 0.0, intervals[0][1]
    for start, stop in intervals:
        idle += max(0.0, start - end)
        end = max(end, stop)
    return idle


def work_of_a_step(job: Job) -> tuple[int, int]:
    """Operations of the products of a pack's step, and the bytes that it must move if each block were one kernel."""
    one = replace(job, seed=job.seeds[:1], trainer=replace(job.trainer, compile=False))
    data = build_task_data(one)
    module = build_module(one, torch.device("cpu"), data)
    batch = [x[None, : job.data.batch_size] for x in data.train]
    with FlopCounterMode(display=False) as counter:
        module.pack.losses(batch[0], batch[1], 0, *batch[2:]).sum().backward()
    network, outputs = module.pack.replica(0), []
    sites = network.sites()
    for name in layers(sites):
        sites[name].register_forward_hook(lambda module, inputs, output: outputs.append(output.numel()))
    network(batch[0][0], shift_right(batch[1][0]))
    num_bytes = BYTES_PER_WEIGHT * module.pack.num_parameters_each + BYTES_PER_ACTIVATION * sum(outputs)
    return len(job.seeds) * counter.get_total_flops(), len(job.seeds) * num_bytes


def ceilings(device: torch.device) -> tuple[float, float]:
    """Operations a second of a large product, and bytes a second, read and written, of a large copy."""
    size = 8192 if device.type == "cuda" else 1024
    a, b = torch.randn(2, size, size, device=device)

    def best(work: Any) -> float:
        def timed() -> float:
            start = synchronized_time(device)
            work()
            return synchronized_time(device) - start

        return min(timed() for _ in range(10))

    return 2 * size**3 / best(lambda: a @ b), 2 * a.nbytes / best(lambda: a.copy_(b))


def describe(what: str, replicas: int, measured: dict[str, Any], percent: float) -> Iterator[str]:
    kernels = measured["kernels"]
    yield f"\n{what}, a pack of {replicas}: {measured['ms']:.2f} ms a step, {percent:.1f}% of the bound"
    yield f"  {1e3 * replicas / measured['ms']:.2f} replica-steps a second, {format_memory(measured['memory'])}"
    yield f"  attention: {measured['attention']}; {measured['ceilings']}: {measured['device']}"
    yield f"  {measured['operations'] / 1e9:.1f} GFLOP of products, at least {measured['products_ms']:.3f} ms"
    yield f"  {measured['bytes'] / 1e9:.2f} GB that must move, at least {measured['bytes_ms']:.3f} ms"
    yield f"  {sum(number for _, number, _ in kernels):.0f} kernels, {sum(ms for ms, *_ in kernels):.2f} ms, and"
    yield f"  {measured['idle_ms']:.2f} ms without one, profiled"
    for ms, number, name in kernels[:SHOWN]:
        yield f"  {ms:8.3f} ms {number:6.1f} times {name[:90]}"


if __name__ == "__main__":
    main()
