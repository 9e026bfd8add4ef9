"""Every token is what Python's own arithmetic and the token's name say, in every base, order, length and format."""

import itertools
import math
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arith_erd.digits import ONE, OPERATOR, ORDERS, PAD, START, ZERO, render, to_digits
from arith_erd.errors import UserError
from arith_erd.splits import RandomSplit
from arith_erd.tasks import Add, Add3, AddScratchpad, ModAdd, Mul, RandomOutput, Sub, Task


class Square(Task):
    """A task of one operand."""

    name, operator, num_operands = "square", "", 1

    @property
    def width(self):
        return 2 * self.bits

    def answer(self, a):
        return np.square(a, dtype=np.int64)


TASKS = (Add, Mul, RandomOutput, Add3, Sub, ModAdd, Square)
ANSWERS = {  # by Python's integers
    "add": lambda task, a, b: a + b,
    "add3": lambda task, a, b, c: a + b + c,
    "mul": lambda task, a, b: a * b,
    "sub": lambda task, a, b: abs(a - b),
    "mod_add": lambda task, a, b: (a + b) % task.modulus,
    "square": lambda task, a: a**2,
    "random_output": lambda task, a, b: int(task.answer(a, b)),
}


def written(value: int, width: int, order: str, base: int = 2) -> str:
    text = np.base_repr(value, base).lower().zfill(width)
    assert len(text) == width, "more digits than the completion has"
    return text[::-1] if order == "reverse" else text


def expected_row(task: Task, *operands: int) -> tuple[str, str]:
    prompt = task.operator.join(written(x, task.bits, task.prompt_order, task.base) for x in operands)
    answer = ANSWERS[task.name](task, *operands)
    return prompt, written(answer, task.width, task.completion_order, task.base)


def rows(task, examples) -> list[tuple[str, str]]:
    return list(zip(render(examples.prompt, task.operator), render(examples.completion), strict=True))


@st.composite
def any_tasks(draw, classes=TASKS):
    task_class, base = draw(st.sampled_from(classes)), draw(st.integers(2, 16))
    most = max(n for n in range(1, 7) if base ** (n * task_class.num_operands) < 2**20)
    bits = draw(st.integers(2 if base == 2 else 1, most))
    options = {"modulus": draw(st.integers(2, base**bits))} if task_class is ModAdd else {}
    if task_class is RandomOutput and base ** (2 * bits) > 2**14:
        bits = 1 if base > 2 else 2
    return task_class(bits, draw(st.sampled_from(ORDERS)), draw(st.sampled_from(ORDERS)), base=base, **options)


@st.composite
def tasks_with_operands(draw):
    task = draw(any_tasks())
    operand = st.integers(0, task.limit - 1)
    return task, draw(st.lists(st.tuples(*[operand] * task.num_operands), min_size=1, max_size=20))


@given(tasks_with_operands())
def test_rows_hold_the_digits_of_any_operands_and_decode_to_their_answers(case):
    task, operands = case
    examples = task.examples(*zip(*operands, strict=True))
    assert rows(task, examples) == [expected_row(task, *row) for row in operands]
    assert max(examples.prompt.max(), examples.completion.max()) < task.vocab_size
    np.testing.assert_array_equal(task.decode(examples.completion), examples.answer)


@given(any_tasks())
def test_table_holds_every_combination_once_first_operand_slowest(task):
    shape = (task.limit,) * task.num_operands
    assert (task.shape, task.size) == (shape, math.prod(shape))
    if task.size <= 1024:  # the order is the same at every size
        operands = itertools.product(range(task.limit), repeat=task.num_operands)
        assert task.examples().operands.tolist() == [list(row) for row in operands]


