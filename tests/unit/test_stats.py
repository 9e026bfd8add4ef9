"""Intervals over seeds: what they cover, and when there is none."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from arith_erd.stats import MIN_SEEDS, bootstrap_interval


@pytest.mark.parametrize("statistic", [np.mean, np.median])
def test_no_interval_from_fewer_than_three_seeds(statistic) -> None:
    assert MIN_SEEDS == 3
    assert bootstrap_interval([], statistic=statistic) is None
    assert bootstrap_interval([0.9, 1.0], statistic=statistic) is None
    assert bootstrap_interval([0.9, 0.95, 1.0], statistic=statistic) is not None


@pytest.mark.parametrize("statistic", [np.mean, np.median])
def test_equal_seeds_give_an_interval_without_width(statistic) -> None:
    assert bootstrap_interval([0.75] * 5, statistic=statistic) == (0.75, 0.75)


def test_where_bca_is_undefined_it_is_the_percentile_interval() -> None:
    """Whichever seed is left out, the median of the others is 1: BCa divides nothing by nothing."""
    sample = [1.0, 1.0, 1.0, 1.0, 2.0]
    arguments = {"n_resamples": 4999, "rng": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bca = stats.bootstrap((sample,), np.median, method="BCa", **arguments).confidence_interval
    percentile = stats.bootstrap((sample,), np.median, method="percentile", **arguments).confidence_interval
    assert np.isnan([bca.low, bca.high]).any()
    assert bootstrap_interval(sample, statistic=np.median) == (percentile.low, percentile.high)


def test_otherwise_it_is_the_bca_interval() -> None:
    sample = [0.91, 0.93, 0.95, 0.99, 1.0]
    bca = stats.bootstrap((sample,), np.mean, method="BCa", n_resamples=4999, rng=0).confidence_interval
    assert bootstrap_interval(sample) == (bca.low, bca.high)


def test_an_unknown_value_gives_no_interval() -> None:
    assert bootstrap_interval([1.0, 2.0, np.nan]) is None
    assert bootstrap_interval([1.0, 2.0, np.inf]) is None


@settings(max_examples=30)
@given(st.lists(st.floats(0, 1), min_size=3, max_size=9))
def test_an_interval_holds_its_statistic_and_stays_among_the_seeds(values) -> None:
    for statistic in (np.mean, np.median):
        low, high = bootstrap_interval(values, statistic=statistic)
        assert min(values) - 1e-12 <= low <= high <= max(values) + 1e-12
        if statistic is np.mean:
            assert low - 1e-12 <= np.mean(values) <= high + 1e-12


def test_the_order_of_the_seeds_does_not_matter() -> None:
    values = [37.0, 39.0, 45.0, 38.0, 41.0]
    for statistic in (np.mean, np.median):
        interval = bootstrap_interval(values, statistic=statistic)
        assert interval == bootstrap_interval(values[::-1], statistic=statistic)


def test_it_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    intervals = [bootstrap_interval(rng.normal(size=20).tolist()) for _ in range(60)]
    covered = sum(low <= 0 <= high for low, high in intervals)
    assert 50 <= covered <= 60
