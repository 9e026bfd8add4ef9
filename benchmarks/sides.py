"""The two sides of `peer_jax`. Each function runs in its own process, and loads only what it needs."""

import resource
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from arith_erd.bits import Array
from arith_erd.config.job import Job

WARM_UP = 3  # steps after the one that compiles
Step = Callable[[int, Array, Array], float]


def timed(
    side: str, job: Job, prompts: Array, completions: Array, weights: dict[str, Array], keys: Array
) -> dict[str, Any]:
    """Train on prompts (S, R, B, P) and completions (S, R, B, m) and time each step. The first compiles."""
    if side == "ours":
        import torch

        from arith_erd.training.assemble import assemble

        step = our_step(assemble(job, torch.device("cpu")))
    else:
        import jax.numpy as jnp

        step = jax_step(job, {name: jnp.array(value) for name, value in weights.items()}, keys)
    walls, cpus, losses = [], [], []
    earlier = time.process_time()
    for index, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        wall, cpu = time.perf_counter(), time.process_time()
        losses.append(step(index, prompt, completion))
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    count = slice(1 + WARM_UP, None)
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {
        "first_s": round(walls[0], 2),
        "ms": round(median(walls[count]) * 1e3, 2),
        "cpu_ms": round(median(cpus[count]) * 1e3, 2),
        "peak_mib": round(resident / 2**20),
        "loss": f"{np.mean(losses[count]):.6f}",
        "other_cpu_s": earlier + sum(cpus[1:]),
    }


def our_step(module: Any) -> Step:
    """A training step of a `LitPack`, which gives the mean loss."""
    import torch

    optimizer = module.configure_optimizers()

    def step(index: int, prompt: Array, completion: Array) -> float:
        losses = module.pack.losses(torch.from_numpy(prompt), torch.from_numpy(completion), index)
        optimizer.zero_grad()
        losses.sum().backward()
        optimizer.step()
        return float(losses.detach().mean())

    return step


def jax_step(job: Job, parameters: dict[str, Any], keys: Array) -> Step:
    """The same of stacks of parameters, which are replaced in ``parameters``."""
    import jax
    from jax_pack import training

    begin, train = training(recipe_of(job), keys)
    state = begin(parameters)

    def step(index: int, prompt: Array, completion: Array) -> float:
        nonlocal state
        tokens = prompt.astype(np.int32), completion.astype(np.int32)
        updated, state, losses = jax.block_until_ready(train(parameters, state, np.uint32(index), *tokens))
        parameters.update(updated)
        return float(losses.mean())

    return step


def beginning(job: Job, steps: int) -> dict[str, Any]:
    """The initial weights and dropout keys of a pack, and the first whole batches of its training.

    Returns:
        what `timed` takes, with a batch for the step that compiles, for the warm-up and for each of ``steps``.
    """
    import torch

    from arith_erd.training.assemble import assemble, table_data
    from arith_erd.training.data import Batch, TrainBatches

    pack, data = assemble(job, torch.device("cpu")).pack, table_data(job)
    examples = data.train[0], data.train[1]
    whole = len(data.train[0]) // data.batch_size  # in an epoch

    def batch(number: int) -> Batch:
        epoch, taken = divmod(number, whole)
        step = epoch * data.steps_per_epoch + taken
        return next(iter(TrainBatches(*examples, data.seeds, data.batch_size, lambda: step)))

    prompts, completions = zip(*(batch(number) for number in range(1 + WARM_UP + steps)), strict=True)
    return {
        "prompts": torch.stack(prompts).numpy(),
        "completions": torch.stack(completions).numpy(),
        "weights": {name: stack.detach().numpy() for name, stack in pack.stacked.named_parameters()},
        "keys": pack.replica_keys.numpy().view(np.uint32),
    }


def differences(job: Job) -> dict[str, float]:
    """Largest differences between the sides: of logits in 32 bits, and of weights after two training steps in 64.

    The logits are without dropout, the steps with it. In 32 bits the weights could not tell: the biases of the keys
    have no gradient but rounding, and of that Adam makes a whole step.
    """
    import jax
    import torch
    from jax_pack import evaluate

    from arith_erd.models.decoding import shift_right
    from arith_erd.training.assemble import assemble

    cpu, eager = torch.device("cpu"), replace(job, trainer=replace(job.trainer, compile=False))
    start = beginning(eager, 0)
    weights, keys = start["weights"], start["keys"]
    batches = [(start["prompts"][i, :, :16], start["completions"][i, :, :16]) for i in (0, 1)]
    prompt, completion = batches[0]
    with torch.no_grad():
        ours = assemble(eager, cpu).pack(torch.from_numpy(prompt), shift_right(torch.from_numpy(completion)))
    logits = np.abs(ours.numpy() - np.asarray(evaluate(recipe_of(job), weights, prompt, completion))).max()

    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # also of the masks
    try:
        module = assemble(replace(eager, trainer=replace(eager.trainer, precision="64-true")), cpu)
        trained = dict(module.pack.stacked.named_parameters())
        for name, stack in trained.items():
            stack.data.copy_(torch.from_numpy(weights[name]))
        with jax.enable_x64(True):
            parameters = {name: jax.numpy.array(value, dtype=np.float64) for name, value in weights.items()}
            for step in (our_step(module), jax_step(job, parameters, keys)):
                for index, batch in enumerate(batches):
                    step(index, *batch)
    finally:
        torch.set_default_dtype(default)
    apart = [np.abs(stack.detach().numpy() - np.asarray(parameters[name])).max() for name, stack in trained.items()]
    return {"logits": float(logits), "weights": float(np.max(apart))}  # nan if any is


def recipe_of(job: Job) -> Any:
    from jax_pack import Recipe

    net, adam = job.resolved["model"]["net"], job.resolved["model"]["optimizer"]
    return Recipe(net["num_heads"], net["num_layers"], net["dropout"], adam["lr"], tuple(adam["betas"]), adam["eps"])