def ripple(operands: tuple[int, ...], bits: int, base: int) -> list[int]:
    """Carries as one finds them by hand, one digit at a time."""
    carry, carries = 0, []
    for i in range(bits):
        carry = (sum(x // base**i % base for x in operands) + carry) // base
        carries.append(carry)
    return carries


@given(any_tasks([Add, Add3]), st.data())
def test_carries_are_those_of_a_ripple_adder(task, data):
    operand = st.integers(0, task.limit - 1)
    operands = data.draw(st.lists(st.tuples(*[operand] * task.num_operands), min_size=1, max_size=20))
    found = task.carries(*np.array(operands).T)
    by_hand = [ripple(row, task.bits, task.base) for row in operands]
    assert found.tolist() == by_hand
    runs = ["".join("01"[carry > 0] for carry in carries).split("0") for carries in by_hand]
    examples = task.examples(*zip(*operands, strict=True))
    assert task.slices(examples)["longest_carry"].tolist() == [len(max(run)) for run in runs]


def square(answer) -> type[Square]:
    return type("Other", (Square,), {"answer": answer})


class Narrow(Square):
    width = 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        *((lambda x=x: Add(x), rf"task\.bits={x!r}: expected an integer from 2 to 31") for x in (1, 32, 7.0, "7")),
        (lambda: Add(True), r"task\.bits=true: expected an integer from 2 to 31"),
        *((lambda x=x: Mul(base=x), rf"task\.base={x}: expected an integer from 2 to 16$") for x in (1, 17)),
        *((lambda x=x: Add(3).examples([x], [1]), rf"a=\[{x}\]: expected integers from 0 to 7") for x in (8, 3.5)),
        (lambda: Add(3).examples([[1, 2]], [[3, 4]]), r"add: received operands of shapes \(1, 2\), \(1, 2\)"),
        (lambda: Add(3).examples([1, 2, 3], [5, 6]), r"add: .* shapes \(3,\), \(2,\); expected 2 vectors"),
        (
            lambda: square(lambda self, a: a[:1])(3).examples(),
            r"task=square: answer .* shape \(1,\); .* of the 8 answers",
        ),
        (lambda: Narrow(3).examples(), r"task=square: answers from 0 to 49; expected integers from 0 to 7, as width=3"),
        (lambda: square(lambda self, a: a / 2)(3).examples(), r"task=square: answers from 0.0 to 3.5; .* width=6"),
        (lambda: Add(3).concepts([100], [2]), r"a=\[100\]: expected integers from 0 to 7"),
        (lambda: Add(3).examples(3, -1), r"b=\[-1\]: expected integers from 0 to 7"),
        *(
            (lambda x=x: Add(2, min_bits=1).examples([1, 2, 0], 1, length=x), r"length=\[?.*: expected 1 to 2, enough")
            for x in (0, 3, 1.5, [1, 2, 3], 1)
        ),
        (lambda: Add(4, min_bits=5), r"task\.min_bits=5: expected an integer from 1 to 4"),
        (lambda: Add(4, interleaved=1), r"task\.interleaved=1: expected true or false"),
        (lambda: Add(4, "reverse", "plain", min_bits=2), r".*min_bits=2: expected null, unless the answer begins with"),
        (lambda: AddScratchpad(4, min_bits=2), ".*unless the answer begins with its lowest digit"),
        (lambda: ModAdd(10, modulus=1024), r"task\.modulus=1024: expected an integer from 2 to 1023$"),
        (lambda: RandomOutput(10), "task=random_output: 1,048,576 examples; a table of random answers needs .* fewer"),
    ],
)
def test_bad_sizes_operands_and_formats_are_refused(make, message):
    with pytest.raises(UserError, match=f"^{message}"):
        make()


class Unnamed(Task):
    """A task that defines only what it must."""

    width = 3

    def answer(self, a, b):
        return a & b


def test_task_needs_neither_a_name_nor_an_operator_of_its_class():
    task, other = Unnamed(3), type("Heir", (Unnamed,), {})(3)
    assert (task.name, other.name, task.prompt_names[3]) == ("unnamed", "heir", "+")
    task.operator = "&"
    assert rows(task, task.examples([3], [5])) == [("110&101", "100")]
    assert square(lambda self, a: a > 3)(3).examples([3, 5]).answer.tolist() == [0, 1]  # not false and true


@given(tasks_with_operands())
def test_concepts_are_digits_from_the_lowest_and_whole_values(case):
    task, operands = case
    concepts = task.concepts(*np.array(operands).T)
    answers = [ANSWERS[task.name](task, *row) for row in operands]
    unit = "bits" if task.base == 2 else "digits"
    assert tuple(concepts) == task.concept_names
    assert set(concepts) == {"value", f"completion_{unit}", f"operand_{unit}", "operand_values"} | (
        {"carries"} if isinstance(task, Add) else set()
    )
    assert concepts["value"].tolist() == [[x] for x in answers]
    assert concepts["operand_values"].tolist() == [list(row) for row in operands]
    # Concepts do not depend on the order in which the model sees digits: least significant first, always.
    assert concepts[f"completion_{unit}"].tolist() == [
        [int(c, 16) for c in written(x, task.width, "reverse", task.base)] for x in answers
    ]
    assert concepts[f"operand_{unit}"].tolist() == [
        [int(c, 16) for x in row for c in written(x, task.bits, "reverse", task.base)] for row in operands
    ]


