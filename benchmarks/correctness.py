"""Whether a device computes what the CPU computes: ``python benchmarks/correctness.py [KEY=VALUE ...]``.

The first thing to run on new hardware, before anything is timed there. Most checks train the same packs for twenty
steps in two ways and compare the losses; on a machine without a GPU the CPU is compared with itself. A check that
raises has failed, and the others go on. The exit status is 1 if a required check failed: CUDA graphs can be left off,
and bf16 is coarser by design. With ARITH_ERD_ATTENTION=VARIANT only that variant of compiled attention is checked.
"""

import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum, auto
from functools import cache, partial

import torch
from hydra.errors import HydraException

from arith_erd.config.compose import compose
from arith_erd.config.job import Job
from arith_erd.errors import UserError, first_line, printable
from arith_erd.models import attention
from arith_erd.models.attention import attend
from arith_erd.models.dropout import Dropout, keep_mask
from arith_erd.models.network import greedy_decode, greedy_tokens, shift_right
from arith_erd.seeds import parse_seeds
from arith_erd.system.machine import device_name
from arith_erd.training.build import build_module, build_task_data
from arith_erd.training.data import Batch, TrainBatches

STEPS = 20
TOLERANCE = 2e-4  # of a loss near 0.7, with products in TF32
EXACT_TOLERANCE = 1e-5  # with products in 32 bits
PACK = "0-2"


def main() -> None:
    overrides = sys.argv[1:]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        made = [(model, *check) for model in ("transformer", "nanogpt") for check in checks(model, overrides, device)]
    except (UserError, HydraException) as error:
        sys.exit(f"error: {error}")
    print(f"{device_name(device)} against the CPU: largest differences\n")
    failed = False
    made.sort(key=lambda check: check[3])  # what every run rests on comes first, in case there is a time limit
    for model, name, difference, kind, limit in made:
        try:
            value = difference()
        except Exception as error:  # the next check may tell more
            traceback.print_exc()
            text, passed = printable(first_line(error)), False
        else:
            text, passed = f"{value:.2g}", value <= limit
        failed |= kind is Kind.REQUIRED and not passed
        verdict = "for the record" if kind is Kind.RECORD else "ok" if passed else "FAILED"
        print(f"{name:29}{model:13}{verdict:16}{text}", flush=True)
    sys.exit(int(failed))  # an exit hook of W&B's takes no bool


class Kind(IntEnum):
    """Kinds of checks: required by every run, of an option that can be left off, or a number for the record only."""

    REQUIRED = auto()
    OPTION = auto()
    RECORD = auto()


def checks(
    model: str, overrides: Sequence[str], device: torch.device
) -> Iterator[tuple[str, Callable[[], float], Kind, float]]:
    """Name, how to get the largest difference, kind, and accepted difference of each check.

    Raises:
        UserError: if the overrides are not those of a configuration.
    """
    plain, cpu = compose_job(model, overrides), torch.device("cpu")
    chosen, required = attention.CHOSEN or "compiled", Kind.REQUIRED
    # A CPU needs minutes to compile a pack of small networks.
    seeds = PACK if attention.CHOSEN is None or device.type == "cuda" else "0"

    @cache
    def losses(seed: str, on: torch.device = device, products: str | None = None, **trainer: object) -> torch.Tensor:
        return train_losses(compose_job(model, overrides, seed, **trainer), on, products)

    def alone() -> torch.Tensor:
        return torch.cat([losses(str(seed), compile=False) for seed in parse_seeds(PACK)])

    def dropout_mask(on: torch.device) -> torch.Tensor:
        return keep_mask(torch.tensor([7, 9], dtype=torch.int32, device=on), torch.Size([1001]), 0.1).cpu()

    def differ(one: Callable[..., torch.Tensor], other: Callable[..., torch.Tensor]) -> Callable[[], float]:
        return lambda: float((one() - other()).abs().max())

    eager, compiled = partial(losses, seeds, compile=False), partial(losses, seeds, compile=True)
    if attention.CHOSEN is None:
        yield "a pack is its seeds alone", differ(eager, alone), required, TOLERANCE
        yield "the device is the CPU", differ(eager, partial(losses, PACK, cpu, compile=False)), required, TOLERANCE
        yield "dropout masks", differ(partial(dropout_mask, cpu), partial(dropout_mask, device)), required, 0
        yield "decoding is teacher forcing", partial(decoding_difference, plain, device), required, 0
    else:
        in_32_bits = partial(losses, seeds, device, "highest")
        exact = differ(partial(in_32_bits, compile=False), partial(in_32_bits, compile=True))
        yield f"{chosen} in 32 bits", exact, required, EXACT_TOLERANCE
        yield f"{chosen}, dropout masks", partial(attention_mask_difference, device), required, 0
        yield f"{chosen}, answers", partial(answer_difference, model, overrides, seeds, device), required, 0
    if device.type == "cuda":
        yield f"{chosen} is eager", differ(eager, compiled), required, TOLERANCE
        yield "CUDA graphs are eager", differ(eager, partial(compiled, cuda_graphs=True)), Kind.OPTION, TOLERANCE
    if attention.CHOSEN is None:
        bf16 = partial(losses, PACK, compile=False, precision="bf16-mixed")
        yield "bf16-mixed", differ(eager, bf16), Kind.RECORD, TOLERANCE


