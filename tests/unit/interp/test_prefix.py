"""What wrong prefixes do to networks that read them in a known way."""

import numpy as np
import pytest

from arith_erd.interp.causal import CausalTask
from arith_erd.interp.prefix import INTERVENTIONS, distance, hypotheses, read_prefixes, strata
from arith_erd.tasks import Add, Mul
from tests.unit.interp.toys import FromLastToken, FromPrompt

TASK = Add(3)
PAIRS = CausalTask(TASK)


def test_network_reading_only_the_prompt_ignores_the_prefix():
    readings = read_prefixes(FromPrompt(TASK), PAIRS)
    assert (readings.clean == PAIRS.examples.completion).all()
    for reading in readings.changed:
        assert (reading.tokens == readings.clean[:, reading.position]).all()


def test_prefix_carry_follows_a_wrong_last_token_only_where_a_carry_propagates():
    readings = read_prefixes(FromLastToken(TASK), PAIRS)
    assert (readings.clean == PAIRS.examples.completion).all()
    for reading in readings.changed:
        changed = reading.tokens != readings.clean[:, reading.position]
        cells = strata(PAIRS, reading.position)
        if reading.intervention == "flip":
            assert changed[cells["propagate"]].all()
            assert not changed[cells["settled"]].any()
        if reading.intervention == "far":
            assert not changed.any()
        if reading.prefix is not None:
            bits = hypotheses(PAIRS, reading.prefix)["local_carry"]
            assert (reading.tokens - 3 == bits).all()


def test_every_intervention_is_read_at_every_position_it_can_be():
    readings = read_prefixes(FromPrompt(TASK), PAIRS, draws=2).changed
    counts = {(t, i): 0 for t in (1, 2, 3) for i in INTERVENTIONS}
    for reading in readings:
        counts[reading.position, reading.intervention] += 1
    assert counts == {(t, i): {"far": t - 1, "random": 2}.get(i, 1) for t in (1, 2, 3) for i in INTERVENTIONS}


def test_prefixes_are_those_that_were_given():
    for reading in read_prefixes(FromPrompt(TASK), PAIRS).changed:
        if reading.prefix is None:
            continue
        assert reading.prefix.shape == (64, reading.position)
        wrong = reading.prefix != PAIRS.values["answer"][:, : reading.position]
        if reading.intervention == "flip":
            assert wrong[:, -1].all()
            assert not wrong[:, :-1].any()
        if reading.intervention == "far":
            assert (wrong.sum(axis=1) == 1).all()
            assert not wrong[:, -1].any()


def test_inverting_the_last_token_is_off_by_one_half():
    (flip,) = (r for r in read_prefixes(FromPrompt(TASK), PAIRS).changed if (r.position, r.intervention) == (2, "flip"))
    assert (np.abs(distance(PAIRS, flip.prefix)) == 0.5).all()
    assert (hypotheses(PAIRS, flip.prefix)["remainder"] == -1).all()


def test_remainder_is_the_parity_of_what_is_left_rounded():
    generator = np.random.default_rng(0)
    for t in (1, 2, 3):
        prefix = generator.integers(2, size=(64, t))
        given = prefix @ (1 << np.arange(t))
        left = (PAIRS.examples.answer - given) / 2**t
        expected = np.where(np.abs(left % 1 - 0.5) < 1e-9, -1, np.floor(left + 0.5).astype(int) % 2)
        assert (hypotheses(PAIRS, prefix)["remainder"] == expected).all()


def test_numbers_that_the_lower_bits_leave_are_held_in_the_range_of_right_prefixes():
    """From the operands' bits alone; `hypotheses` gets there from the right carry and the error of the prefix."""
    generator = np.random.default_rng(0)
    pairs = CausalTask(Add(5))
    a, b = pairs.a, pairs.b
    outside = set()
    for t in range(1, 6):
        prefix = generator.integers(2, size=(len(a), t))
        given = prefix @ (1 << np.arange(t))
        carry = (a % 2**t + b % 2**t - given) / 2**t
        total = (a % 2 ** (t + 1) + b % 2 ** (t + 1) - given) / 2**t
        tie = carry % 1 == 0.5
        found = hypotheses(pairs, prefix)
        graded = ((a >> t) + (b >> t) + (carry > 0.5)) % 2
        assert (found["graded_carry"] == np.where(tie, -1, graded)).all()
        held = np.minimum(np.maximum(np.floor(total + 0.5), 0), 1 if t == 5 else 3).astype(int)
        assert (found["local_remainder"] == np.where(tie, -1, held % 2)).all()
        if t < 5:
            outside |= set(np.floor(total + 0.5)[~tie]) - {0.0, 1.0, 2.0, 3.0}
    assert outside == {-1.0, 4.0}


def test_product_has_no_carry_to_be_read_and_no_strata():
    pairs = CausalTask(Mul(3))
    assert set(strata(pairs, 2)) == {"all"}
    assert set(hypotheses(pairs, np.zeros((64, 2), dtype=np.int64))) == {"prompt_only", "remainder"}


@pytest.mark.parametrize("seed", [0, 1])
def test_random_prefixes_are_a_function_of_the_seed(seed):
    first, second = ([r.prefix for r in read_prefixes(FromPrompt(TASK), PAIRS, seed=s).changed] for s in (0, seed))
    same = all(np.array_equal(x, y) for x, y in zip(first, second, strict=True) if x is not None and y is not None)
    assert same == (seed == 0)
