"""Causal models evaluate their graph, predict interchanges, and refuse what is no model of the task."""

from functools import partial

import numpy as np
import pytest

from arith_erd.digits import from_digits, to_digits
from arith_erd.errors import UserError
from arith_erd.interp.causal_model import CausalModel, distinguishable_variables
from arith_erd.interp.counterfactuals import (
    CounterfactualDataset,
    Family,
    default_families,
    sample_balanced_pairs,
    sample_sources,
    split_operands,
)
from arith_erd.tasks import Add, Add3, ModAdd, Mul, RandomOutput, Sub, Task

ADD, MUL, PAIR = CausalModel(Add(4)), CausalModel(Mul(3)), Add(4).examples([1], [2])
SAMPLE = partial(CounterfactualDataset.sample, ADD)
TASKS = [Add(4), Add(2, base=10), Add3(2), Mul(3), Mul(1, base=10), ModAdd(3, modulus=5), Sub(3), RandomOutput(3)]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: f"{task.name}{task.base}")
def test_interchange_with_itself_keeps_the_answer_and_the_whole_value_of_a_source_gives_its_answer(task: Task) -> None:
    model = CausalModel(task)  # checks the answers
    base, source = (np.random.default_rng(i).integers(task.limit, size=(50, task.num_operands)) for i in range(2))
    right = model.answers(model.values(base))
    for variable in model.variables:
        assert (model.interchange(base, base, variable) == right).all()
        assert (model.interchange(base, base, variable, 1) == right).all()
    if model.answer_variable:
        assert (model.interchange(base, source, model.answer_variable) == model.answers(model.values(source))).all()
    if task.size == task.base ** (task.bits * task.num_operands):
        digit = model.interchange(base, source, model.roots[0], 0)
        first = base[:, 0] - base[:, 0] % task.base + source[:, 0] % task.base
        assert (digit == to_digits(task.answer(first, *base[:, 1:].T), task.width, task.base)).all()


def test_3_plus_5_has_the_variables_found_by_hand_and_is_answered_with_carries_of_1_plus_4() -> None:
    model = CausalModel(Add(3))
    values = {name: x[0].tolist() for name, x in model.values([[3, 5]]).items()}
    expected = {"a_bit": [1, 1, 0, 0], "b_bit": [1, 0, 1, 0], "xor": [0, 1, 1, 0], "generate": [0, 1, 0, 0]}
    expected |= {"propagate": [0, 0, 1, 1], "carry": [0, 1, 1, 1], "sum": 8, "sum_mod": [0, 0, 0, 8]}
    assert values | expected == values
    assert model.interchange_by_digit([[3, 5]], [[1, 4]], "carry")[0].tolist() == [0, 1, 1, 0]


def test_carries_agree_with_the_task() -> None:
    for task in (Add(4), Add(2, base=10), Add3(2)):
        examples = task.examples()
        carries = CausalModel(task).values(examples)["carry"]
        assert (carries[:, 1 : task.bits + 1] == task.carries(*examples.operands.T)).all()


def total(a, b):
    return a + b


def changes_its_argument(a, b):
    a += b
    return a


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"sum": lambda a, b: a + b + (a == 3)}, r"^causal model of add: its output sum is 4 for a=3, b=0"),
        ({"sum": lambda a, z: a}, r"^variable sum: takes z; expected some of a_bit, b_bit, a, b, operands$"),
        ({"x": lambda y: y, "y": lambda x: x, "sum": total}, r"form a cycle: "),
        ({"sum": lambda a, b: (a + b) / 1}, r"^variable sum: returned float64 of shape \(64,\); expected integers"),
        ({"x": lambda a: a[:, None], "sum": total}, r"^variable x: returned int64 of shape \(64, 1\)"),
        ({"x": lambda a: 1 // 0, "sum": total}, r"^variable x: ZeroDivisionError"),
        ({"s": changes_its_argument}, r"^variable s: ValueError: output array is read-only"),
        ({"sum": max}, r"^variable sum: <built-in function max> has no signature; expected a function of variables"),
        ({}, r"variables: received \{\}; expected a function for each name"),
        (["sum"], r"variables: received \['sum'\]; expected a function"),
        ({3: max}, r"variables: received \{3: .*; expected a function for each name"),
        ({"a_bit": lambda a: a, "sum": total}, r"variables a_bit, sum: expected names that differ from"),
    ],
)
def test_bad_causal_models_are_refused(variables, message) -> None:
    with pytest.raises(UserError, match=message):
        CausalModel(Add(3), variables)


