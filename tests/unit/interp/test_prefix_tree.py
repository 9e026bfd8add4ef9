"""One pass over the tree of prefixes gives what the network gives to each prefix by itself."""

import numpy as np
import pytest
import torch

from arith_erd.digits import START, ZERO, to_digits
from arith_erd.errors import UserError
from arith_erd.interp import prefix_tree
from arith_erd.interp.hooked import Hooked
from arith_erd.interp.prefix_tree import answers_after_prefixes
from arith_erd.models import GRU, NanoGPT, Network, Transformer
from arith_erd.tasks import POSITION_ENCODINGS, Add, Mul, Task
from tests.unit.probes.small import untrained


@pytest.mark.parametrize("positions", POSITION_ENCODINGS)
@pytest.mark.parametrize("kind", [Transformer, NanoGPT])
@pytest.mark.parametrize(("task", "levels"), [(Add(bits=3), 2), (Add(bits=2, base=3), 4)], ids=["paths", "one tree"])
def test_tree_equals_each_prefix_by_itself(monkeypatch, kind, positions: str, task: Task, levels: int) -> None:
    monkeypatch.setattr(prefix_tree, "LEVELS", levels)
    model = untrained(task, kind, 6, num_layers=1, positions=positions)
    for name, parameter in model.network.named_parameters():  # answers that differ, and far from ties
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=1.0 if "embedding" in name else 0.3)
    examples, width = task.examples(), task.width
    answers = answers_after_prefixes(model, examples)
    prefixes = np.random.default_rng(0).integers(0, task.base ** (width - 1), len(examples))
    start = np.full((len(examples), 1), START)
    answer_in = torch.as_tensor(np.hstack([start, to_digits(prefixes, width - 1, task.base) + ZERO]))
    logits = model.run((torch.as_tensor(examples.prompt), answer_in))[..., ZERO : ZERO + task.base]
    for t in range(width):
        digits = answers[t][np.arange(len(examples)), prefixes % task.base**t]
        chosen = logits[:, t].gather(-1, torch.as_tensor(digits).long()[:, None]).squeeze(-1)
        torch.testing.assert_close(chosen, logits[:, t].amax(-1), atol=3e-5, rtol=0)
    assert any((digits != digits[:, :1]).any() for digits in answers)  # the network does depend on its prefix


class Shifted(NanoGPT):
    """Writes other digits at odd positions."""

    def decode(self, memory, answer_in):
        odd = torch.arange(answer_in.shape[-1])[:, None] % 2
        return super().decode(memory, answer_in) + odd * torch.tensor([0, 0, 0, 50.0, -50.0])


def test_a_network_that_may_compute_from_the_index_of_a_token_is_refused() -> None:
    task = Add(bits=3)
    replaced = NanoGPT(7, 4, d_model=16, num_heads=2, num_layers=1)
    replaced.blocks[0].feed_forward = Roll()
    for network, found in ((Shifted(7, 4, d_model=16, num_heads=2, num_layers=1), "Shifted"), (replaced, "Roll")):
        with pytest.raises(UserError, match=f"has a {found}; expected our .*num_completions"):
            answers_after_prefixes(Hooked(network, task=task), task.examples())


class Roll(torch.nn.Module):
    def forward(self, x):
        return x.roll(1, dims=1)


@pytest.mark.parametrize(
    ("task", "kind", "message"),
    [
        (Add(bits=3), GRU, "has a GRU; expected our Transformer or nanoGPT"),
        (Add(bits=3, min_bits=1), NanoGPT, "expected answers of one length"),
        (Mul(bits=7), NanoGPT, "268,419,072 prefixes of its answers; expected at most 4,194,304"),
    ],
)
def test_networks_and_tasks_without_such_a_tree_are_refused(task: Task, kind: type[Network], message: str) -> None:
    model = untrained(task, kind) if kind is NanoGPT else Hooked(kind(7, 4, d_model=16, num_layers=1), task=task)
    with pytest.raises(UserError, match=message):
        answers_after_prefixes(model, task.examples())
