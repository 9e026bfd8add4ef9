"""Whether a device computes what the CPU computes: ``python benchmarks/correctness.py [KEY=VALUE ...]``.

The first thing to run on new hardware, before anything is timed there. Every check trains the same packs for twenty
steps in different ways and compares the losses; on a machine without a GPU it compares the CPU with itself. A check
that raises has failed, and the others go on. The exit status is 1 if one fails on which every run rests; CUDA graphs
are an option, and bf16 is coarser by design.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from enum import Enum, auto
from functools import cache, partial

import torch
from rich.console import Console
from rich.table import Table

from arith_erd.build import build
from arith_erd.compose import compose
from arith_erd.data import TableData, TrainBatches
from arith_erd.decoding import answers, greedy
from arith_erd.errors import UserError, first_line
from arith_erd.machine import device_name
from arith_erd.models.dropout import keep_mask
from arith_erd.runs import Config
from arith_erd.seeds import parse_seeds
from arith_erd.splits import Split
from arith_erd.tasks import Task
from arith_erd.training import assemble

STEPS = 20
TOLERANCE = 1e-3  # of a loss near 0.7: far above what the order of additions changes, far below what a fault would
PACK = "0-2"


def main() -> None:
    overrides = sys.argv[1:]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    table = Table("check", "model", "largest difference", "", title=f"{device_name(device)} against the CPU")
    failed = False
    for model in ("transformer", "nanogpt"):
        try:
            compose("train", [f"model={model}", *overrides])
        except UserError as error:
            sys.exit(f"error: {error}")
        for name, difference, weight in checks(model, overrides, device):
            try:
                found = difference()
            except Exception as error:  # the next check may tell more
                shown, good = first_line(error), False
            else:
                shown, good = f"{found:.2g}", found <= TOLERANCE
            failed |= weight is Weight.REQUIRED and not good
            verdict = "for the record" if weight is Weight.NOTED else "ok" if good else "FAILED"
            table.add_row(name, model, shown, verdict)
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    sys.exit(failed)


class Weight(Enum):
    """What it means if a difference is too large."""

    REQUIRED = auto()
    OPTION = auto()
    NOTED = auto()


def checks(
    model: str, overrides: Sequence[str], device: torch.device
) -> Iterator[tuple[str, Callable[[], float], Weight]]:
    """Name of each check, how to get its largest difference, and its weight."""
    cpu = torch.device("cpu")

    @cache
    def traced(seed: str, on: torch.device, **trainer: object) -> torch.Tensor:
        options = [f"trainer.{key}={str(value).lower()}" for key, value in trainer.items()]
        return losses(compose("train", [f"model={model}", f"seed={seed}", *options, *overrides]), on)

    def eager(on: torch.device = device) -> torch.Tensor:
        return traced(PACK, on, compile=False)

    def solos() -> torch.Tensor:
        return torch.cat([traced(str(seed), device, compile=False) for seed in parse_seeds(PACK)])

    def mask(on: torch.device) -> torch.Tensor:
        return keep_mask(torch.tensor([7, 9], dtype=torch.int32, device=on), torch.Size([1001]), 0.1).cpu()

    yield "a pack is its seeds alone", lambda: distance(eager(), solos()), Weight.REQUIRED
    yield "the device is the CPU", lambda: distance(eager(), eager(cpu)), Weight.REQUIRED
    if device.type == "cuda":
        compiled = partial(traced, PACK, device, compile=True)
        yield "compiled is eager", lambda: distance(eager(), compiled()), Weight.REQUIRED
        yield "CUDA graphs are eager", lambda: distance(eager(), compiled(cuda_graphs=True)), Weight.OPTION
    bf16 = partial(traced, PACK, device, compile=False, precision="bf16-mixed")
    yield "bf16-mixed", lambda: distance(eager(), bf16()), Weight.NOTED
    yield "dropout masks", lambda: distance(mask(cpu), mask(device)), Weight.REQUIRED
    plain = compose("train", [f"model={model}", *overrides])
    yield "decoding is teacher forcing", lambda: decoding(plain, device), Weight.REQUIRED


def losses(config: Config, device: torch.device) -> torch.Tensor:
    """Of every replica in every step, (R, steps)."""
    module = assemble(config, device).to(device)
    data = TableData(
        build(config["task"], Task), build(config["split"], Split), module.pack.seeds, config["data"]["batch_size"]
    )
    prompt, completion = (x.to(device) for x in data.train)
    batches = TrainBatches(prompt, completion, data.seeds, data.batch_size, step=lambda: 0)
    optimizer = module.configure_optimizers()
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=config["trainer"]["precision"] == "bf16-mixed")
    found = []
    for step, (prompt, completion) in zip(range(STEPS), batches, strict=False):
        with autocast:
            loss = module.pack.losses(prompt, completion, step)
        optimizer.zero_grad()
        loss.sum().backward()
        module.configure_gradient_clipping(optimizer)
        optimizer.step()
        found.append(loss.detach().float().cpu())
    return torch.stack(found, dim=1)


def decoding(config: Config, device: torch.device) -> float:
    """The share of tokens in which decoding only what teacher forcing fails differs from decoding everything."""
    module = assemble(config, device).to(device)
    data = TableData(build(config["task"], Task), build(config["split"], Split), module.pack.seeds)
    prompt, completion = (x[:512].to(device) for x in data.validation)
    network = module.pack.replica(0)
    everything = greedy(network, prompt, completion.shape[1])
    completion[::2] = everything[::2]  # half of them right, whatever the network has learnt
    return float((answers(network, prompt, completion) != everything).double().mean())


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).abs().max())


if __name__ == "__main__":
    main()