def test_balanced_pairs_differ_and_few_distinct_ones_give_a_warning() -> None:
    rng, pool = np.random.default_rng(0), np.array([0, 1, 2, 3, 8, 9, 10, 11])  # 0 and 1, plus 0 to 3
    with pytest.warns(UserWarning, match=r"^Add\(bits=3\): some datasets have fewer than 50 distinct pairs; more bits"):
        pairs = sample_balanced_pairs(CausalModel(Add(3)), "sum", rng.choice(pool[1:4], 200), pool, rng, range(4))
    assert (pairs.base == pairs.source).mean() < 0.05  # where none of eight sources fits


def test_output_is_the_answer_itself_before_a_number_with_its_lower_digits() -> None:
    variables = {"residue": lambda total: total % 8, "total": lambda a, b: a + b}
    assert CausalModel(ModAdd(3, modulus=8), variables).output == "residue"
    modular = CausalModel(ModAdd(3, modulus=8), {"total": lambda a, b: a + b})
    assert modular.output == "total"
    assert modular.answers(modular.values([[7, 7]], {"total": [-3]})).tolist() == [[1, 0, 1]]
    assert CausalModel(Add(3), {"sum": total, "carry": lambda a, b: (a + b) ^ a ^ b}).output == "sum"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ADD.interchange([[1, 2]], [[3, 4]], "carries"), "^variable=carries: expected some of a_bit, b_bit"),
        (lambda: ADD.interchange([[1, 2]], [[1, 2], [3, 4]], "carry"), "^interchange: 1 bases and 2 sources"),
        (lambda: CounterfactualDataset.of("a", PAIR, PAIR), "^causal_model: received str; expected CausalModel"),
        (lambda: CausalModel(Add(3), {"sum": total}, output="total"), "output=total: expected one of sum"),
        (lambda: ADD.values([[1, 2]], {"carry": 0}), r"^variable carry: set to values of shape \(\); expected \(1,"),
        (
            lambda: ADD.values([[1, 2]] * 5, {"carry": np.arange(5)}),  # as many as digits
            r"^variable carry: set to values of shape \(5,\); expected \(5, 5\)$",
        ),
        (lambda: ADD.values([[1, 2]], {"a": [[1, 1, 0, 0]]}), r"^variable a: .* shape \(1, 4\); expected \(1,\)$"),
        (lambda: ADD.values([[-1, 0]]), "^a=-1: expected an integer from 0 to 15$"),
        (lambda: ADD.values([[0, 1]], {"b": [16]}), "^b=16: expected an integer from 0 to 15$"),
        (lambda: ADD.values([[0, 1]], {"carry": [[0.5] * 5]}), "^variable carry: set to values of type float64"),
        (lambda: ADD.values([[0, 1]], {"a_bit": [[0, 2, 0, 0, 0]]}), "^a_bit=2: expected an integer from 0 to 1$"),
        (lambda: ADD.values([[0, 1]], {"a_bit": [[0, 0, 0, 0, 1]]}), "^a=16: expected an integer from 0 to 15$"),
        (lambda: ADD.values([[0, 1]], {"a_bit": [1]}), r"^variable a_bit: .* of shape \(1,\); expected \(1, 5"),
        (lambda: ADD.answers(ADD.values([[3, 5]], {"answer": [[3] * 5]})), "^variable answer: is 3; expected a digit"),
        (lambda: ADD.interchange([[3, 5]], [[1, 4]], "carry", digit=-1), "^digit=-1: expected an integer from 0 to 4$"),
        (lambda: ADD.interchange([[3, 5]], [[1, 4]], "sum", digit=99), "^digit=99: expected an integer from 0 to 4$"),
        (lambda: SAMPLE(vary="carry", keep="xor", digit=0), "^vary=carry keep=xor: no pair of operands .* at digit 0"),
        (lambda: SAMPLE(vary="sum", keep=["xor", "carry"]), "^vary=sum keep=xor,carry: no pair of operands"),
        (lambda: SAMPLE(vary="carry", pool=[]), "no pair of operands has"),
        (lambda: SAMPLE(pool=[1, 600]), r"^pool=1 \.\. 600: expected rows from 0 to 255"),
        (lambda: SAMPLE().split((0.8,)), r"^shares=\(0\.8,\): expected shares above 0 that add up to 1"),
        (lambda: SAMPLE(n=300).split((0.98, 0.02)), r"^a share of 0\.02 leaves 6 of 300 pairs and 0 examples, too few"),
    ],
)
def test_bad_values_pairs_and_datasets_are_refused(call, message: str) -> None:
    with pytest.raises(UserError, match=message):
        call()


@pytest.mark.parametrize(
    ("function", "answers"),
    [(lambda b, excess: 2 * b + excess, [-7, 2]), (lambda a, excess: 2 * a - excess, [21, 14])],
)
def test_answers_that_leave_the_range_count_modulo_with_a_warning(function, answers) -> None:
    adder = CausalModel(Add(3), {"excess": lambda a, b: a - b, "total": function})
    with pytest.warns(
        UserWarning, match=r"^interchange of excess: total is not always from 0 to 15; it counts modulo 16"
    ):
        digits = adder.interchange([[7, 0], [7, 1]], [[0, 7], [0, 0]], "excess")
    assert from_digits(digits).tolist() == [answer % 16 for answer in answers]


