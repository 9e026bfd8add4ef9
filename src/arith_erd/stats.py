"""95% intervals over seeds. ``docs/verdicts.md`` says which interval each kind of claim uses.

``paper/studies/coverage.py`` measures how often each interval contains the true value, at the numbers of seeds in use.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import special, stats

MIN_SEEDS = 3
MIN_FOR_MEDIAN = 5
CONFIDENCE = 0.95
MEDIAN_COVERAGE = 0.92  # smallest coverage by order statistics: at five seeds the largest possible is 93.75%
LEARNING_ACCURACY = 0.75  # a network learns if it reaches this; at 0.5 one bit is left to chance
LEARNED_TOKEN_ACCURACY = 0.99  # smallest accuracy of an answer token that counts as learned
TARGET_ACCURACY = 0.95  # a run counts the epochs until its validation sequence accuracy reaches this
EXACT_METHOD = "exact"  # the method of an estimate that no seed can change
PREDICTION_LEVEL = 0.96  # level at which prediction intervals still cover 92% for three skewed seeds
MAX_EXACT_PAIRS = 2500  # Mann-Whitney's distribution is exact up to 50 seeds against 50, beyond that normal

Interval: TypeAlias = tuple[float, float]
ANY_VALUE: Interval = (-math.inf, math.inf)
TokenCounts: TypeAlias = tuple[int, int, float]
"""Right examples, all examples n, and the share of the most common answer."""
Bounds: TypeAlias = tuple[npt.ArrayLike, npt.ArrayLike]
"""Lower and upper bounds of each seed's value; the upper bound is infinite if a seed never reached the goal."""


class Moments(NamedTuple):
    """One term of `Estimate.of_means`: mean, deviation and skewness over the seeds of one kind of run."""

    mean: float
    deviation: float
    n: int
    weight: float = 1.0
    skewness: float = 0.0  # adjusted for the size of the sample (Fisher and Pearson's G1)

    @classmethod
    def from_values(cls, values: npt.ArrayLike, weight: float = 1.0) -> "Moments":
        """The term of a sample with one value per seed."""
        sample = np.asarray(values, dtype=float)
        n, mean = len(sample), float(sample.mean())
        centred, variance = sample - mean, float(sample.var())
        if n < 2 or np.ptp(sample) == 0 or variance**1.5 == 0:  # too small a spread for a skewness
            return cls(mean, 0.0, n, weight)
        skewness = 0.0
        if n >= MIN_SEEDS:  # equals `scipy.stats.skew` with bias=False, in a tenth of the time
            skewness = float((centred**3).mean()) / variance**1.5 * math.sqrt(n * (n - 1)) / (n - 2)
        return cls(mean, float(sample.std(ddof=1)), n, weight, skewness)


@cache
def clopper_pearson(hits: int, n: int) -> Interval:
    """Exact interval of a share: ``clopper_pearson(5, 5)`` -> ``(0.478, 1.0)``."""
    interval = stats.binomtest(hits, n).proportion_ci(CONFIDENCE, method="exact")
    return float(interval.low), float(interval.high)


def stuck_status(training: TokenCounts, held_out: TokenCounts) -> Literal["never learned", "lost held out", ""]:
    """Whether an answer token fails on held-out examples: ``never learned``, ``lost held out``, or empty.

    Both mean that the token fails `beats_majority` on held-out examples. If it fails on training examples too, it was
    ``never learned``. If it is right in at least 99% of them, it is ``lost held out``. Empty for any other token.

    >>> stuck_status((501, 1000, 0.51), (496, 1000, 0.51)), stuck_status((1000, 1000, 0.51), (496, 1000, 0.51))
    ('never learned', 'lost held out')
    """
    right, n, _majority = training
    if beats_majority(*held_out):
        return ""
    if right >= LEARNED_TOKEN_ACCURACY * n > 0:
        return "lost held out"
    return "" if beats_majority(*training) else "never learned"


