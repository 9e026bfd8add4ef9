"""Algorithms answer as their definitions say, bit by bit, after any prefix."""

from fractions import Fraction
from math import floor

import numpy as np
import pytest

from arith_erd.config.causal_models import build_causal_model
from arith_erd.digits import ZERO
from arith_erd.errors import UserError
from arith_erd.interp.algorithms import ALGORITHMS, ColumnSums, algorithm_label
from arith_erd.models.handcoded import PROGRAMS
from arith_erd.tasks import Add, Mul, Task

HALF = Fraction(1, 2)


def bit(x: int, t: int) -> int:
    return x >> t & 1


def expected_bit(name: str, task: Task, a: int, b: int, prefix: int, t: int) -> int:
    """By the definitions, with exact fractions."""
    answer, p = int(task.answer(a, b)), prefix % 2**t
    if isinstance(task, Mul):
        columns = [sum(bit(a, i) * bit(b, s - i) for i in range(s + 1)) for s in range(task.width)]
    else:
        columns = [bit(a, s) + bit(b, s) for s in range(task.width)]
    c = Fraction(sum(columns[s] << s for s in range(t)) - p, 2**t)
    if name in ("erd", "lookahead_carry"):
        return bit(answer, t)
    if name == "prefix_carry":
        return bit(a, t) ^ bit(b, t) ^ (t > 0 and bit(a, t - 1) + bit(b, t - 1) + 1 - bit(p, t - 1) >= 2)
    if name == "remainder":
        return floor(Fraction(answer - p, 2**t) + HALF) % 2
    if name == "graded_carry":
        return columns[t] % 2 ^ (c > HALF)
    largest = 1 if t == task.width - 1 else 3 if isinstance(task, Add) else task.width
    return min(max(floor(columns[t] + c + HALF), 0), largest) % 2


@pytest.mark.parametrize(("name", "task"), [*((name, Add(4)) for name in ALGORITHMS), ("remainder", Mul(3))], ids=str)
def test_answers_to_all_pairs_are_those_of_the_definition_after_any_prefix(name: str, task: Task) -> None:
    examples, model = task.examples(), ALGORITHMS[name].causal_model(task)
    prefix = np.random.default_rng(0).integers(0, 2**task.width, len(examples))
    assert (model.answers(model.values(examples)) == examples.completion - ZERO).all()
    found = model.answers(model.values(examples, {"prefix": prefix}))
    rows = zip(*examples.operands.T.tolist(), prefix.tolist(), strict=True)
    assert found.tolist() == [[expected_bit(name, task, *row, t) for t in range(task.width)] for row in rows]


def test_column_sums_add_up_to_the_answer() -> None:
    for task in (Add(bits=5), Mul(bits=3)):
        columns, examples = ColumnSums(task), task.examples()
        sums = columns(examples.operands)
        assert np.array_equal(sums @ (1 << np.arange(task.width)), examples.answer)
    assert ColumnSums(Add(bits=5)).max_total.tolist() == [2, 3, 3, 3, 3, 1]


def test_name_stands_for_a_causal_model_and_other_tasks_and_names_are_refused() -> None:
    assert build_causal_model(Add(3), "graded_carry", "key").variables[2:] == ("prefix", "column_sum", "carry")
    for task in (Mul(3), Add(2, base=3), Add(3, completion_order="plain")):
        with pytest.raises(UserError, match=r"^task.*: (has two|expected|has 2 operands)"):
            ALGORITHMS["prefix_carry"].causal_model(task)
    with pytest.raises(UserError, match=r"^key=graded: .*did you mean graded_carry"):
        build_causal_model(Add(3), "graded", "key")


def test_every_algorithm_has_a_network_and_decoys_have_the_label_of_what_they_run() -> None:
    assert {*ALGORITHMS} | {"mixed"} == {name for name in PROGRAMS if not name.endswith("_decoy")}
    assert (algorithm_label("erd_decoy"), algorithm_label("mixed")) == ("sum", "")
