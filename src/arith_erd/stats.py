"""Intervals over seeds."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import stats

MIN_SEEDS = 3
RESAMPLES = 4999
DRAWS = 1_000_000  # at most: with hundreds of seeds fewer resamples do

Statistic = Callable[..., Any]
"""``np.mean`` or ``np.median``: anything that takes an array and an ``axis``."""


def bootstrap_interval(
    values: Sequence[float], confidence: float = 0.95, statistic: Statistic = np.mean
) -> tuple[float, float] | None:
    """Bootstrap interval of a statistic: BCa, or percentile where BCa is undefined (all values equal).

    ``[0.99, 1.0, 1.0]`` -> ``(0.99, 1.0)``. The same values give the same interval each time, in whatever order they
    come. None from fewer than 3 values, from which no interval can be had.

    Args:
        values: one a seed.
        confidence: of the interval.
        statistic: of the values; vectorised over an ``axis``.
    """
    sample = np.sort(np.asarray(values, dtype=float))
    if len(sample) < MIN_SEEDS or not np.isfinite(sample).all():
        return None
    if np.ptp(sample) == 0:
        return float(sample[0]), float(sample[0])
    for method in ("BCa", "percentile"):
        with warnings.catch_warnings():  # a degenerate sample shows in the interval
            warnings.simplefilter("ignore", stats.DegenerateDataWarning)
            warnings.simplefilter("ignore", RuntimeWarning)
            found = stats.bootstrap(
                (sample,),
                statistic,
                confidence_level=confidence,
                n_resamples=min(RESAMPLES, max(999, DRAWS // len(sample))),
                method=method,
                rng=0,
            ).confidence_interval
        if np.isfinite([found.low, found.high]).all():
            return float(found.low), float(found.high)
    return None
