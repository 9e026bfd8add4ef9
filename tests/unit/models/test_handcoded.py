"""Networks written by hand: they add, they differ from seed to seed, and each runs the algorithm it is named after."""

import numpy as np
import pytest
import torch
from torch import Tensor

from arith_erd.digits import ZERO, from_digits
from arith_erd.errors import UserError
from arith_erd.interp.algorithms import ALGORITHMS, POST_HOC, ColumnSums
from arith_erd.mechanism.prefixes import PrefixedExamples
from arith_erd.models import Transformer
from arith_erd.models.handcoded import PROGRAMS, write_network
from arith_erd.models.network import greedy_decode, shift_right
from arith_erd.tasks import Add

COLUMNS = ColumnSums(Add())
EXAMPLES = COLUMNS.task.examples(*np.random.default_rng(0).integers(0, 128, (2, 512)))
"""``paper/results/handcoded.csv`` is of all pairs, for every variant."""
PROMPT, COMPLETION = torch.from_numpy(EXAMPLES.prompt), torch.from_numpy(EXAMPLES.completion)
RUNS = {name: algorithm for name in PROGRAMS if (algorithm := name.removesuffix("_decoy")) in ALGORITHMS}
MODELS = {name: algorithm.causal_model(COLUMNS.task) for name, algorithm in ALGORITHMS.items()}


@torch.no_grad()
def logits(network: Transformer, answer: Tensor = COMPLETION) -> Tensor:
    return network(PROMPT, shift_right(answer))


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_handcoded_networks_answer_with_a_wide_margin(name: str) -> None:
    network = write_network(name, 1).network
    given = logits(network)
    right = given.gather(-1, COMPLETION[..., None])[..., 0]
    wrong = given.scatter(-1, COMPLETION[..., None], -torch.inf).amax(-1)
    assert (right - wrong).min() >= 5
    assert torch.equal(greedy_decode(network, PROMPT[:64], 8), COMPLETION[:64])


def test_seed_determines_the_network_and_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    first, again, other = (write_network("mixed", seed).network.state_dict() for seed in (3, 3, 4))
    assert torch.equal(torch.rand(1), expected)
    assert all(torch.equal(first[name], again[name]) for name in first)
    for name in ("head.weight", "encoder.0.self_attention.norm.bias"):
        assert not torch.equal(first[name], other[name])


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(("name", "algorithm"), RUNS.items())
def test_handcoded_networks_answer_wrong_prefixes_as_their_algorithms_do(name: str, algorithm: str) -> None:
    bits = np.random.default_rng(0).integers(0, 2, COMPLETION.shape)
    for seed in (2, 3) if name in POST_HOC else (2,):
        found = logits(write_network(name, seed).network, torch.from_numpy(bits) + ZERO).argmax(-1).numpy() - ZERO
        assert (found[:, 0] == EXAMPLES.answer & 1).all()
        for t in range(1, 8):
            # Numbers halfway between two integers may be rounded either way.
            inputs = PrefixedExamples(COLUMNS, t, *EXAMPLES.operands.T, from_digits(bits[:, :t]))
            clear = np.abs(inputs.c % 1 - 0.5) > (0.1 if ALGORITHMS[algorithm].rounds else -1)
            assert clear.any()
            assert (found[:, t] == inputs.predict_by(MODELS[algorithm]))[clear].all()


@pytest.mark.parametrize(("name", "feature"), [("erd_decoy", "carry"), ("prefix_carry_decoy", "value")])
def test_decoys_store_what_they_do_not_read(name: str, feature: str) -> None:
    made = write_network(name, 1)
    direction = made.decoder.directions(feature).float()[:, 0]
    kept = []

    def remove(module: object, inputs: object, output: Tensor) -> Tensor:
        kept.append(output @ direction)
        return output - 5 * direction * (output @ direction)[..., None]

    before = logits(made.network)
    with made.network.decoder[-1].register_forward_hook(remove):
        after = logits(made.network)
    assert torch.allclose(before, after, atol=1e-3)
    values = COLUMNS.causal_model.values(EXAMPLES)
    for t in range(1, 8):
        wanted = values["sum"] if feature == "value" else values["carry"][:, t]
        assert abs(np.corrcoef(kept[0][:, t].numpy(), wanted)[0, 1]) > 0.99


def test_unknown_names_and_seeds_are_refused_in_one_line() -> None:
    with pytest.raises(UserError, match=r"^handcoded=magic: expected one of erd, prefix_carry, "):
        write_network("magic")
    with pytest.raises(UserError, match=r"^seed=-1: expected an integer from 0 to 2147483647$"):
        write_network("erd", -1)