def beats_majority(right: int, n: int, majority: float) -> bool:
    """Whether ``right`` of n examples is significantly more than the most common answer alone gets right.

    ``majority`` is the share of that answer. The bound is the 99% quantile of a binomial of n and ``majority``. Also
    True if the bound is 99% of n or more: then no test is possible, with too few examples or a nearly constant token.
    """
    bound = float(stats.binom.ppf(0.99, n, majority))
    return right > bound or bound >= LEARNED_TOKEN_ACCURACY * n


@cache
def _num_excluded(m: int, n: int) -> int | None:
    """How many of the m n sorted quotients the interval omits at each end; None if even all cover less than 95%."""
    tail = (1 - CONFIDENCE) / 2
    if m * n > MAX_EXACT_PAIRS:
        return int(m * n / 2 - stats.norm.ppf(1 - tail) * math.sqrt(m * n * (m + n + 1) / 12))
    # The number of orderings of m and n values for each U: the coefficients of a Gaussian binomial.
    counts = np.ones(1)
    for i in range(1, m + 1):  # times 1 - q ** (n + i), by 1 - q ** i
        factor, divisor = np.zeros(n + i + 1), np.zeros(i + 1)
        factor[[0, -1]] = divisor[[0, -1]] = 1, -1
        counts = np.asarray(np.polydiv(np.convolve(counts, factor), divisor)[0], dtype=np.float64)
    below = np.cumsum(np.round(counts)) / math.comb(m + n, m)
    return int((below <= tail).sum()) - 1 if below[0] <= tail else None


