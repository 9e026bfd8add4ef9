"""Steering, signatures and verdicts, on ideal signatures and on networks whose algorithm is known."""

from functools import partial

import numpy as np
import pytest
import torch

from arith_erd.bits import ONE, ZERO
from arith_erd.interp.causal_model import CausalModel
from arith_erd.interp.hooked import Hooked
from arith_erd.mechanism.card import NEAR
from arith_erd.mechanism.directions import draw_shifts, shifted_bits, steer_beyond
from arith_erd.mechanism.prefixes import Sample
from arith_erd.mechanism.signature import (
    COMPONENTS,
    POST_HOC,
    Measured,
    expected_signatures,
    measure,
)
from arith_erd.mechanism.verdict import decide, is_calibrated
from arith_erd.models import NanoGPT, Transformer
from arith_erd.models.decoding import shift_right
from arith_erd.models.references import reference
from arith_erd.tasks import Add, Mul, RandomOutput, Task

TASK = Add()
EXPECTED = expected_signatures(TASK, count=1024)


def ideal(**changes: object) -> Measured:
    """The signature of an ideal network, with some components replaced."""
    base = changes.pop("base", "erd")
    return Measured(1.0, {name: changes.get(name, EXPECTED[base][name]) for name in COMPONENTS})


@pytest.mark.parametrize("name", [name for name in EXPECTED if name not in POST_HOC])
def test_ideal_signatures_get_their_own_name(name: str) -> None:
    verdict = decide(ideal(base=name), EXPECTED)
    assert (verdict.name, verdict.distance) == (name, 0)


def test_signatures_that_change_at_a_bit_are_mixed() -> None:
    low, high = EXPECTED["prefix_carry"], EXPECTED["erd"]
    verdict = decide(
        Measured(1.0, {name: np.where(np.arange(8) < 4, low[name], high[name]) for name in COMPONENTS}), EXPECTED
    )
    assert (verdict.name, verdict.nearest) == ("mixed", "prefix_carry below bit 4, erd from there")


def test_prefixes_of_one_algorithm_and_steering_of_another_are_none() -> None:
    carry = {name: EXPECTED["prefix_carry"][name] for name in ("carry", "value", "value_of_remainder")}
    half = np.full(8, 0.5)
    verdict = decide(ideal(base="remainder", flip_propagate=half, flip_settled=half, **carry), EXPECTED)
    assert verdict.name == "none"
    assert any(reason.startswith("from the prefix test only, the nearest is remainder") for reason in verdict.reasons)


def test_right_prefixes_without_any_effect_of_steering_are_undecided_and_wrong_answers_are_none() -> None:
    nothing = np.zeros(8)
    assert decide(ideal(value=nothing, value_of_remainder=nothing, carry=nothing), EXPECTED).name == "undecided"
    assert decide(Measured(0.9, EXPECTED["erd"]), EXPECTED).name == "none"


@pytest.mark.parametrize("name", POST_HOC)
def test_post_hoc_algorithms_are_none_and_near_to_themselves_only(name: str) -> None:
    ties = dict.fromkeys(("flip_propagate", "flip_settled"), np.full(8, 0.5))  # broken at random
    found = Measured(1.0, EXPECTED[name] | ties)
    verdict = decide(found, EXPECTED)
    distances = dict(verdict.post_hoc)
    assert verdict.name == "none"
    assert verdict.distance > NEAR
    assert distances.pop(name) == 0
    assert all(distance > NEAR for distance in distances.values())


def test_shifted_sums_stay_sums_and_shift_their_bits() -> None:
    rng = np.random.default_rng(0)
    sample = Sample.draw(CausalModel(TASK), 500, rng)
    delta = draw_shifts(sample, rng)
    total = sample.values["sum"][:, None] + delta
    assert (delta != 0).all()
    assert ((total >= 0) & (total <= 254)).all()
    assert np.array_equal(shifted_bits(sample, delta, "value"), total >> np.arange(8) & 1)
    # A remainder machine keeps its prefix: shifted by 2^t it gives the other bit, by 2^(t+1) the same one.
    for power, flips in ((0, 1), (1, 0)):
        step = np.tile(2 ** (np.arange(8) + power), (500, 1))
        assert np.array_equal(shifted_bits(sample, step, "remainder"), sample.values["answer"] ^ flips)