def compose_job(model: str, overrides: Sequence[str], seed: str = "0", **trainer: object) -> Job:
    options = [f"trainer.{key}={str(value).lower()}" for key, value in trainer.items()]
    return compose("train", [f"model={model}", f"seed={seed}", *options, *overrides])


def train_losses(job: Job, device: torch.device, products: str | None) -> torch.Tensor:
    """Losses of every replica and step, (R, steps). ``products`` is torch's name of a precision, None that of a run."""
    module = build_module(job, device).to(device)
    if products is not None:
        torch.set_float32_matmul_precision(products)
    data = build_task_data(job)
    prompts, completions = (x.to(device) for x in data.train)

    def batch_of(step: int) -> Batch:
        """The batch of a step, whatever its epoch."""
        return next(iter(TrainBatches((prompts, completions), data.seeds, data.batch_size, lambda: step)))

    optimizer = module.configure_optimizers()
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=job.trainer.precision == "bf16-mixed")
    losses = []
    for step in range(STEPS):
        prompt, completion = batch_of(step)
        with autocast:
            loss = module.pack.losses(prompt, completion, step)
        optimizer.zero_grad()
        loss.sum().backward()
        module.configure_gradient_clipping(optimizer)
        optimizer.step()
        losses.append(loss.detach().float().cpu())
    return torch.stack(losses, dim=1)


def decoding_difference(job: Job, device: torch.device) -> float:
    """The share of tokens that differ if only examples wrong under teacher forcing are decoded, not all."""
    module = build_module(job, device).to(device)
    data = build_task_data(job)
    prompt, completion = (x[:512].to(device) for x in data.validation)
    network = module.pack.replica(0)
    everything = greedy_decode(network, prompt, completion.shape[1])
    completion[::2] = everything[::2]  # half of them right, whatever the network has learned
    return float((greedy_tokens(network, prompt, completion) != everything).double().mean())


def attention_mask_difference(device: torch.device) -> float:
    """The share of weights that compiled attention drops and the plain form does not, or the other way round.

    With equal weights and one-hot values, what attention returns is the mask.
    """
    dropout = Dropout(0.1).train()
    dropout.key = torch.tensor([7, 9], dtype=torch.int32, device=device)
    uniform, one_hot = torch.zeros(64, 8, 15, 15, device=device), torch.eye(15, device=device).expand(64, 8, 15, 15)
    forward = partial(attend, uniform, uniform, dropout=dropout)
    torch.compiler.reset()
    compiled = torch.compile(lambda v: forward(v), dynamic=False)
    return float(((forward(one_hot) > 0) != (compiled(one_hot) > 0)).double().mean())


def answer_difference(model: str, overrides: Sequence[str], seeds: str, device: torch.device) -> float:
    """The share of tokens in which compiled packs and eager ones, with equal weights, differ under teacher forcing."""
    tokens = []
    for compile in (False, True):
        job = compose_job(model, overrides, seeds, compile=compile)
        module = build_module(job, device).to(device)
        torch.set_float32_matmul_precision("highest")
        prompt, completion = (x[:512].to(device) for x in build_task_data(job).validation)
        with torch.no_grad():
            tokens.append(module.pack(prompt, shift_right(completion)).argmax(-1))
    return float((tokens[0] != tokens[1]).double().mean())


if __name__ == "__main__":
    main()
