"""Formats and lengths: every token says what its name says, and a sample is what it promises."""

import numpy as np
import pytest

from arith_erd.bits import OPERATOR, PAD, ZERO
from arith_erd.errors import UserError
from arith_erd.tasks import Add, Add3, AddScratchpad, Mul, Sub

FORMATS = [
    Add(3),
    Add(3, "plain", "plain"),
    Add(2, base=10),
    Add3(2),
    Add(3, interleaved=True),
    Mul(3, "plain", interleaved=True),
    AddScratchpad(3),
    AddScratchpad(3, completion_order="plain"),
    Add(4, min_bits=1),
    Sub(4, min_bits=2, interleaved=True),
]


def digit(number, place, base):
    return int(number) // base**place % base


@pytest.mark.parametrize("task", FORMATS, ids=lambda task: f"{task.name} {' '.join(task.prompt_names)}")
def test_each_token_is_the_digit_that_its_name_says(task):
    examples = task.sample(40)
    assert (task.prompt_length, task.answer_length) == (examples.prompt.shape[1], examples.completion.shape[1])
    for operands, answer, length, prompt, completion in zip(
        examples.operands, examples.answer, examples.length, examples.prompt, examples.completion, strict=True
    ):
        for name, token in zip(task.prompt_names, prompt, strict=True):
            if name.startswith(task.operator):
                assert token == OPERATOR
            else:
                number = operands["abc".index(name[0])]
                shown = ZERO + digit(number, int(name[1:]), task.base) if int(name[1:]) < length else PAD
                assert token == shown
        results = [(int(n[1:]), t) for n, t in zip(task.answer_names, completion, strict=True) if n[0] == "r"]
        assert all(t in (PAD, ZERO + digit(answer, place, task.base)) for place, t in results)
        assert sum(t != PAD for _, t in results) == task.width - (task.bits - length)
    np.testing.assert_array_equal(task.decode(examples.completion), examples.answer)
    names = task.answer_names
    assert [names[i] for i in task.answer_positions] == [f"r{i}" for i in range(task.width)]


def test_interleaved_operands_alternate():
    assert Add(2, interleaved=True).prompt_names == ["a0", "b0", "a1", "b1"]
    assert Add3(2, "plain", interleaved=True).prompt_names == ["a1", "b1", "c1", "a0", "b0", "c0"]


def test_scratchpad_has_the_carries_first():
    task = AddScratchpad(3)
    assert task.answer_names == ["c1", "c2", "c3", "r0", "r1", "r2", "r3"]
    examples = task.examples()
    carry = examples.completion[:, :3] - ZERO
    both = [(examples.a >> t) + (examples.b >> t) for t in range(4)]
    digits = np.stack([(examples.answer >> t) & 1 for t in range(4)], axis=1)
    xor = np.stack([x & 1 for x in both], axis=1)
    np.testing.assert_array_equal(carry, (digits ^ xor)[:, 1:])  # what enters a bit is what its own sum lacks


@pytest.mark.parametrize("length", [0, 3, 1.5, [1, 2, 3], 1])
def test_lengths_that_do_not_hold_the_operands_are_refused(length) -> None:
    task = Add(2, min_bits=1)
    with pytest.raises(UserError, match=r"^length=\[?.*: expected 1 to 2, enough for the operands"):
        task.examples([1, 2, 0], 1, length=length)


def test_sample_has_different_examples_an_equal_share_of_each_length_or_all_that_there_are():
    examples = Add(14, min_bits=1).sample(14000)
    assert len({(n, *pair) for n, pair in zip(examples.length, map(tuple, examples.operands), strict=True)}) == len(
        examples
    )
    counts = dict(zip(*np.unique(examples.length, return_counts=True), strict=True))
    assert counts == {n: min(4**n, 1000) for n in range(1, 15)}
    assert all((examples.operands < 2 ** examples.length[:, None]).all(axis=1))
    np.testing.assert_array_equal(Add(14, min_bits=1).sample(14000).operands, examples.operands)
    assert not np.array_equal(Add(14, min_bits=1).sample(14000, seed=1).operands, examples.operands)


def test_table_that_is_too_large_to_list_gives_a_sample():
    assert Add(9).enumerable
    assert not Add(10).enumerable
    assert len(Add(9).examples()) == 2**18
    examples = Add(31).examples()
    assert len(examples) == 4096
    assert examples.answer.max() > 2**31
    np.testing.assert_array_equal(Add(31).decode(examples.completion), examples.a + examples.b)


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        (Add, {"min_bits": 5}, "task.min_bits=5: expected an integer from 1 to 4"),
        (Add, {"interleaved": 1}, "task.interleaved=1: expected true or false"),
        (Add, {"min_bits": 2, "completion_order": "plain"}, "min_bits=2: expected null, unless the answer begins with"),
        (AddScratchpad, {"min_bits": 2}, "unless the answer begins with its lowest digit"),
    ],
)
def test_bad_formats_are_refused(task, options, message):
    with pytest.raises(UserError, match=message):
        task(4, **options)
