"""Intervals over seeds: their definitions, their coverage, and when there is none."""

import math

import numpy as np
import pytest
from scipy import stats

from arith_erd.paper.studies.coverage import coverage
from arith_erd.stats import Estimate, Moments, clopper_pearson, stuck_status


def test_mean_without_skewness_has_students_t_interval() -> None:
    sample = [0.91, 0.93, 0.95, 0.97, 0.99]
    expected = stats.ttest_1samp(sample, 0).confidence_interval(0.95)
    assert Estimate.of_means([Moments.from_values(sample)]).interval == pytest.approx((expected.low, expected.high))


def test_difference_of_means_without_skewness_has_a_t_interval_no_narrower_than_welchs() -> None:
    one, other = [0.91, 0.93, 0.95, 0.97, 0.99], [0.8, 0.7, 0.9]
    error = np.hypot(stats.sem(one), stats.sem(other))
    low, high = Estimate.of_means([Moments.from_values(one), Moments.from_values(other, -1.0)]).interval
    assert ((low + high) / 2, (high - low) / 2) == pytest.approx((0.15, stats.t.ppf(0.975, df=2) * error))
    welch = stats.ttest_ind(one, other, equal_var=False).confidence_interval(0.95)
    assert low <= welch.low < welch.high <= high


def test_ends_of_a_skewed_samples_interval_are_quantiles_of_halls_transformation() -> None:
    sample = np.array([1.0, 1.1, 1.2, 1.4, 3.0])
    a = stats.skew(sample, bias=False) / np.sqrt(5)
    low, high = Estimate.of_means([Moments.from_values(sample)]).interval
    for end, quantile in zip((low, high), stats.t.ppf([0.975, 0.025], 4), strict=True):
        x = (sample.mean() - end) / stats.sem(sample)
        assert x + a * x**2 / 3 + a**2 * x**3 / 27 + a / 6 == pytest.approx(quantile)
    assert Estimate.of_means([Moments.from_values(-sample)]).interval == pytest.approx((-high, -low))
    assert Estimate.of_means([Moments.from_values(sample[::-1])]).interval == pytest.approx((low, high))


def test_mean_of_further_runs_has_the_errors_of_both_means() -> None:
    sample = np.array([0.91, 0.93, 0.95, 0.97, 0.99])
    half = stats.t.ppf(0.98, 4) * sample.std(ddof=1) * math.sqrt(1 / 5 + 1 / 5)
    assert Estimate.of_prediction(Moments.from_values(sample)).interval == pytest.approx((0.95 - half, 0.95 + half))
    wide, narrow = (Estimate.of_prediction(Moments.from_values(sample), runs).interval for runs in (1, 10**9))
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_mean_needs_three_seeds_and_equal_seeds_give_no_width() -> None:
    for sample in ([0.9, 1.0], [1.0, 2.0, np.nan]):
        assert Estimate.of_means([Moments.from_values(sample)]).interval is None
    assert Estimate.of_means([Moments.from_values([0.75] * 5)]).interval == (0.75, 0.75)
    assert Estimate.of_prediction(Moments.from_values([0.9, 0.9])).interval is None


@pytest.mark.parametrize(("n", "depth"), [(5, 1), (6, 1), (7, 1), (8, 2), (10, 2), (15, 4), (20, 6)])
def test_median_lies_between_the_deepest_seeds_that_cover_it_in_92_percent(n: int, depth: int) -> None:
    seeds = np.arange(1.0, n + 1)
    assert Estimate.of_median((seeds[::-1], seeds[::-1])).interval == (depth, n + 1 - depth)
    coverage = [1 - 2 * stats.binom.cdf(d - 1, n, 0.5) for d in (depth, depth + 1)]
    assert coverage[0] >= 0.92 > coverage[1]


def test_median_of_censored_seeds_is_open_above_and_needs_five_seeds() -> None:
    assert Estimate.of_median(([5, 1, 3, 4, 50], [5, 1, 3, 4, np.inf])).interval == (1, np.inf)
    assert Estimate.of_median(([*range(7), 50], [*range(7), np.inf])).interval == (1, 6)
    assert Estimate.of_median(([1, 2, 3, 4], [1, 2, 3, 4])).interval is None


def test_ratio_is_the_median_quotient_and_its_interval_inverts_the_test() -> None:
    above, below = np.array([40.0, 52, 37, 45, 61]), np.array([8.0, 11, 9, 7, 12])
    ratio = Estimate.of_ratio((above, above), (below, below))
    interval = ratio.interval
    assert ratio.value == pytest.approx(np.median(above[:, None] / below))
    for ratio, inside in ((interval[0] * 1.001, True), (interval[0] * 0.999, False), (interval[1] * 1.001, False)):
        p = stats.mannwhitneyu(above, ratio * below, method="exact").pvalue
        assert (p > 0.05) == inside
    ratio = Estimate.of_ratio((np.full(5, 60.0), np.full(5, np.inf)), (below, below))
    assert (ratio.high, ratio.interval[1]) == (np.inf, np.inf)  # of censored seeds they are bounds
    assert ratio.interval[0] == pytest.approx(60 / 12)


def test_shares_of_seeds_have_clopper_pearsons_limits_and_differences_are_wider() -> None:
    assert clopper_pearson(5, 5) == (pytest.approx(0.025 ** (1 / 5)), 1.0)
    assert Estimate.of_shares([(1.0, 3, 5)]).interval == pytest.approx(clopper_pearson(3, 5))
    low, high = Estimate.of_shares([(1.0, 18, 20), (-1.0, 9, 20)]).interval
    assert 0 < low < 0.45 < high
    assert Estimate.of_shares([(1.0, 9, 20), (-1.0, 18, 20)]).interval == pytest.approx((-high, -low))


def test_intervals_are_clipped_to_the_range_of_their_measure() -> None:
    assert Estimate.of_means([Moments.from_values([13, 4.73, 0.453])]).interval[0] < 0
    assert Estimate.of_means([Moments.from_values([13, 4.73, 0.453])], (0, np.inf)).interval[0] == 0
    assert Estimate.of_prediction(Moments.from_values([0.9, 0.95, 1.0]), 5, (0, 1)).interval[1] == 1


def test_every_interval_in_use_covers_about_92_percent_or_more_with_five_seeds() -> None:
    """Two standard errors of 700 samples are 2%; ``paper/results/verdict-rules.md`` has 10,000 samples."""
    found = coverage(samples=700, seeds=5)
    assert {what for what, _ in found} >= {"mean of five more", "median", "share that learns", "difference of shares"}
    for key, share in found.items():
        assert share >= 0.92 - 0.02, key


@pytest.mark.parametrize(
    ("right", "n", "majority", "training", "expected"),  # held out; of 1000 in training, where half would be chance
    [
        (2032, 4096, 0.5, 500, "never learned"),  # 49.6%
        (2032, 4096, 0.5, 1000, "lost held out"),
        (2032, 4096, 0.5, 700, ""),  # half learned in training
        (2122, 4096, 0.5, 537, "never learned"),  # the 99% quantiles
        (2123, 4096, 0.5, 537, ""),
        (4000, 4096, 1.0, 500, ""),  # the token is the same in all of these examples
        (3, 5, 0.6, 1000, ""),  # too few to tell
    ],
)
def test_stuck_token_is_no_better_held_out_than_the_commonest_answer(right, n, majority, training, expected):
    assert stuck_status((training, 1000, 0.5), (right, n, majority)) == expected
    assert stuck_status((0, 0, 1.0), (right, n, majority)) == ""  # nothing is lost that was not trained
