"""Every option of conf/ can be chosen and built. That they are the paper's: ``test_experiments.py``."""

import pytest
import torch

from arith_erd.bits import START
from arith_erd.config.compose import compose
from arith_erd.models.dropout import set_dropout_keys
from arith_erd.probes.probe import Probe
from arith_erd.splits import RandomSplit
from arith_erd.tasks import Add
from tests.unit.probes.small import untrained
from tests.values import options

MODELS = options("model")
BASELINES = {"gru", "lstm", "mlp"}  # without most of what ablations remove
PAIRS = [
    (m, a)
    for m in MODELS
    for a in options("ablation")
    if (m, a) != ("nanogpt", "squeezed_encoder") and (m not in BASELINES or a in ("none", "d_model_16", "d_model_32"))
]


@pytest.mark.parametrize("name", options("task"))
@pytest.mark.parametrize("order", ["reverse", "plain"])
def test_every_task_builds(name, order):
    more = ["task.modulus=8"] if name == "mod_add" else []
    task = compose("train", [f"task={name}", "task.bits=3", f"task.prompt_order={order}", *more]).task
    assert (task.name, task.bits, task.prompt_order, task.base) == (name, 3, order, 2)
    assert len(task.examples()) == 8**task.num_operands


@pytest.mark.parametrize(("model", "ablation"), PAIRS)
def test_every_model_and_ablation_builds_and_learns_one_step(model, ablation):
    job = compose("train", [f"model={model}", f"ablation={ablation}"])
    assert (job.model.name, job.ablation.name) == (model, ablation)
    network = job.network()
    set_dropout_keys(network, torch.zeros(2, dtype=torch.int32))
    optimizer = job.model.optimizer.build(torch.optim.Optimizer, network.parameters())
    prompt, answer_in = torch.full((2, 15), 3), torch.full((2, 8), START)
    network(prompt, answer_in).square().mean().backward()
    optimizer.step()
    assert network(prompt, answer_in).shape == (2, 8, 5)


@pytest.mark.parametrize("model", MODELS)
def test_scale_changes_sizes_that_the_model_has_and_adds_none(model):
    full, mini = (
        compose("train", [f"model={model}", f"scale={one}"]).resolved["model"]["net"] for one in ("full", "mini")
    )
    assert full.keys() == mini.keys()
    assert (mini["d_model"], mini["num_layers"], mini.get("num_heads", 4)) == (32, 3, 4)


@pytest.mark.parametrize("choice", [f"{group}={name}" for group in ("probe", "figure") for name in options(group)])
def test_every_probe_builds(choice):
    job, model = compose("probe", [choice, "task.bits=3"]), untrained(Add(3), num_layers=6)
    model.split = RandomSplit()
    things = {"task": job.task, "split": job.split, "models": [model]}
    assert isinstance(job.probe.build(Probe, **{need: things[need] for need in job.needs}), Probe)
