"""Intervals over seeds: what they are, what they cover at five seeds, and when there is none."""

import importlib.util
import math
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from arith_erd.stats import (
    Mean,
    _mann_whitney,
    _outside,
    clopper_pearson,
    contrast,
    hodges_lehmann_ratio,
    mean_interval,
    median_range,
)


def test_mean_without_skewness_has_students_t_interval() -> None:
    sample = [0.91, 0.93, 0.95, 0.97, 0.99]
    expected = stats.ttest_1samp(sample, 0).confidence_interval(0.95)
    assert mean_interval(sample) == pytest.approx((expected.low, expected.high))


def test_difference_of_means_without_skewness_has_a_t_interval_no_narrower_than_welchs() -> None:
    one, other = [0.91, 0.93, 0.95, 0.97, 0.99], [0.8, 0.7, 0.9]
    error = np.hypot(stats.sem(one), stats.sem(other))
    low, high = contrast([Mean.of(one), Mean.of(other, -1.0)])
    assert ((low + high) / 2, (high - low) / 2) == pytest.approx((0.15, stats.t.ppf(0.975, df=2) * error))
    welch = stats.ttest_ind(one, other, equal_var=False).confidence_interval(0.95)
    assert low <= welch.low < welch.high <= high


def test_ends_of_a_skewed_samples_interval_are_quantiles_of_halls_transformation() -> None:
    sample = np.array([1.0, 1.1, 1.2, 1.4, 3.0])
    a = stats.skew(sample, bias=False) / np.sqrt(5)
    for end, quantile in zip(mean_interval(sample), stats.t.ppf([0.975, 0.025], 4), strict=True):
        x = (sample.mean() - end) / stats.sem(sample)
        assert x + a * x**2 / 3 + a**2 * x**3 / 27 + a / 6 == pytest.approx(quantile)
    low, high = mean_interval(sample)
    assert high - sample.mean() > sample.mean() - low  # towards the long tail
    assert mean_interval(-sample) == pytest.approx((-high, -low))


@pytest.mark.parametrize("sample", [[], [0.9], [0.9, 1.0], [1.0, 2.0, np.nan], [1.0, 2.0, np.inf]])
def test_mean_has_no_interval_from_two_seeds_or_unknown_values(sample) -> None:
    assert mean_interval(sample) is None


def test_equal_seeds_give_an_interval_without_width() -> None:
    assert mean_interval([0.75] * 5) == (0.75, 0.75)
    assert contrast([Mean.of([1.0] * 5), Mean.of([0.9] * 3, -1.0)]) == pytest.approx((0.1, 0.1))


def test_median_takes_the_range_of_at_least_five_seeds() -> None:
    assert median_range([1, 2, 3, 4], [1, 2, 3, 4]) is None
    assert median_range([5, 1, 3, 4, 2], [5, 1, 3, 4, 2]) == (1, 5)
    assert median_range([5, 1, 3, 4, 50], [5, 1, 3, 4, np.inf]) == (1, np.inf)
    assert 1 - 2 * 0.5**5 == 0.9375


def test_mann_whitney_counts_are_those_of_all_orders() -> None:
    m, n = 3, 4
    counts = np.zeros(m * n + 1)
    for places in combinations(range(m + n), m):
        counts[sum(place - i for i, place in enumerate(places))] += 1
    np.testing.assert_array_equal(_mann_whitney(m, n), counts)


def test_mann_whitney_distribution_sums_to_all_orders_at_fifty_seeds() -> None:
    assert _mann_whitney(50, 50).sum() == pytest.approx(math.comb(100, 50), rel=1e-9)


@pytest.mark.parametrize(("m", "n", "left_out"), [(3, 3, None), (3, 5, 0), (4, 4, 0), (5, 5, 2), (10, 10, 23)])
def test_quotients_left_out_are_the_critical_values_of_the_test(m: int, n: int, left_out: int | None) -> None:
    """The published critical values of U at 5%, two-sided."""
    assert _outside(m, n) == left_out


def test_ratio_is_the_median_quotient_and_its_interval_inverts_the_test() -> None:
    above, below = np.array([40.0, 52, 37, 45, 61]), np.array([8.0, 11, 9, 7, 12])
    estimate, interval = hodges_lehmann_ratio((above, above), (below, below))
    assert interval is not None
    assert estimate == (pytest.approx(np.median(above[:, None] / below)),) * 2
    for ratio, inside in ((interval[0] * 1.001, True), (interval[0] * 0.999, False), (interval[1] * 1.001, False)):
        p = stats.mannwhitneyu(above, ratio * below, method="exact").pvalue
        assert (p > 0.05) == inside


def test_censored_seeds_make_the_ratio_a_bound() -> None:
    low, high = np.array([100.0, 100, 90, 80, 70]), np.array([np.inf, np.inf, 90, 80, 70])
    below = np.array([40.0, 41, 42, 43, 44])
    estimate, interval = hodges_lehmann_ratio((low, high), (below, below))
    assert estimate[0] <= estimate[1]
    assert interval is not None
    assert interval[1] == np.inf
    assert interval[0] > 1.5
    reverse, _ = hodges_lehmann_ratio((below, below), (low, high))
    assert reverse[0] <= 1 / estimate[0]


def test_share_of_seeds_is_exact() -> None:
    low, high = clopper_pearson(5, 5)
    assert (low, high) == (pytest.approx(0.025 ** (1 / 5)), 1.0)
    assert clopper_pearson(0, 5)[0] == 0.0


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=3, max_size=9))
def test_interval_holds_the_mean_in_any_order(values) -> None:
    low, high = mean_interval(values)
    assert low - 1e-9 <= np.mean(values) <= high + 1e-9
    assert mean_interval(values[::-1]) == pytest.approx((low, high))


@pytest.fixture(scope="module")
def coverage(root: Path):
    spec = importlib.util.spec_from_file_location("coverage_of_intervals", root / "benchmarks" / "coverage.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.coverage(trials=1200, seeds=5)


def test_every_interval_in_use_covers_at_least_92_percent_at_five_seeds(coverage) -> None:
    """Two standard errors of 1,200 samples are 1.5%; the least that 10,000 samples gave is 92.5%."""
    for (interval, name), share in coverage.items():
        if interval != "mean, Student's t" and name != "10% never learn":
            assert share >= 0.92 - 0.012, (interval, name)


def test_five_seeds_say_little_of_rare_failures(coverage) -> None:
    """Where one seed in ten fails, five all succeed in 59% of samples, and their interval is a point off the truth."""
    assert coverage["mean", "10% never learn"] == pytest.approx(1 - 0.9**5, abs=0.04)


def test_students_t_alone_covers_less_for_skewed_seeds(coverage) -> None:
    """Therefore it is corrected for skewness."""
    for name in ("exponential", "skewed integers"):
        assert coverage["mean, Student's t", name] < coverage["mean", name] - 0.02
