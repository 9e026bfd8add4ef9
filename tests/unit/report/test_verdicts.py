"""The rules of ``docs/verdicts.md``, on numbers alone."""

import numpy as np
import pytest

from arith_erd.report.verdicts import Modes, of_bound, of_ceiling, of_layer, of_mean, of_share, of_votes
from arith_erd.stats import clopper_pearson


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        ((0.91, 0.93), "reproduced"),
        ((0.90, 0.94), "reproduced"),  # the ends belong to the tolerance
        ((0.95, 0.99), "differs"),
        ((0.93, 0.95), "inconclusive"),
        (None, "inconclusive"),
    ],
)
def test_whole_interval_lies_on_one_side(interval, verdict: str) -> None:
    assert of_bound((0.90, 0.94), interval) == verdict


@pytest.mark.parametrize(
    ("ours", "interval", "verdict"),
    [
        (0.935, (0.91, 0.96), "reproduced"),  # within twice the tolerance
        (0.935, (0.89, 0.97), "inconclusive"),  # too wide to say
        (0.965, (0.94, 0.99), "differs"),  # the published 0.937 is outside, and ours is farther than the tolerance
        (0.965, (0.93, 0.99), "inconclusive"),
        (0.950, (0.945, 0.955), "reproduced"),  # outside, but within the tolerance
        (0.937, None, "inconclusive"),
    ],
)
def test_published_mean_of_runs_is_compared_with_a_prediction(ours: float, interval, verdict: str) -> None:
    assert of_mean(0.937, 0.02, ours, interval) == verdict


def share(hits: int, n: int, published: float) -> str:
    accuracies = np.array([1.0] * hits + [0.3] * (n - hits))
    return of_share(published, Modes.of(accuracies), clopper_pearson(hits, n))


@pytest.mark.parametrize(
    ("hits", "n", "published", "verdict"),
    [
        (15, 20, 0.82, "reproduced"),  # which stands for 74% of runs that learn
        (3, 5, 0.82, "inconclusive"),
        (6, 20, 1.0, "differs"),  # from 5 of 5
        (12, 20, 1.0, "inconclusive"),  # five of five runs would be no surprise
        (3, 4, 0.82, "inconclusive"),  # takes five seeds
        (0, 20, 0.82, "differs"),
    ],
)
def test_where_some_seeds_do_not_learn_their_share_is_compared(hits, n, published, verdict: str) -> None:
    assert share(hits, n, published) == verdict


def test_votes_near_layers_and_a_ceiling_outside() -> None:
    assert of_votes(3, {3: 4, 2: 1}) == "reproduced"
    assert of_votes(3, {2: 3, 3: 2}) == "inconclusive"
    assert of_votes(3, {2: 5}) == "differs"
    assert of_votes(3, {3: 2}) == "inconclusive"
    assert of_layer(3, {2: 3, 3: 2}, (0.0, 0.04)) == "reproduced"
    assert of_layer(3, {2: 5}, (0.0, 0.04)) == "reproduced"
    assert of_layer(3, {2: 5}, (0.02, 0.08)) == "inconclusive"
    assert of_layer(3, {2: 5}, (0.06, 0.08)) == "differs"
    assert of_layer(3, {3: 4, 2: 1}, None) == "reproduced"
    assert of_ceiling((0.0045, 0.0135), 0.0003, 0.0095, np.array([])) == "differs"  # whatever the seeds reach
