"""The count of the second preregistration is right for answers that a known algorithm makes."""

import pandas as pd
import pytest

from arith_erd.mechanism.certificate import Certificate, answered_by
from arith_erd.paper.studies.fresh import measures, missed, verdict
from arith_erd.tasks import Add

SWAPS = {"swap_own": 1.0, "swap_earlier": 0.0}


def tables(folder, made: Certificate) -> None:
    made.shares().assign(seed=0).to_csv(folder / "rows.csv")
    made.contrasts().assign(seed=0).to_csv(folder / "contrasts.csv")


@pytest.mark.parametrize(
    ("algorithm", "model", "expected"),
    [
        ("local_remainder", "transformer", ""),
        ("graded_carry", "nanogpt", ""),
        ("local_remainder", "nanogpt", "rule"),
        ("graded_carry", "transformer", "against_graded_carry"),
        ("prefix_carry", "nanogpt", "against_prefix_carry"),
        ("erd", "transformer", "clear against_graded_carry against_prefix_carry against_erd"),
    ],
)
def test_only_the_hypothesis_meets_its_bounds(tmp_path, algorithm: str, model: str, expected: str) -> None:
    tables(tmp_path, answered_by(lambda block: block.predicted(algorithm), Add(bits=5)))
    assert {*missed(measures(tmp_path, 0, model) | SWAPS, model).split()} == {*expected.split()}


def test_a_bound_that_was_not_measured_is_not_met(tmp_path) -> None:
    tables(tmp_path, answered_by(lambda block: block.predicted("local_remainder"), Add(bits=5)))
    assert missed(measures(tmp_path, 0, "transformer"), "transformer") == "swap_own swap_earlier"


def test_verdict_counts_eight_of_ten_and_leaves_out_networks_that_answer_wrong() -> None:
    networks = pd.DataFrame({"accuracy": [1.0] * 10, "missed": [""] * 8 + ["clear"] * 2})
    assert verdict(networks).startswith("confirmed: 8 of 10")
    assert verdict(networks.iloc[1:]).startswith("not confirmed: 7 of 9")
    assert verdict(networks.assign(accuracy=[1.0] * 5 + [0.9] * 5)).startswith("undecided: 5 of 10")
