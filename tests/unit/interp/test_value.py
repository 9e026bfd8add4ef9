"""Moving a number: in a network that keeps one, and in one that keeps something else."""

import numpy as np
import pandas as pd
import pytest
import torch

from arith_erd.interp.causal import CausalTask
from arith_erd.interp.dose import doses
from arith_erd.interp.erasure import whiten
from arith_erd.interp.place import Budget
from arith_erd.interp.transfer import transfers
from arith_erd.interp.value import Centroids, reading, slope
from arith_erd.tasks import Add
from tests.unit.interp.toys import InDirections, OneNumber

TASK = Add(4)
PAIRS = CausalTask(TASK)


def dosed(network, methods=("slope", "leace", "centroids")) -> pd.DataFrame:
    return pd.DataFrame(doses(network, PAIRS, ["dec.1"], methods, [1, 2, 8], sample=60))


def test_erd_follows_every_dose_with_every_direction():
    rows = dosed(OneNumber(TASK))
    assert len(rows) == 3 * 3 * 2
    assert (rows["answer"] > 0.95).all()
    assert (rows["floor"] == 0).all()
    assert (rows["random"] < 0.5).all()


def test_learned_subspace_follows_a_dose():
    budget = Budget(train=128, validation=40, test=40, steps=20)
    rows = pd.DataFrame(doses(OneNumber(TASK), PAIRS, ["dec.1"], ["das"], [2], sample=40, budget=budget))
    assert set(rows["method"]) == {"das"}
    assert (rows["answer"] > 0.9).all()


def test_carries_do_not_follow_a_dose():
    rows = dosed(InDirections(TASK), ("slope", "leace"))
    assert (rows["answer"] < 0.2).all()


def test_value_is_readable_at_any_position():
    for network, right in ((OneNumber(TASK), True), (InDirections(TASK), False)):
        rows = pd.DataFrame(transfers(network, PAIRS, ["dec.1"], ["slope"], sample=100))
        other = rows[rows["pair"] == "other"]
        assert len(other) == TASK.width**2
        assert (other["floor"] == 0.5).all()
        assert (other["iia"].mean() > 0.95) == right
        if right:
            assert (rows.loc[rows["pair"] == "same", "iia"] == 1).all()


@pytest.fixture
def fitted() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    values = torch.randint(0, 20, (2000,), generator=generator)
    direction = torch.tensor([1.0, 2, 0, 0], dtype=torch.float64)
    x = values[:, None] * direction + torch.randn(2000, 4, generator=generator, dtype=torch.float64)
    return x, values


def test_slope_is_what_a_unit_of_the_value_adds(fitted):
    x, values = fitted
    step = slope(whiten(x), values)(np.array([3]), 2)
    torch.testing.assert_close(step, torch.tensor([[2.0, 4, 0, 0]], dtype=torch.float64), atol=0.05, rtol=0)


def test_moving_along_the_slope_moves_the_reading_by_the_dose(fitted):
    x, values = fitted
    one, other = (make(whiten(x), values)(np.array([3]), 5)[0] for make in (slope, reading))
    assert float(one @ other / one.norm() / other.norm()) == pytest.approx(1)
    weights = torch.linalg.lstsq(x - x.mean(dim=0), (values - values.double().mean())[:, None]).solution[:, 0]
    assert float(weights @ other) == pytest.approx(5)


def test_centroids_go_from_one_mean_to_the_other(fitted):
    x, values = fitted
    way = Centroids(x, values)(np.array([4]), 3)[0]
    torch.testing.assert_close(way, x[values == 7].mean(dim=0) - x[values == 4].mean(dim=0))


def test_values_that_no_fitted_pair_has_are_not_moved_between_centroids():
    """Of 256 pairs 30 are fitted; some sums, and the largest, are in none of them."""
    found = doses(OneNumber(TASK), PAIRS, ["dec.1"], ["centroids"], [1, 2], sample=60, fitted=30, random=1)
    assert (pd.DataFrame(found)["answer"] == 1).all()
