"""Signatures and verdicts, on ideal signatures and on networks whose algorithm is known."""

import numpy as np
import pytest

from arith_erd.interp.algorithms import ALGORITHMS, POST_HOC
from arith_erd.interp.causal_model import CausalModel
from arith_erd.interp.hooked import Hooked
from arith_erd.mechanism.signature import (
    COMPONENTS,
    MeasuredSignature,
    Signature,
    expected_signatures,
    measure_signature,
)
from arith_erd.mechanism.verdict import MAX_DISTANCE, classify, is_calibrated
from arith_erd.models import NanoGPT, Transformer
from arith_erd.models.handcoded import write_network
from arith_erd.tasks import Add

TASK = Add()
EXPECTED = expected_signatures(TASK)
HALF, NOTHING = np.full(8, 0.5), np.zeros(8)
BROKEN = dict.fromkeys(("flip_propagate", "flip_settled"), HALF)  # ties, broken at random


def ideal(name: str, **changes: np.ndarray) -> MeasuredSignature:
    """The signature of an ideal network, with some components replaced."""
    return MeasuredSignature(1.0, EXPECTED[name] | changes)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_ideal_signatures_get_their_own_name_and_post_hoc_algorithms_none(name: str) -> None:
    classification = classify(ideal(name, **BROKEN if name in POST_HOC else {}), EXPECTED)
    if name in POST_HOC:
        assert (classification.verdict, classification.post_hoc[name]) == ("none", 0)
        assert classification.distance > MAX_DISTANCE
        assert classification.fits_later == (name,)
    else:
        assert (classification.verdict, classification.distance) == (name, 0)


def test_signatures_that_change_at_a_bit_are_mixed() -> None:
    low, high = EXPECTED["prefix_carry"], EXPECTED["erd"]
    mixed = {x: np.where(np.arange(8) < 4, low[x], high[x]) for x in COMPONENTS}
    classification = classify(ideal("erd", **mixed), EXPECTED)
    assert (classification.verdict, classification.nearest) == ("mixed", "prefix_carry below bit 4, erd from there")


def test_prefixes_of_one_algorithm_and_steering_of_another_are_none() -> None:
    carry = {name: EXPECTED["prefix_carry"][name] for name in ("carry", "value", "value_of_remainder")}
    classification = classify(ideal("remainder", **BROKEN, **carry), EXPECTED)
    assert classification.verdict == "none"
    assert classification.reasons[0].startswith("from the prefix test only, the nearest is remainder")


def test_no_effect_of_steering_is_undecided_and_wrong_answers_are_none() -> None:
    no_steering = dict.fromkeys(("value", "value_of_remainder", "carry"), NOTHING)
    assert classify(ideal("erd", **no_steering), EXPECTED).verdict == "undecided"
    classification = classify(MeasuredSignature(0.9, EXPECTED["erd"]), EXPECTED)
    assert classification.verdict == "none"
    assert classification.reasons == ["answers 90.0% of the examples right, fewer than 95%"]


def my_model(task: Add) -> CausalModel:
    """A user's model: a carry is the rounded difference of the operands' lower bits and the prefix."""
    place = 2 ** np.arange(task.width)

    def carry(a: np.ndarray, b: np.ndarray, prefix: np.ndarray) -> np.ndarray:
        return (a[:, None] % place + b[:, None] % place - prefix[:, None] % place) * 2 > place

    xor = {"xor": lambda a, b: (a ^ b)[:, None] >> np.arange(task.width) & 1}
    answer = {"prefix": lambda a, b: a + b, "carry": carry, "answer": lambda xor, carry: xor ^ carry}
    return CausalModel(task, xor | answer)


@pytest.mark.slow
def test_own_causal_model_wins_on_a_network_that_runs_it_and_on_no_other() -> None:
    mine = my_model(TASK)
    expected = expected_signatures(TASK, mine)
    for name, verdict in (("graded_carry", "user_model"), ("prefix_carry", "prefix_carry"), ("erd", "erd")):
        model = Hooked(write_network(name, 3).network, task=TASK)
        found = classify(measure_signature(model, num_examples=128, num_steered=64, causal_model=mine), expected)
        assert found.verdict == verdict, (name, found)
    assert classify(MeasuredSignature(1.0, EXPECTED["erd"]), expected).verdict == "erd"


def test_own_variables_of_other_shapes_are_not_steered() -> None:
    """They change nothing, as variables that a model lacks."""
    own = {"carry": lambda a, b: a & b, "sum": lambda a, b: (a + b)[:, None] >> np.arange(TASK.width) & 1}
    mine = CausalModel(TASK, {"prefix": lambda a, b: a + b, **own, "answer": lambda sum: sum})
    found = expected_signatures(TASK, mine)["user_model"]
    assert np.nanmax(found["carry"]) == np.nanmax(found["value"]) == 0


@pytest.fixture(scope="module")
def with_mine() -> dict[str, Signature]:
    """The expected signatures, if a user's causal model is one of ours."""
    return expected_signatures(TASK, ALGORITHMS["prefix_carry"].causal_model(TASK))


def test_own_causal_model_that_is_only_just_nearer_than_ours_is_undecided(with_mine) -> None:
    pure, other = with_mine["user_model"], EXPECTED["erd"]  # prefix_carry's, with a component that only mine has
    for share in np.linspace(0.2, 0.4, 101):
        blurred = {x: (1 - share) * pure[x] + share * other[x] for x in COMPONENTS}
        found = classify(MeasuredSignature(1.0, {**pure, **blurred}), with_mine)
        if found.distances["user_model"] <= MAX_DISTANCE < found.distances["prefix_carry"]:
            assert (found.verdict, found.nearest) == ("undecided", "user_model")
            return
    pytest.fail("no share lies between the two distances")


def test_own_causal_model_that_equals_ours_does_not_change_the_verdict(with_mine) -> None:
    found = classify(MeasuredSignature(1.0, with_mine["user_model"]), with_mine)
    assert (found.verdict, found.distance) == ("prefix_carry", 0)
    assert found.reasons == ["user_model is as near as prefix_carry; the tests do not distinguish them"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["prefix_carry_decoy", "mixed"])
def test_handcoded_decoy_gets_the_name_of_what_it_runs_and_a_mixture_its_own(name: str) -> None:
    """``tests/behaviour/test_first_answer.py`` asks the network of each algorithm."""
    found = measure_signature(Hooked(write_network(name, 3).network, task=TASK), num_examples=64, num_steered=32)
    assert (found.accuracy, classify(found, EXPECTED).verdict) == (1, name.removesuffix("_decoy"))


def test_verdict_is_calibrated_only_where_handcoded_networks_exist() -> None:
    sizes = TASK.prompt_length, TASK.width
    assert is_calibrated(Transformer(*sizes), TASK)
    for network, task in (
        (Transformer(*sizes, num_layers=1), TASK),
        (Transformer(11, 6), Add(5)),
        (NanoGPT(*sizes), TASK),
        (Transformer(14, 8), Add(interleaved=True)),
    ):
        assert not is_calibrated(network, task)
