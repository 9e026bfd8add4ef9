"""Splits hold out the paper's regions, as functions of the operands only."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arith_erd.errors import UserError
from arith_erd.splits import LengthSplit, RandomSplit, TokenSplit, ValueSplit
from arith_erd.tasks import Add, Add3, ModAdd, Mul, RandomOutput

SPLITS = {"random": RandomSplit(), "vs_t": TokenSplit(), "vs_v": ValueSplit()}


@pytest.mark.parametrize("name", SPLITS)
def test_split_depends_only_on_the_operands(name):
    """Neither the bit order that the model sees nor the task moves an example across."""
    expected = SPLITS[name](Add(3).examples())
    for task in (Add(3, "plain", "plain"), Add(3, "plain"), Mul(3), RandomOutput(3, seed=4)):
        np.testing.assert_array_equal(SPLITS[name](task.examples()), expected)


def slow_ball(bits: int) -> tuple[set[tuple[int, int]], Counter[int]]:
    """The ball by sorting strings, and how many of its members lie at each distance."""
    centroid = "".join("10"[i % 2] for i in range(2 * bits))

    def rank(pair: tuple[int, int]) -> tuple[int, str]:
        a, b = (format(x, f"0{bits}b")[::-1] for x in pair)
        return sum(c != d for c, d in zip(a + b, centroid, strict=True)), f"{a}+{b}"

    pairs = [(a, b) for a in range(2**bits) for b in range(2**bits)]
    members = sorted(pairs, key=rank)[: len(pairs) // 4]
    return set(members), Counter(rank(pair)[0] for pair in members)


@pytest.mark.parametrize("bits", range(2, 8))
def test_vs_t_breaks_ties_by_the_reversed_bit_prompt_and_has_the_published_distances(bits):
    members, distances = slow_ball(bits)
    examples = Add(bits).examples()
    assert set(map(tuple, examples.operands[TokenSplit()(examples)].tolist())) == members
    if bits == 7:
        assert distances == {0: 1, 1: 14, 2: 91, 3: 364, 4: 1001, 5: 2002, 6: 623}


@pytest.mark.parametrize(
    ("task", "low", "high", "held_out"),
    [
        *((Add(n), 2**n // 4, 3 * 2**n // 4, 4 ** (n - 1)) for n in (2, 3, 7)),
        (Add(2, base=10), 25, 75, 50**2),
        (Add3(2), 1, 3, 2**3),
        (ModAdd(modulus=97), 24, 72, 48**2),
    ],
)
def test_vs_v_is_the_central_box_of_all_operands(task, low, high, held_out):
    examples = task.examples()
    expected = [all(low <= x < high for x in operands) for operands in examples.operands.tolist()]
    assert ValueSplit()(examples).tolist() == expected
    assert sum(expected) == held_out


@given(st.floats(0, 1, exclude_min=True, exclude_max=True), st.integers(2, 5), st.integers(0, 2**40))
def test_random_holds_out_its_fraction_and_empties_neither_side(fraction, bits, seed):
    held_out = RandomSplit(fraction, seed)(Add(bits).examples())
    assert abs(held_out.sum() - fraction * 4**bits) <= 1
    assert 0 < held_out.sum() < 4**bits


def test_random_split_depends_on_its_seed():
    one, again, other = (RandomSplit(seed=seed)(Add(7).examples()) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert abs((one & other).mean() - 1 / 16) < 0.01  # two random quarters share a quarter of a quarter


LENGTHS = Add(8, min_bits=1).sample(10)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RandomSplit("0.25"), r"split\.fraction=0\.25: "),  # more in ``tests/unit/config/test_refusals.py``
        (lambda: TokenSplit()(Add(2, base=10).examples()), r"task\.base=10: split=vs_t needs bits; .* task\.base=2$"),
        *((lambda n=n: LengthSplit(n)(LENGTHS), rf"split\.trained={n}: ") for n in (0, 8)),
        (lambda: LengthSplit(3, fraction=1), r"split\.fraction=1: "),
    ],
)
def test_impossible_splits_are_refused(make, message):
    with pytest.raises(UserError, match=f"^{message}"):
        make()


def test_length_split_holds_out_longer_operands_and_a_part_of_the_others():
    examples = Add(8, min_bits=1).sample(4000)
    held_out = LengthSplit(5, fraction=0.2)(examples)
    assert held_out[examples.length > 5].all()
    assert held_out[examples.length <= 5].mean() == pytest.approx(0.2, abs=0.03)
    np.testing.assert_array_equal(LengthSplit(5, fraction=0)(examples), examples.length > 5)
    assert not np.array_equal(LengthSplit(5, fraction=0.2, seed=1)(examples), held_out)
