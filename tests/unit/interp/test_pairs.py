"""Families of pairs have what they promise, and causal models predict what their definition says."""

import numpy as np
import pytest

from arith_erd.bits import to_bits
from arith_erd.errors import UserError
from arith_erd.interp.causal import CausalTask, require_variables
from arith_erd.interp.pairs import FAMILIES, draw, families_of, sources, split_operands
from arith_erd.tasks import Add, Add3, ModAdd, Mul, RandomOutput

ADD, MUL = CausalTask(Add(4)), CausalTask(Mul(3))


@pytest.mark.parametrize("task", [Add3(2), Add(1, base=10), ModAdd(3, modulus=5)], ids=lambda task: task.name)
def test_causal_models_refuse_other_tables_than_pairs_of_bits(task):
    with pytest.raises(UserError, match=rf"^task={task.name}: has .*; causal models need two operands in base 2"):
        CausalTask(task)


@pytest.mark.parametrize("pairs", [ADD, MUL], ids=["add", "mul"])
def test_couples_share_and_differ_in_what_their_family_says(pairs):
    rng = np.random.default_rng(0)
    for name in families_of(pairs):
        family, drawn = FAMILIES[name], 0
        for t in range(pairs.task.width):
            couples = draw(pairs, name, t, 200, rng)
            drawn += len(couples)
            assert (couples.base != couples.source).all()
            for variable, values in pairs.values.items():
                of_base, of_source = values[couples.base], values[couples.source]
                if variable in family.same:
                    assert (of_base[:, t] == of_source[:, t]).all()
                if variable in family.same_everywhere:
                    assert (of_base == of_source).all()
                if variable in family.differ:
                    assert (of_base[:, t] != of_source[:, t]).all()
        assert drawn


def test_families_are_those_whose_variables_the_task_has():
    assert families_of(ADD) == ("carry_only", "xor_only", "both", "equal_sum", "equal_carries", "random")
    assert families_of(MUL) == (
        *("column_carry_only", "column_sum_only", "equal_products", "equal_column_sums", "random"),
    )
    assert families_of(CausalTask(RandomOutput(3))) == ("random",)


def test_no_carry_enters_bit_0():
    assert len(draw(ADD, "carry_only", 0, 50, np.random.default_rng(0))) == 0


def test_sources_are_uniform_over_the_family():
    base = np.full(20_000, 3 * 16 + 5)  # 3 + 5: eight other pairs have the sum 8
    counts = np.bincount(sources(ADD, "equal_sum", 0, base, np.random.default_rng(0)))
    found = counts[counts > 0]
    assert len(found) == 8
    assert abs(found / 2500 - 1).max() < 0.1


def test_pools_share_no_operand():
    pools = split_operands(ADD, (0.5, 0.25, 0.25), np.random.default_rng(0))
    assert [len(pool) for pool in pools] == [64, 16, 16]
    operands = [set(ADD.a[pool]) | set(ADD.b[pool]) for pool in pools]
    assert not operands[0] & operands[1]
    assert not operands[0] & operands[2]
    assert not operands[1] & operands[2]
    couples = draw(ADD, "carry_only", 2, 30, np.random.default_rng(0), pools[1])
    assert set(couples.base) | set(couples.source) <= set(pools[1])


def test_bit_t_is_xor_and_carry_and_the_parity_of_a_column_and_its_carry():
    assert (ADD.values["answer"] == ADD.values["xor"] ^ ADD.values["carry"]).all()
    assert (MUL.values["answer"] == (MUL.values["column_sum"] + MUL.values["column_carry"]) & 1).all()
    for pairs, partial in ((ADD, "partial_sum"), (MUL, "partial_product")):
        t = np.arange(pairs.task.width)
        assert (pairs.values["answer"] == pairs.values[partial] >> t).all()


def test_variables_of_3_plus_5():
    variables = {name: x[0].tolist() for name, x in Add(3).variables([3], [5]).items()}
    assert variables == {
        "a_bit": [1, 1, 0, 0],
        "b_bit": [1, 0, 1, 0],
        "xor": [0, 1, 1, 0],
        "carry": [0, 1, 1, 1],
        "sum": [8, 8, 8, 8],
        "partial_sum": [0, 0, 0, 8],
    }


@pytest.mark.parametrize("pairs", [ADD, MUL, CausalTask(RandomOutput(3))], ids=["add", "mul", "random_output"])
def test_predictions_from_a_pair_itself_are_its_answer(pairs):
    everything = np.arange(len(pairs.a))
    for model in ("none", *pairs.models):
        assert (pairs.predict(model, everything, everything) == pairs.values["answer"]).all()


def test_predictions_of_1_plus_4_in_3_plus_5():
    base, source = [3 * 16 + 5], [1 * 16 + 4]
    said = {model: ADD.predict(model, base, source)[0, :4].tolist() for model in ("none", "carry", "xor", "sum")}
    assert said == {"none": [0, 0, 0, 1], "carry": [0, 1, 1, 0], "xor": [1, 1, 0, 1], "sum": [1, 0, 1, 0]}
    assert ADD.predict("a_bit", base, source)[0].tolist() == [0, 1, 0, 1, 0]  # 3 + 5, but 1 + 5 = 6 at t = 1


@pytest.mark.parametrize("order", ["reverse", "plain"])
def test_exchanged_token_is_an_operand_with_another_bit(order):
    pairs = CausalTask(Add(3, prompt_order=order))
    base, source = [3 * 8 + 5], [0 * 8 + 7]
    place = 5  # bit 1 of b, in the middle of its three
    assert pairs.exchange_token(place, base, source)[0].tolist() == to_bits(3 + 7, 4).tolist()
    assert pairs.exchange_token(3, base, source)[0].tolist() == to_bits(8, 4).tolist()  # the operator


def test_missing_concept_is_named():
    with pytest.raises(UserError, match=r"probe\.variable=carry: expected variables of task mul: a_bit, .*product"):
        require_variables(Mul(3), ["carry", "product"])
    with pytest.raises(UserError, match=r"task\.completion_order=plain: expected reverse"):
        CausalTask(Add(3, completion_order="plain"))
