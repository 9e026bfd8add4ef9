"""95% intervals over seeds. ``docs/verdicts.md`` says which claim uses which.

``benchmarks/coverage.py`` measures how often each of them holds the truth at five seeds.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import stats

MIN_SEEDS = 3
MIN_FOR_MEDIAN = 5
CONFIDENCE = 0.95
EXACT_PAIRS = 2500  # up to 50 seeds against 50, Mann-Whitney's distribution is counted, beyond that it is normal

Interval: TypeAlias = tuple[float, float]
Floats: TypeAlias = npt.NDArray[np.float64]
Bounds: TypeAlias = tuple[npt.ArrayLike, npt.ArrayLike]
"""Lower and upper bounds of each seed's value; the upper one is infinite if a seed never reached the goal."""


class Mean(NamedTuple):
    """The mean of one kind of run: one term of a `contrast`."""

    mean: float
    deviation: float
    n: int
    weight: float = 1.0

    @classmethod
    def of(cls, values: npt.ArrayLike, weight: float = 1.0) -> "Mean":
        """From one value per seed."""
        sample = np.asarray(values, dtype=float)
        deviation = float(sample.std(ddof=1)) if len(sample) > 1 and np.ptp(sample) > 0 else 0.0
        return cls(float(sample.mean()), deviation, len(sample), weight)


def contrast(terms: Sequence[Mean]) -> Interval | None:
    """Welch's t interval of a weighted sum of means of unpaired samples; of one term it is Student's t.

    ``[Mean.of([0.9, 1.0, 1.1])]`` -> ``(0.752, 1.248)``. Degrees of freedom are Welch's and Satterthwaite's.
    None if a term has fewer than 3 seeds; of width 0 if no sample varies.
    """
    if min(term.n for term in terms) < MIN_SEEDS or not all(math.isfinite(term.mean) for term in terms):
        return None
    middle = sum(term.weight * term.mean for term in terms)
    variances = [(term.weight * term.deviation) ** 2 / term.n for term in terms]
    total = sum(variances)
    if total == 0:
        return middle, middle
    freedom = total**2 / sum(v**2 / (term.n - 1) for v, term in zip(variances, terms, strict=True))
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * math.sqrt(total)
    return middle - half, middle + half


def mean_interval(values: npt.ArrayLike) -> Interval | None:
    """Student's t interval of a mean over seeds; None from fewer than 3 seeds or values that are not finite."""
    sample = np.asarray(values, dtype=float)
    return contrast([Mean.of(sample)]) if len(sample) and np.isfinite(sample).all() else None


def median_range(low: npt.ArrayLike, high: npt.ArrayLike) -> Interval | None:
    """The range over seeds: it holds the median with probability 1 - 2 ** (1 - n), 93.75% at n = 5.

    Args:
        low, high: bounds of each seed's value; infinite for a seed that never reached the goal.

    Returns:
        None from fewer than 5 seeds, which have no such interval.
    """
    low, high = np.asarray(low, dtype=float), np.asarray(high, dtype=float)
    return (float(low.min()), float(high.max())) if len(low) >= MIN_FOR_MEDIAN else None


def clopper_pearson(hits: int, n: int) -> Interval:
    """The exact interval of a share: ``clopper_pearson(5, 5)`` -> ``(0.478, 1.0)``."""
    found = stats.binomtest(hits, n).proportion_ci(CONFIDENCE, method="exact")
    return float(found.low), float(found.high)


