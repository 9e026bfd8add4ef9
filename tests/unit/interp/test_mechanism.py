"""Steering, signatures and verdicts, on networks whose algorithm is known."""

import numpy as np
import pytest
import torch

from arith_erd.bits import ONE, ZERO
from arith_erd.interp.signature import COMPONENTS, LOCAL, Measured, expected_signatures, local_signatures, measure
from arith_erd.interp.steering import Sample, draw_shifts, moved_bits
from arith_erd.interp.verdict import NEAR, decide, distances_to
from arith_erd.models import Transformer
from arith_erd.models.decoding import shift_right
from arith_erd.models.references import reference
from arith_erd.tasks import Add, RandomOutput

TASK = Add()
EXPECTED = expected_signatures(TASK, count=1024)


def ideal(**changes) -> Measured:
    """The signature of an ideal network, with some components replaced."""
    base = changes.pop("base", "erd")
    return Measured(1.0, {name: changes.get(name, EXPECTED[base][name]) for name in COMPONENTS}, {}, [])


@pytest.mark.parametrize("name", EXPECTED)
def test_ideal_signatures_get_their_own_name(name):
    verdict = decide(ideal(base=name), EXPECTED)
    assert (verdict.name, verdict.distance) == (name, 0)


def test_signatures_that_change_at_a_bit_are_mixed():
    low, high = EXPECTED["prefix_carry"], EXPECTED["erd"]
    components = {name: np.where(np.arange(8) < 4, low[name], high[name]) for name in COMPONENTS}
    verdict = decide(Measured(1.0, components, {}, []), EXPECTED)
    assert (verdict.name, verdict.nearest) == ("mixed", "prefix_carry below bit 4, erd from there")


def test_prefixes_of_one_algorithm_and_moves_of_another_are_none():
    carry = {name: EXPECTED["prefix_carry"][name] for name in ("carry", "value", "value_of_remainder")}
    half = np.full(8, 0.5)
    verdict = decide(ideal(base="remainder", flip_propagate=half, flip_settled=half, **carry), EXPECTED)
    assert verdict.name == "none"
    assert any("by prefixes alone, the nearest is remainder" in reason for reason in verdict.reasons)


def test_right_prefixes_without_any_effect_of_a_move_are_undecided():
    nothing = np.zeros(8)
    verdict = decide(ideal(value=nothing, value_of_remainder=nothing, carry=nothing), EXPECTED)
    assert verdict.name == "undecided"


def test_wrong_answers_are_none_whatever_the_signature():
    assert decide(Measured(0.9, EXPECTED["erd"], {}, []), EXPECTED).name == "none"


@pytest.mark.parametrize("name", LOCAL)
def test_algorithms_that_are_no_candidates_are_none_and_near_to_themselves(name):
    signatures = local_signatures(TASK, count=1024)
    ties = dict.fromkeys(("flip_propagate", "flip_settled"), np.full(8, 0.5))  # broken at random
    found = Measured(1.0, signatures[name] | ties, {}, [])
    verdict = decide(found, EXPECTED)
    assert verdict.name == "none"
    assert verdict.distance > NEAR
    distances = distances_to(found, signatures)
    assert distances.pop(name) == 0
    assert all(distance > NEAR for distance in distances.values())


def test_moved_sums_stay_sums_and_move_their_bits():
    rng = np.random.default_rng(0)
    sample = Sample.draw(TASK, 500, rng)
    delta = draw_shifts(TASK, sample, rng)
    total = sample.values["sum"] + delta
    assert (delta != 0).all()
    assert ((total >= 0) & (total <= 254)).all()
    assert np.array_equal(moved_bits(sample, delta, "value"), total >> np.arange(8) & 1)
    # A remainder machine keeps its prefix: moved by 2^t it gives the other bit, moved by 2^(t+1) the same one.
    for power, flips in ((0, 1), (1, 0)):
        step = np.tile(2 ** (np.arange(8) + power), (500, 1))
        assert np.array_equal(moved_bits(sample, step, "remainder"), sample.values["answer"] ^ flips)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOCAL)
def test_networks_that_are_right_and_run_no_candidate_are_none(name):
    found = measure(reference(name, 3).network, TASK, pairs=64, moved=96)
    assert found.accuracy == 1
    assert decide(found, EXPECTED).name == "none"
    distances = distances_to(found, local_signatures(TASK))
    assert distances.pop(name) < NEAR / 2
    assert all(distance > NEAR for distance in distances.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["erd", "prefix_carry_decoy", "lookahead_carry", "mixed"])
def test_references_get_their_own_name(name):
    verdict = decide(measure(reference(name, 3).network, TASK, pairs=64, moved=96), EXPECTED)
    assert verdict.name == name.removesuffix("_decoy")


def test_untrained_networks_run_no_algorithm():
    torch.manual_seed(0)
    network = Transformer(15, 8, num_layers=1).eval()
    assert decide(measure(network, TASK, pairs=64, moved=64), EXPECTED).name == "none"


def test_networks_trained_on_random_output_run_no_algorithm():
    """They answer with bits, unlike untrained ones, but at chance."""
    task = RandomOutput(7)
    prompt, completion = (torch.from_numpy(x) for x in (task.examples().prompt, task.examples().completion))
    torch.manual_seed(0)
    network = Transformer(15, 8, num_layers=1).eval()  # in evaluation mode, so without dropout
    weights = list(network.parameters())
    for _ in range(20):
        batch = torch.randint(len(prompt), (32,))
        logits = network(prompt[batch], shift_right(completion[batch]))
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), completion[batch].flatten())
        for weight, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True):
            weight.data -= 0.003 * gradient.sign()
    tokens = network(prompt[:64], shift_right(completion[:64])).argmax(dim=-1)
    assert ((tokens == ZERO) | (tokens == ONE)).all()
    verdict = decide(measure(network, TASK, pairs=64, moved=64), EXPECTED)
    assert verdict.name == "none"
    assert verdict.reasons[0].endswith("of the pairs right, fewer than 95%")
