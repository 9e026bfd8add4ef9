"""How a training step uses its device, tested without a GPU."""

from functools import partial

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from arith_erd.models import NanoGPT, Transformer
from arith_erd.tasks import Add
from arith_erd.training.data import EvaluationBatches, TrainBatches
from arith_erd.training.module import LitPack, accuracies
from arith_erd.training.pack import Pack

TASK = Add(3)


class OnTheCPU(TorchDispatchMode):
    """Counts the operators that read or make a tensor on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        tensors = [x for x in tree_leaves((args, kwargs, result)) if isinstance(x, torch.Tensor)]
        if any(x.device.type == "cpu" for x in tensors):
            self.found.add(function.name())
        return result


@pytest.mark.parametrize(("network", "seeds"), [(Transformer, (0, 1, 2)), (NanoGPT, (0,))])
def test_epoch_runs_entirely_on_the_device(network, seeds, monkeypatch):
    """With the ``meta`` device in the place of a GPU; but for the order of the examples, which is drawn on the CPU."""
    build = partial(network, TASK.prompt_length, TASK.width, d_model=16, num_heads=2, num_layers=1)
    module = LitPack(Pack(build, seeds), torch.optim.AdamW, gradient_clip=1.0).to("meta")
    optimizer = module.configure_optimizers()
    examples = TASK.examples()
    table = tuple(torch.from_numpy(tokens).to("meta") for tokens in (examples.prompt, examples.completion))
    monkeypatch.setattr(LitPack, "global_step", 5)
    batches = list(TrainBatches(table, seeds, batch_size=20, step=lambda: 0))
    with OnTheCPU() as off:
        module.on_train_epoch_start()
        for index, batch in enumerate(batches):
            loss = module.training_step(batch, index)
            optimizer.zero_grad()
            loss.backward()
            module.configure_gradient_clipping(optimizer)
        with torch.no_grad():
            for batch in EvaluationBatches(*table, 64):
                module.validation_step(batch, 0, 1)
            accuracy = accuracies(module.of_validation.compute().movedim(0, 1), table[1])
    assert off.found == set()
    assert loss.device.type == accuracy.device.type == "meta"
    with OnTheCPU() as off:
        torch.ones(1)
    assert off.found  # else it watches nothing