def hodges_lehmann_ratio(above: Bounds, below: Bounds) -> tuple[Interval, Interval | None]:
    """The ratio of two unpaired samples: the median of all quotients, and the inverted Mann-Whitney test.

    ``([2., 4.], [2., 4.])`` over ``([1., 2.], [1., 2.])`` -> an estimate of ``(2.0, 2.0)`` and no interval: two seeds
    against two cannot differ at 5%. Quotients with a censored seed are bounds.

    Args:
        above, below: bounds of the seeds.

    Returns:
        Bounds of the estimate, and the 95% interval, None for too few seeds.
    """
    (low, high), (low_below, high_below) = (tuple(np.asarray(x, dtype=float) for x in pair) for pair in (above, below))
    smallest = np.sort((low[:, None] / high_below).ravel())  # x / inf is 0
    largest = np.sort((high[:, None] / low_below).ravel())
    estimate = float(np.median(smallest)), float(np.median(largest))
    left_out = _outside(len(low), len(low_below))
    if left_out is None:
        return estimate, None
    return estimate, (float(smallest[left_out]), float(largest[-1 - left_out]))


@cache
def _outside(m: int, n: int) -> int | None:
    """How many of the m n sorted quotients lie outside the interval, at each end; None if even none is too many."""
    tail = (1 - CONFIDENCE) / 2
    if m * n > EXACT_PAIRS:
        return int(m * n / 2 - stats.norm.ppf(1 - tail) * math.sqrt(m * n * (m + n + 1) / 12))
    below = np.cumsum(_mann_whitney(m, n)) / math.comb(m + n, m)
    return int((below <= tail).sum()) - 1 if below[0] <= tail else None


def _mann_whitney(m: int, n: int) -> Floats:
    """Number of orders (m n + 1,) of m and n values by U: coefficients of a Gaussian binomial."""
    counts = np.ones(1)
    for i in range(1, m + 1):
        factor = np.zeros(n + i + 1)
        factor[0], factor[n + i] = 1, -1
        counts = np.convolve(counts, factor)
        divided = counts.copy()
        for k in range(i, len(divided)):  # by 1 - q ** i, a series
            divided[k] += divided[k - i]
        counts = divided[: i * n + 1]
    return np.round(counts)


@dataclass(frozen=True)
class Estimate:
    """An estimate over seeds.

    Attributes:
        low, high: the smallest and the largest that it can be; they differ only where censored seeds leave it open.
        method: what it is, and the interval.
        again: the 95% interval from so many seeds of each kind, were they like these, or from these: None. It is None
            from too few seeds.
    """

    low: float
    high: float
    method: str
    again: Callable[[int | None], Interval | None]

    @cached_property
    def interval(self) -> Interval | None:
        return self.again(None)

    @property
    def value(self) -> float | None:
        return self.low if self.low == self.high else None

    @classmethod
    def exact(cls, value: float) -> "Estimate":
        return cls(value, value, "exact", lambda n: (value, value))

    @classmethod
    def of_means(cls, terms: Sequence[Mean], span: Interval = (-math.inf, math.inf)) -> "Estimate":
        """A weighted sum of means, whose interval is cut at the ends of ``span``."""

        def again(n: int | None) -> Interval | None:
            found = contrast([term._replace(n=n or term.n) for term in terms])
            return (max(found[0], span[0]), min(found[1], span[1])) if found else None

        value = sum(term.weight * term.mean for term in terms)
        method = "mean, Student's t" if len(terms) == 1 else "difference of means, Welch's t"
        return cls(value, value, method, again)

    @classmethod
    def of_median(cls, seeds: Bounds) -> "Estimate":
        low, high = (float(np.median(np.asarray(bound, dtype=float))) for bound in seeds)
        method = "median, from the smallest to the largest seed"
        return cls(low, high, method, lambda n: median_range(*_repeated(seeds, n)))

    @classmethod
    def of_ratio(cls, above: Bounds, below: Bounds) -> "Estimate":
        (low, high), _ = hodges_lehmann_ratio(above, below)
        again = lambda n: hodges_lehmann_ratio(_repeated(above, n), _repeated(below, n))[1]  # noqa: E731
        return cls(low, high, "Hodges-Lehmann, Mann-Whitney", again)


def _repeated(seeds: Bounds, n: int | None) -> Bounds:
    """The same seeds again and again, until there are n."""
    low, high = (np.asarray(bound, dtype=float) for bound in seeds)
    return np.resize(low, n or len(low)), np.resize(high, n or len(high))