def test_random_answers_are_uniform_and_independent_of_the_operands():
    examples = RandomOutput(7).examples()
    assert (RandomOutput(7, seed=1).examples().answer != examples.answer).mean() > 0.9
    expected = len(examples) / 255
    chi_square = ((np.bincount(examples.answer, minlength=255) - expected) ** 2 / expected).sum()
    assert abs(chi_square - 254) < 5 * (2 * 254) ** 0.5
    for operand in (examples.a, examples.b, examples.a + examples.b):
        assert abs(np.corrcoef(operand, examples.answer)[0, 1]) < 5 / len(examples) ** 0.5


def test_modulus_alone_limits_the_table_of_modular_addition():
    """Ten bits have 1024 numbers, too many for a table of all pairs; those below 997 are few enough."""
    task = ModAdd(10, modulus=997)
    assert task.size == 997**2
    assert rows(task, task.examples([996], [2])) == [("0010011111+0100000000", "1000000000")]
    with pytest.raises(UserError, match=r"^x: received examples of another task"):
        ModAdd(np.int64(7), modulus=97).require_own_examples(ModAdd(7, modulus=89).examples(), "x")


def test_a_sample_does_not_follow_the_random_split():
    sample = Add(7).examples().sample(1024, 0)
    held_out = RandomSplit(seed=0)(Add(7).examples())
    assert abs(held_out[sample.a * 128 + sample.b].mean() - 0.25) < 0.05


class Labelled(Square):
    """With an argument that is no number."""

    def __init__(self, labels: Any) -> None:
        super().__init__(3)
        self.labels = labels


@pytest.mark.parametrize(("labels", "others"), [([[1], [1, 2]], [[1], [2, 1]]), (np.arange(3), np.arange(4))])
def test_tasks_are_the_same_if_their_arguments_are(labels, others):
    assert Labelled(labels).same_as(Labelled(deepcopy(labels)))
    assert not Labelled(labels).same_as(Labelled(others))


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


@pytest.mark.parametrize("task", FORMATS, ids=lambda task: f"{task.name} {' '.join(task.prompt_names)}")
def test_each_token_is_the_digit_that_its_name_says(task):
    examples = task.sample(40)
    assert (task.prompt_length, task.answer_length) == (examples.prompt.shape[1], examples.completion.shape[1])
    columns = (examples.operands, examples.answer, examples.length, examples.prompt, examples.completion)
    for operands, answer, length, prompt, completion in zip(*columns, strict=True):
        digits = {"r": to_digits(answer, task.width, task.base), "c": [0, *ripple(operands, task.bits, task.base)]}
        digits |= dict(zip("abc", to_digits(operands, task.bits, task.base), strict=False))
        for name, token in zip(task.prompt_names, prompt, strict=True):
            if name.startswith(task.operator):
                assert token == OPERATOR
            else:
                assert token == (ZERO + digits[name[0]][int(name[1:])] if int(name[1:]) < length else PAD)
        named = dict(zip(task.answer_names, completion, strict=True))
        assert all(token in (PAD, ZERO + digits[name[0]][int(name[1:])]) for name, token in named.items())
        assert sum(named[f"r{i}"] != PAD for i in range(task.width)) == task.width - (task.bits - length)
    np.testing.assert_array_equal(task.decode(examples.completion), examples.answer)
    names = task.answer_names
    assert [names[i] for i in task.answer_positions] == [f"r{i}" for i in range(task.width)]


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


@pytest.mark.parametrize("draw", [Add(3).sample, Add(3).examples().sample], ids=["task", "examples"])
def test_bad_counts_and_seeds_are_refused(draw):
    for arguments, message in (
        *(((n, 0), f"^n={n}: expected an integer of at least 1") for n in (0, -1, 2.5)),
        *(((10, seed), f"^seed={seed}: expected an integer of at least 0") for seed in ("a", -1)),
    ):
        with pytest.raises(UserError, match=message):
            draw(*arguments)


def test_table_that_is_too_large_to_list_gives_a_sample():
    assert Add(9).enumerable
    assert not Add(10).enumerable
    assert len(Add(9).examples()) == 2**18
    examples = Add(31).examples()
    assert len(examples) == 4096
    assert examples.answer.max() > 2**31
    np.testing.assert_array_equal(Add(31).decode(examples.completion), examples.a + examples.b)


@pytest.mark.parametrize("token", [PAD, START, OPERATOR])
def test_token_that_is_not_a_digit_decodes_as_zero(token):
    assert Add(2).decode([[ONE, token, ONE]]).tolist() == [0b101]
    assert Add(2, completion_order="plain").decode([[ONE, ONE, token]]).tolist() == [0b110]
