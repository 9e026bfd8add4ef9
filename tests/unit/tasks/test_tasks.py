"""Every token is what Python's own arithmetic says, in every base, order and number of operands."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arith_erd.bits import ORDERS, render, to_digits
from arith_erd.errors import UserError
from arith_erd.tasks import Add, Add3, ModAdd, Mul, RandomOutput, Sub, Task


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
def test_rows_of_any_operands_and_their_answers_decoded(case):
    task, operands = case
    examples = task.examples(*zip(*operands, strict=True))
    assert rows(task, examples) == [expected_row(task, *row) for row in operands]
    np.testing.assert_array_equal(task.decode(examples.completion), examples.answer)


@given(any_tasks())
def test_table_holds_every_combination_once_first_operand_slowest(task):
    shape = (task.limit,) * task.num_operands
    assert (task.shape, task.size) == (shape, math.prod(shape))
    if task.size > 1024:  # the orders are the same at every size
        return
    examples = task.examples()
    operands = list(itertools.product(range(task.limit), repeat=task.num_operands))
    assert examples.operands.tolist() == [list(row) for row in operands]
    assert rows(task, examples) == [expected_row(task, *row) for row in operands]
    assert examples.prompt.shape == (task.size, task.prompt_length)
    assert examples.completion.shape == (task.size, task.width)
    assert max(examples.prompt.max(), examples.completion.max()) < task.vocab_size


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
    assert task.longest_carry(task.examples(*zip(*operands, strict=True))).tolist() == [len(max(run)) for run in runs]


class Narrow(Square):
    width = 3


class Half(Square):
    def answer(self, a):
        return a / 2


@pytest.mark.parametrize(("task", "received"), [(Narrow(bits=3), "from 0 to 49"), (Half(bits=3), "from 0.0 to 3.5")])
def test_answers_that_the_completion_cannot_hold_are_refused(task, received):
    """Else the network would learn other answers than those that probes look for."""
    with pytest.raises(UserError, match=rf"^task=square: answers {received}; expected integers from 0 to"):
        task.examples()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        *((lambda x=x: Add(x), rf"task\.bits={x}: expected an integer from 2 to 31$") for x in (1, 32, 7.0, "7", True)),
        *((lambda x=x: Mul(base=x), rf"task\.base={x}: expected an integer from 2 to 16$") for x in (1, 17, None)),
        *((lambda x=x: Add(3).examples([x], [1]), rf"a=\[{x}\]: expected integers from 0 to 7") for x in (8, 3.5)),
        (lambda: Add(3).examples([[1, 2]], [[3, 4]]), r"add: operands of shapes \(1, 2\), \(1, 2\); expected one"),
        (lambda: Add(3).examples([1, 2, 3], [5, 6]), r"add: operands of shapes \(3,\), \(2,\); expected one"),
        (lambda: Add(3).concepts([100], [2]), r"a=\[100\]: expected integers from 0 to 7"),
        (lambda: Add(3).examples(3, -1), r"b=\[-1\]: expected integers from 0 to 7"),
    ],
)
def test_sizes_and_operands_that_a_task_does_not_have_are_refused(make, message):
    with pytest.raises(UserError, match=f"^{message}"):
        make()


@given(tasks_with_operands())
def test_concepts(case):
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


def test_random_answers_are_uniform_and_know_nothing_of_the_operands():
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
    with pytest.raises(UserError, match=r"^task\.modulus=1024: expected an integer from 2 to 1023$"):
        ModAdd(10, modulus=1024)
    with pytest.raises(UserError, match=r"^task\.bits=21: expected an integer from 2 to 20$"):
        ModAdd(21, modulus=997)


@pytest.mark.parametrize("task", [Mul(4), Mul(2, base=10)], ids=["binary", "decimal"])
def test_column_sums_leave_the_digits_of_the_product(task):
    a, b = task.examples().operands.T
    sums = task.column_sums(a, b)
    assert (sums % task.base == to_digits(a * b, task.width, task.base)).all()
    assert (sums[:, -1] < task.base).all()
    variables = task.variables()
    columns = variables["column_sum"](task.examples().operands)
    assert (sums == columns + variables["carry"](columns)).all()
