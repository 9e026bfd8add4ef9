"""Slopes, agreements and swaps between equal prefixes, on networks whose rule is known."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import arith_erd as ae
from arith_erd.digits import VOCAB_SIZE, ZERO
from arith_erd.errors import UserError
from arith_erd.interp.algorithms import ColumnSums
from arith_erd.interp.hooked import Hooked
from arith_erd.mechanism.prefixes import PrefixedExamples
from arith_erd.models.network import HookPoint
from arith_erd.paper.probes.place_value import (
    PlaceValue,
    measure_agreements,
    measure_slopes,
    measure_swaps,
    same_prefix_pairs,
)
from arith_erd.tasks import Add, Mul, Sub, Task
from tests.unit.probes.small import untrained

TASK = Add(bits=5)
COLUMNS = ColumnSums(TASK)


class Rule(nn.Module):
    """Answers bit t by a rule, which position t of ``dec.1`` computes from the prompt and the prefix.

    If carries are ``passed``, position j of ``dec.1`` holds the carry out of column j, and the next position reads it.
    """

    def __init__(self, rule: Callable[[PrefixedExamples], np.ndarray], passed: bool = False) -> None:
        super().__init__()
        self.rule, self.passed = rule, passed
        self.state, self.out = HookPoint(), HookPoint()

    def sites(self) -> dict[str, nn.Module]:
        return {"dec.1": self.state, "dec.2": self.out}

    def forward(self, prompt: Tensor, answer_in: Tensor) -> Tensor:
        length, place = answer_in.shape[1], 1 << np.arange(TASK.bits)
        digits, given = (prompt - ZERO).numpy(), (answer_in[:, 1:] - ZERO).numpy()
        a, b = digits[:, : TASK.bits] @ place, digits[:, TASK.bits + 1 :] @ place
        if self.passed:  # the state of position j is the carry out of it
            held = [((a % (2 << j) + b % (2 << j)) >> (j + 1)) for j in range(length)]
        else:
            inputs = (PrefixedExamples(COLUMNS, t, a, b, given[:, :t] @ (1 << np.arange(t))) for t in range(length))
            held = [self.rule(x) for x in inputs]
        state = self.state(torch.tensor(np.stack(held, axis=1))[..., None].double())[..., 0].long()  # (N, t + 1)
        if self.passed:
            state = torch.tensor(COLUMNS(np.stack([a, b], axis=1))[:, :length] % 2) ^ torch.nn.functional.pad(
                state[:, :-1], (1, 0)
            )
        return self.out(torch.nn.functional.one_hot(state + ZERO, VOCAB_SIZE).double())


def network(rule: Callable[[PrefixedExamples], np.ndarray], **options: object) -> Hooked:
    return Hooked(Rule(rule, **options), task=TASK)


def by_carry(threshold: float) -> Callable[[PrefixedExamples], np.ndarray]:
    return lambda x: x.column_sum % 2 ^ (x.c > threshold)


def last_token(x: PrefixedExamples) -> np.ndarray:
    if x.t == 0:
        return x.column_sum % 2
    before = x.t - 1
    return x.column_sum % 2 ^ ((x.a >> before & 1) + (x.b >> before & 1) + 1 - (x.prefix >> before & 1) >= 2)


def measured(rows: pd.DataFrame, measure: str) -> pd.Series:
    return rows[rows["measure"] == measure].set_index("bit")["value"]


def test_slopes_are_place_values_where_the_rule_compares_c_with_a_threshold_and_only_there() -> None:
    rows = pd.DataFrame(measure_slopes(network(by_carry(0.45)), COLUMNS, 4096))
    of_bit = rows[rows["bit"] == 4]
    for name, sign in (("operands", 1), ("prefix", -1)):
        found = of_bit[of_bit["measure"] == f"slope_{name}"].sort_values("place")["value"].to_numpy()
        assert found == pytest.approx(sign * np.array([0.125, 0.25, 0.5, 1]), abs=0.02)
    other = pd.DataFrame(measure_slopes(network(last_token), COLUMNS, 4096))
    found = other[(other["bit"] == 4) & (other["measure"] == "slope_operands")].sort_values("place")["value"]
    assert found.to_numpy() == pytest.approx([0, 0, 0, 1], abs=0.05)


def test_the_fitted_threshold_is_that_of_the_rule_and_agreement_tells_rules_apart() -> None:
    rows = pd.DataFrame(measure_agreements(network(by_carry(0.3)), COLUMNS, 4096))
    assert measured(rows, "agreement_graded_carry").to_numpy() == pytest.approx(1)
    assert (measured(rows, "threshold_graded_carry")[[3, 4]] - 0.3).abs().max() < 0.1
    assert measured(rows, "form").max() == 0  # never as a number that leaves the range of a carry
    assert measured(rows, "agreement_prefix_carry")[4] < 0.9
    read = pd.DataFrame(measure_agreements(network(last_token), COLUMNS, 4096))
    assert measured(read, "agreement_prefix_carry").min() == 1


@pytest.mark.parametrize("task", [TASK, Mul(bits=4)], ids=["add", "mul"])
def test_swapped_runs_have_the_same_prefix_and_opposite_bits(task: Task) -> None:
    columns = ColumnSums(task)
    for t in range(1, task.width):
        base, source = same_prefix_pairs(columns, t, 64)
        right, other = (task.answer(x.a, x.b) for x in (base, source))
        assert np.array_equal(right % 2**t, base.prefix)
        assert np.array_equal(other % 2**t, base.prefix)
        assert ((right >> t & 1) != (other >> t & 1)).all()
        assert np.array_equal(base.column_sum, source.column_sum)
        assert len(base.a) >= (64 if task is TASK else t > 1)  # bit 1 of a product is that of its column


def test_a_swap_finds_who_computes_the_carry() -> None:
    for passed, flips in ((False, {"own": 1, "earlier": 0}), (True, {"own": 0, "earlier": 1})):
        rows = pd.DataFrame(measure_swaps(network(by_carry(0.5), passed=passed), COLUMNS, 64))
        whole = rows[rows["site"] == "dec.2"].groupby("measure")["value"]
        assert whole.agg(["min", "max"]).loc["swap_own"].tolist() == [flips["own"]] * 2
        assert whole.mean()["swap_earlier"] == flips["earlier"]


def test_sites_of_the_encoder_and_tasks_without_columns_are_refused() -> None:
    encoder = r"^probe\.site=enc\.1: expected sites of the decoder"
    for task, site, said in ((Add(3), "all", encoder), (Sub(3), "dec.1", "^task=sub: has no columns")):
        with pytest.raises(UserError, match=said):
            PlaceValue([untrained(task)], site=site)


def test_curves_over_epochs_follow_the_agreements() -> None:
    rows = pd.DataFrame(
        [
            ("slope_prefix", 2, 1.0, np.nan, 9.0),
            ("ones", 2, np.nan, 0.5, 9.0),
            ("agreement_remainder", 2, np.nan, np.nan, 0.5),
        ],
        columns=["measure", "bit", "place", "c", "value"],
    ).assign(seed=0, site=None, n=8)
    curves = PlaceValue([untrained(Add(3))]).epoch_curves(rows)
    assert curves.table[["line", "value"]].to_numpy().tolist() == [["agreement_remainder", 0.5]]


@pytest.mark.parametrize("num_examples", [1, 2])
def test_figure_can_be_drawn_of_few_examples(num_examples: int) -> None:
    assert ae.probe("place_value", untrained(Add(3)), num_examples=num_examples, num_pairs=8).figure().axes