NOTHING, TWO_STATES, TOTAL = ((1, 0, 0, 0, 0), (0, 1, 0, 0, 0), (0, 0, 0, 1, 0))


@pytest.mark.parametrize(
    ("name", "flips"), [("graded_carry", {TWO_STATES, TOTAL}), ("prefix_carry", {TOTAL}), ("erd", set())]
)
def test_beyond_its_range_a_carry_of_two_states_flips_a_bit_once_and_a_total_three_times(name, flips) -> None:
    """``graded_carry`` cuts its number to a carry of two states, and adds that to a_t and b_t one layer later."""
    model = Hooked(reference(name, 1).network, task=TASK)
    sites = [f"dec.{n}{inside}" for n in (4, 5) for inside in (".resid_mid_cross", "")]
    found = []
    for site in sites:
        carry, total, *turns, _ = (row.value for row in steer_beyond(model, {4: site}, count=96, fitted=256))
        found.append(tuple(turns))
        assert (carry, total) == (tuple(turns) == TOTAL, 0)
    assert set(found) - {NOTHING} == flips


@pytest.mark.slow
@pytest.mark.parametrize("name", ["erd", "prefix_carry_decoy", "lookahead_carry", "mixed", *POST_HOC])
def test_references_get_their_own_name_or_none_if_they_were_written_afterwards(name: str) -> None:
    found = measure(Hooked(reference(name, 3).network, task=TASK), pairs=64, steered=96)
    assert found.accuracy == 1
    verdict = decide(found, EXPECTED)
    assert verdict.name == ("none" if name in POST_HOC else name.removesuffix("_decoy"))
    if name in POST_HOC:
        assert [other for other, distance in verdict.post_hoc.items() if distance <= NEAR] == [name]


@pytest.mark.parametrize("steps", [0, 20])
def test_networks_untrained_or_trained_on_random_output_run_no_algorithm(steps: int) -> None:
    """Trained ones answer with bits, unlike untrained ones, but at chance."""
    examples = RandomOutput(7).examples()
    prompt, completion = torch.from_numpy(examples.prompt), torch.from_numpy(examples.completion)
    torch.manual_seed(0)
    network = Transformer(15, 8, num_layers=1).eval()  # in evaluation mode, so without dropout
    weights = list(network.parameters())
    for _ in range(steps):
        batch = torch.randint(len(prompt), (32,))
        logits = network(prompt[batch], shift_right(completion[batch]))
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), completion[batch].flatten())
        for weight, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True):
            weight.data -= 0.003 * gradient.sign()
    tokens = network(prompt[:64], shift_right(completion[:64])).argmax(dim=-1)
    assert bool(((tokens == ZERO) | (tokens == ONE)).all()) == bool(steps)
    verdict = decide(measure(Hooked(network, task=TASK), pairs=64, steered=64), EXPECTED)
    assert verdict.name == "none"
    assert verdict.reasons[0].endswith("of the examples right, fewer than 95%")


@pytest.mark.parametrize(
    ("make", "task", "calibrated"),
    [
        (Transformer, Add(7), True),
        (partial(Transformer, num_layers=1), Add(7), False),
        (Transformer, Add(7, prompt_order="plain"), False),
        (Transformer, Add(5), False),
        (Transformer, Mul(7), False),
        (NanoGPT, Add(7), False),
    ],
)
def test_verdict_is_calibrated_only_where_references_exist(make, task: Task, calibrated: bool) -> None:
    assert is_calibrated(make(task.prompt_length, task.width), task) == calibrated