def test_digits_outside_the_base_are_refused() -> None:
    variables = {"own": lambda a_bit, b_bit: a_bit + b_bit, "carry": lambda a, b: to_digits((a + b) ^ a ^ b, 4)}
    adder = CausalModel(Add(3), variables | {"total": lambda own, carry: own + carry - 2 * np.roll(carry, -1, axis=1)})
    with pytest.raises(UserError, match=r"^interchange of carry: variable total: is 2; expected a digit of the answer"):
        adder.interchange([[7, 0], [7, 1]], [[0, 7], [0, 0]], "carry")


def test_an_operand_that_is_set_sets_its_bits() -> None:
    adder = CausalModel(Add(3), {"sum": lambda a_bit, b_bit: from_digits(a_bit) + from_digits(b_bit)})
    assert from_digits(adder.interchange([[3, 5]], [[1, 4]], "a")).tolist() == [6]


def test_model_suggests_families_and_variables_that_change_the_answer() -> None:
    assert list(default_families(ADD)) == ["xor", "generate", "propagate", "carry", "same sum", "random"]
    assert default_families(ADD)["generate"].keep == ("xor", "propagate")
    assert list(default_families(CausalModel(RandomOutput(3)))) == ["random"]
    of_operands = CausalModel(Add(3), {"copy": lambda b: b * 1, "sum": lambda a, copy: a + copy})
    assert default_families(of_operands)["copy"].keep == ("a_bit",)
    assert distinguishable_variables(MUL) == ["a_bit", "b_bit", "column_sum", "carry", "product"]  # as product_mod


@pytest.mark.parametrize("model", [ADD, MUL], ids=["add", "mul"])
def test_pairs_share_and_differ_in_what_their_family_says(model: CausalModel) -> None:
    for family in default_families(model).values():
        drawn = 0
        for t in range(model.task.width) if family.vary else [None]:
            base = np.random.default_rng(0).integers(model.task.size, size=200)
            source = sample_sources(model, family, t, base, np.random.default_rng(0))
            base, source = base[source >= 0], source[source >= 0]
            drawn += len(base)
            assert (base != source).all()
            for name in (*family.vary, *family.keep):
                equal = model.table[name][base] == model.table[name][source]
                equal = equal if equal.ndim == 1 else equal.all(axis=1) if t is None else equal[:, t]
                assert equal.all() if name in family.keep else not equal.any()
        assert drawn


def test_sources_are_uniform_over_the_family() -> None:
    base = np.full(20_000, 3 * 16 + 5)  # 3 + 5: eight others have the sum 8
    same = Family(keep=("sum",))
    counts = np.bincount(sample_sources(ADD, same, None, base, np.random.default_rng(0)))
    found = counts[counts > 0]
    assert len(found) == 8
    assert abs(found / 2500 - 1).max() < 0.1


def test_rare_sources_are_found() -> None:
    adder = CausalModel(Add(7), {"zero": lambda a, b: a + b == 0, "answer": total})
    for seed in range(3):
        assert CounterfactualDataset.sample(adder, vary="zero", n=1, seed=seed).source.tolist() == [0]


def operands_of(data: CounterfactualDataset) -> set[int]:
    return set(data.base_examples.operands.flat) | set(data.source_examples.operands.flat)


def test_parts_of_a_dataset_share_no_operand_and_belong_to_its_family() -> None:
    data = CounterfactualDataset.sample(ADD, "carry", "xor", 300, digit=2)
    train, test, last = data.split((0.5, 0.25, 0.25))
    assert [len(part) for part in (train, test, last)] == [150, 75, 75]
    assert not operands_of(train) & operands_of(test) | operands_of(train) & operands_of(last)
    assert not operands_of(test) & operands_of(last)
    assert (ADD.table["xor"][test.base][:, 2] == ADD.table["xor"][test.source][:, 2]).all()
    pools = split_operands(Add(4), (0.5, 0.25, 0.25), np.random.default_rng(0))
    assert [len(pool) for pool in pools] == [64, 16, 16]


def test_pool_in_any_order_keeps_the_family_and_holds_rows_of_the_table() -> None:
    adder = CausalModel(Add(3))
    pool = np.random.default_rng(1).permutation(64)[:48]
    data = CounterfactualDataset.sample(adder, vary="carry", keep=["xor"], n=50, pool=pool)
    assert (adder.table["xor"][data.base] == adder.table["xor"][data.source]).all()
    assert np.isin([data.base, data.source], pool).all()
