"""Tokens equal those made with Python's own arithmetic and ``format(x, "b")``."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arith_erd.bits import ORDERS, decode_completion, render
from arith_erd.errors import UserError
from arith_erd.tasks import Add, Mul, RandomOutput

TASKS = (Add, Mul, RandomOutput)
WIDTHS = range(2, 10)


def written(value: int, width: int, order: str) -> str:
    text = format(value, f"0{width}b")
    assert len(text) == width, "more bits than the completion has"
    return text[::-1] if order == "reverse" else text


def expected_row(task, a: int, b: int) -> tuple[str, str]:
    prompt = written(a, task.bits, task.prompt_order) + task.operator + written(b, task.bits, task.prompt_order)
    if isinstance(task, Add):
        answer, width = a + b, task.bits + 1
    elif isinstance(task, Mul):
        answer, width = a * b, 2 * task.bits
    else:
        answer, width = int(task.answer(a, b)), task.bits + 1
    return prompt, written(answer, width, task.completion_order)


def rows(task, examples) -> list[tuple[str, str]]:
    return list(zip(render(examples.prompt, task.operator), render(examples.completion), strict=True))


@st.composite
def tasks_with_pairs(draw):
    task = draw(st.sampled_from(TASKS))(
        draw(st.sampled_from(WIDTHS)), draw(st.sampled_from(ORDERS)), draw(st.sampled_from(ORDERS))
    )
    operand = st.integers(0, 2**task.bits - 1)
    return task, draw(st.lists(st.tuples(operand, operand), min_size=1, max_size=20))


@given(tasks_with_pairs())
def test_examples_of_given_pairs_match_python_arithmetic(case):
    task, pairs = case
    assert rows(task, task.examples(*zip(*pairs, strict=True))) == [expected_row(task, a, b) for a, b in pairs]


@pytest.mark.parametrize("task_class", TASKS)
@pytest.mark.parametrize(("prompt_order", "completion_order"), list(itertools.product(ORDERS, ORDERS)))
@pytest.mark.parametrize("bits", [2, 3, 7])
def test_whole_table_matches_python_arithmetic(task_class, bits, prompt_order, completion_order):
    task = task_class(bits, prompt_order, completion_order)
    pairs = itertools.product(range(2**bits), repeat=2)
    assert rows(task, task.examples()) == [expected_row(task, a, b) for a, b in pairs]


@pytest.mark.parametrize("task_class", TASKS)
@pytest.mark.parametrize("bits", WIDTHS)
def test_table_contains_each_pair_once(task_class, bits):
    task = task_class(bits)
    examples = task.examples()
    assert len(examples) == 4**bits
    assert len(set(zip(examples.a.tolist(), examples.b.tolist(), strict=True))) == 4**bits
    assert examples.prompt.shape == (4**bits, task.prompt_length)
    assert examples.completion.shape == (4**bits, task.width)
    np.testing.assert_array_equal(examples.answer, task.answer(examples.a, examples.b))


@given(tasks_with_pairs())
def test_decode_inverts_the_completion(case):
    task, pairs = case
    examples = task.examples(*zip(*pairs, strict=True))
    np.testing.assert_array_equal(task.decode(examples.completion), examples.answer)
    np.testing.assert_array_equal(decode_completion(examples.completion, task.completion_order), examples.answer)


def ripple(a: int, b: int, bits: int) -> list[int]:
    """Carries as a chain of full adders finds them, one bit at a time."""
    carry, carries = 0, []
    for i in range(bits):
        carry = ((a >> i & 1) + (b >> i & 1) + carry) >> 1
        carries.append(carry)
    return carries


@pytest.mark.parametrize("bits", [2, 5, 7])
def test_carries_equal_those_of_a_ripple_carry_adder(bits):
    examples = Add(bits).examples()
    pairs = zip(examples.a.tolist(), examples.b.tolist(), strict=True)
    assert Add(bits).carries(examples.a, examples.b).tolist() == [ripple(a, b, bits) for a, b in pairs]


def test_last_carry_is_the_top_bit_of_the_sum():
    concepts = Add(7).concepts(*np.divmod(np.arange(4**7), 2**7))
    np.testing.assert_array_equal(concepts["carries"][:, -1], concepts["completion_bits"][:, -1])


@given(tasks_with_pairs())
def test_concepts(case):
    task, pairs = case
    a, b = (np.array(x) for x in zip(*pairs, strict=True))
    concepts = task.concepts(a, b)
    answers = [int(task.answer(x, y)) for x, y in pairs]
    assert tuple(concepts) == task.concept_names
    assert set(concepts) == {"value", "completion_bits", "operand_bits", "operand_values"} | (
        {"carries"} if isinstance(task, Add) else set()
    )
    assert concepts["value"].tolist() == [[x] for x in answers]
    assert concepts["operand_values"].tolist() == [list(pair) for pair in pairs]
    # Concepts do not depend on the order in which the model sees bits: least significant first, always.
    assert concepts["completion_bits"].tolist() == [
        [int(c) for c in written(x, task.width, "reverse")] for x in answers
    ]
    assert concepts["operand_bits"].tolist() == [
        [int(c) for x in pair for c in written(x, task.bits, "reverse")] for pair in pairs
    ]


@pytest.mark.parametrize("bits", WIDTHS)
def test_random_answers_span_the_range_of_sums(bits):
    answers = RandomOutput(bits).examples().answer
    assert answers.min() >= 0
    assert answers.max() <= 2 * (2**bits - 1)
    if bits >= 5:  # from here on the table is large enough for every sum to be drawn
        assert set(answers.tolist()) == set(range(2 * (2**bits - 1) + 1))


def test_random_answers_are_uniform_and_independent_of_the_operands():
    examples = RandomOutput(7).examples()
    expected = len(examples) / 255
    chi_square = ((np.bincount(examples.answer, minlength=255) - expected) ** 2 / expected).sum()
    assert abs(chi_square - 254) < 5 * (2 * 254) ** 0.5
    for operand in (examples.a, examples.b, examples.a + examples.b):
        assert abs(np.corrcoef(operand, examples.answer)[0, 1]) < 5 / len(examples) ** 0.5


def test_random_table_depends_on_its_seed():
    tables = [RandomOutput(7, seed=seed).examples().answer for seed in (0, 0, 1)]
    np.testing.assert_array_equal(tables[0], tables[1])
    assert (tables[0] != tables[2]).mean() > 0.9


def test_random_output_uses_the_prompts_of_addition():
    np.testing.assert_array_equal(RandomOutput(5).examples().prompt, Add(5).examples().prompt)


@pytest.mark.parametrize("task_class", TASKS)
@pytest.mark.parametrize("bits", [1, 10, 0, -7, 7.0, "7", None, True])
def test_bad_width_is_refused(task_class, bits):
    with pytest.raises(UserError, match=rf"^task\.bits={bits}: expected an integer from 2 to 9$"):
        task_class(bits)


@pytest.mark.parametrize("key", ["prompt_order", "completion_order"])
@pytest.mark.parametrize("order", ["", "Plain", "backwards", None, True, 1])
def test_bad_order_is_refused(key, order):
    with pytest.raises(UserError, match=rf"^task\.{key}={order}: expected reverse or plain$"):
        Add(**{key: order})


@pytest.mark.parametrize("seed", [-1, 1.5, "0", None, True])
def test_bad_table_seed_is_refused(seed):
    with pytest.raises(UserError, match=rf"^task\.seed={seed}: expected "):
        RandomOutput(seed=seed)