@dataclass(frozen=True)
class Estimate:
    """An estimate over seeds: its smallest and largest possible value, which differ only if seeds are censored.

    ``interval`` is the 95% interval, clipped to the range of the value; None if there are too few seeds.
    """

    low: float
    high: float
    method: str
    interval: Interval | None

    @property
    def value(self) -> float | None:
        return self.low if self.low == self.high else None

    @classmethod
    def exact(cls, value: float) -> "Estimate":
        return cls(value, value, EXACT_METHOD, (value, value))

    @classmethod
    def of_means(cls, terms: Sequence[Moments], value_range: Interval = ANY_VALUE) -> "Estimate":
        """A weighted sum of means of unpaired samples, with Student's t interval, corrected for skewness.

        ``[Moments.from_values([0.9, 1, 1.1])]`` -> ``(0.752, 1.248)``: without skewness it is Student's t interval. The
        degrees of freedom are those of the smallest sample, n - 1. Welch's can be more, and give too little coverage if
        a skewed sample is compared with one that varies less. The correction is Hall's (On the Removal of Skewness by
        Transformation, 1992), t + a t²/3 + a² t³/27 + a/6, where a is the skewness of the sum. For five seeds of an
        exponential distribution it covers at least 92%, Student's t 88%. A term with fewer than 3 seeds gives none.
        """
        value = sum(term.weight * term.mean for term in terms)
        total = sum((term.weight * term.deviation) ** 2 / term.n for term in terms)
        third = sum((term.weight * term.deviation) ** 3 * term.skewness / term.n**2 for term in terms)
        skewness = third / total**1.5 if total else 0.0
        interval = _t_interval(value, math.sqrt(total), min(term.n for term in terms), skewness, CONFIDENCE)
        method = f"{'mean' if len(terms) == 1 else 'difference of means'}, t corrected for skewness"
        return cls(value, value, method, _clip(value_range, interval))

    @classmethod
    def of_prediction(cls, sample: Moments, runs: int = 5, value_range: Interval = ANY_VALUE) -> "Estimate":
        """A mean, with the prediction interval for the mean of ``runs`` further runs.

        ``[0.9, 1.0, 1.1]`` -> ``(0.646, 1.354)``. As `of_means`, with both means' errors, half the skewness, level 96%.
        """
        error = sample.deviation * math.sqrt(1 / sample.n + 1 / runs)
        half_skewness = sample.skewness / math.sqrt(sample.n) / 2
        interval = _t_interval(sample.mean, error, sample.n, half_skewness, PREDICTION_LEVEL)
        method = f"mean, prediction interval for a mean of {runs} runs"
        return cls(sample.mean, sample.mean, method, _clip(value_range, interval))

    @classmethod
    def of_median(cls, seeds: Bounds) -> "Estimate":
        """A median, with the interval from the d-th smallest to the d-th largest seed; none for fewer than 5 seeds.

        d is the largest that covers at least 92%. With five seeds that is the range, which covers 93.75%:
        ``[28, 33, 32, 35, 38]`` -> ``(28, 38)``; with eight, from the second to the seventh seed, 93.0%.
        """
        low, high = (np.sort(np.asarray(bound, dtype=float)) for bound in seeds)
        n, interval = len(low), None
        if n >= MIN_FOR_MEDIAN:
            depth = int(stats.binom.ppf((1 - MEDIAN_COVERAGE) / 2, n, 0.5))
            interval = float(low[depth - 1]), float(high[n - depth])
        return cls(float(np.median(low)), float(np.median(high)), "median, order statistics", interval)

    @classmethod
    def of_ratio(cls, numerator: Bounds, divisor: Bounds) -> "Estimate":
        """The median of all quotients of two unpaired samples, with an interval by Mann-Whitney's test.

        ``[2, 4]`` over ``[1, 2]`` -> 2 and no interval, since two seeds against two cannot differ at 5%.
        """
        low, high = (np.asarray(bound, dtype=float) for bound in numerator)
        low_divisor, high_divisor = (np.asarray(bound, dtype=float) for bound in divisor)
        smallest = np.sort((low[:, None] / high_divisor).ravel())  # x / inf is 0
        largest = np.sort((high[:, None] / low_divisor).ravel())
        excluded = _num_excluded(len(low), len(low_divisor))
        interval = None if excluded is None else (float(smallest[excluded]), float(largest[-1 - excluded]))
        return cls(float(np.median(smallest)), float(np.median(largest)), "Hodges-Lehmann, Mann-Whitney", interval)

    @classmethod
    def of_shares(cls, terms: Sequence[tuple[float, int, int]]) -> "Estimate":
        """A weighted sum of shares of seeds ``(weight, hits, n)``: Clopper-Pearson limits, combined by square-and-add.

        ``[(1.0, 5, 5)]`` -> ``(0.478, 1.0)``; ``[(1.0, 5, 5), (-1.0, 0, 5)]`` -> ``(0.262, 1.0)``.
        """
        value = below = above = 0.0
        for weight, hits, n in terms:
            share, (low, high) = hits / n, clopper_pearson(hits, n)
            value += weight * share
            down, up = (share - low, high - share) if weight > 0 else (high - share, share - low)
            below, above = math.hypot(below, weight * down), math.hypot(above, weight * up)
        single, largest = len(terms) == 1, (len(terms) + 1) // 2
        method = "share of seeds that learn, Clopper-Pearson" if single else "difference of shares of seeds that learn"
        value_range = (0.0, 1.0) if single else (-largest, largest)
        return cls(value, value, method, _clip(value_range, (value - below, value + above)))


def _t_interval(center: float, error: float, n: int, skewness: float, level: float) -> Interval | None:
    """Center minus error times t, where t solves Hall's monotone cubic for Student's quantiles."""
    if n < MIN_SEEDS or not math.isfinite(center) or not math.isfinite(error):
        return None
    a, quantile = skewness, float(special.stdtrit(n - 1, (1 + level) / 2))
    high, low = (q if abs(a) < 1e-6 else 3 / a * (math.cbrt(1 + a * (q - a / 6)) - 1) for q in (quantile, -quantile))
    return center - high * error, center - low * error


def _clip(value_range: Interval, interval: Interval | None) -> Interval | None:
    """The part of an interval inside ``value_range``."""
    return (max(interval[0], value_range[0]), min(interval[1], value_range[1])) if interval else None
