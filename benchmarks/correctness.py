"""Whether a device computes what the CPU computes: ``python benchmarks/correctness.py [KEY=VALUE ...]``.

The first thing to run on new hardware, before anything is timed there. Every check trains the same packs for twenty
steps in different ways and compares the losses; on a machine without a GPU it compares the CPU with itself. The exit
status is 1 if one fails.
"""

import sys
from collections.abc import Iterator, Sequence

import torch
from rich.console import Console
from rich.table import Table

from arith_erd.build import build
from arith_erd.compose import compose
from arith_erd.data import TableData, TrainBatches
from arith_erd.decoding import answers, greedy
from arith_erd.errors import UserError
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
    try:
        for model in ("transformer", "nanogpt"):
            for name, difference, required in checks(model, overrides, device):
                good = difference <= TOLERANCE
                failed |= required and not good
                table.add_row(
                    name, model, f"{difference:.2g}", "ok" if good else "FAILED" if required else "for the record"
                )
    except UserError as error:
        sys.exit(f"error: {error}")
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    sys.exit(failed)


def checks(model: str, overrides: Sequence[str], device: torch.device) -> Iterator[tuple[str, float, bool]]:
    """Name, largest difference, and whether it must be within the tolerance, of each check."""

    def traced(seed: str, on: torch.device, **trainer: object) -> torch.Tensor:
        options = [f"trainer.{key}={str(value).lower()}" for key, value in trainer.items()]
        return losses(compose("train", [f"model={model}", f"seed={seed}", *options, *overrides]), on)

    cpu = traced(PACK, torch.device("cpu"), compile=False)
    eager = traced(PACK, device, compile=False)
    solo = torch.cat([traced(str(seed), device, compile=False) for seed in parse_seeds(PACK)])
    yield "a pack is its seeds alone", distance(eager, solo), True
    yield "the device is the CPU", distance(eager, cpu), True
    if device.type == "cuda":
        yield "compiled is eager", distance(eager, traced(PACK, device, compile=True)), True
        graphs = traced(PACK, device, compile=True, cuda_graphs=True)
        yield "CUDA graphs are eager", distance(eager, graphs), True
    yield "bf16-mixed", distance(eager, traced(PACK, device, compile=False, precision="bf16-mixed")), False
    key = torch.tensor([7, 9], dtype=torch.int32)
    masks = [keep_mask(key.to(on), torch.Size([1001]), 0.1) for on in (torch.device("cpu"), device)]
    yield "dropout masks", distance(masks[0], masks[1].cpu()), True
    yield "decoding is teacher forcing", decoding(compose("train", [f"model={model}", *overrides]), device), True


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
