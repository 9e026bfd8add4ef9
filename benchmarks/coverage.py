"""How often do the intervals of the report hold the truth at five seeds? ``python benchmarks/coverage.py``

It draws samples of five from distributions like those of seeds: normal, exponential (accuracies near a ceiling) and
skewed integers (epochs). It counts how often each interval of `arith_erd.stats` holds the true value. Student's t is
there for comparison: no claim uses it without its correction for skewness.
"""

import sys
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from arith_erd.stats import (
    Interval,
    Mean,
    clopper_pearson,
    contrast,
    hodges_lehmann_ratio,
    mean_interval,
    median_range,
)

SEEDS = 5
Sample = npt.NDArray[np.floating]
Draw = Callable[[np.random.Generator], Sample]
DRAWS: dict[str, tuple[Draw, float, float]] = {  # with mean and median
    "normal": (lambda rng: 10 + rng.normal(size=SEEDS), 10.0, 10.0),
    "exponential": (lambda rng: 1 + rng.exponential(size=SEEDS), 2.0, 1 + float(np.log(2))),
    "skewed integers": (lambda rng: 20.0 + rng.geometric(0.15, SEEDS), 20 + 1 / 0.15, 25.0),
}
SHARE = 0.8


def holds(interval: Interval | None, truth: float) -> bool:
    return interval is not None and interval[0] - 1e-12 <= truth <= interval[1] + 1e-12


def coverage(trials: int, seed: int = 0) -> dict[tuple[str, str], float]:
    """Share of samples whose interval holds the truth, by interval and distribution."""
    rng = np.random.default_rng(seed)
    hits: dict[tuple[str, str], int] = {}
    for name, (draw, mean, median) in DRAWS.items():
        for _ in range(trials):
            one, other = draw(rng), draw(rng)
            found = {
                "mean, Student's t": holds(contrast([Mean.of(one)._replace(skewness=0.0)]), mean),
                "mean": holds(mean_interval(one), mean),
                "difference of means": holds(contrast([Mean.of(one), Mean.of(other, -1.0)]), 0.0),
                "mean less an even one": holds(contrast([Mean.of(one), Mean.of(rng.normal(size=SEEDS), -1.0)]), mean),
                "median, range of the seeds": holds(median_range(one, one), median),
                "ratio, Mann-Whitney": holds(hodges_lehmann_ratio((2 * one, 2 * one), (other, other))[1], 2.0),
            }
            for interval, hit in found.items():
                hits[interval, name] = hits.get((interval, name), 0) + hit
    shares = rng.binomial(SEEDS, SHARE, trials)
    hits["share, Clopper-Pearson", f"{SHARE:.0%} of seeds"] = sum(
        holds(clopper_pearson(int(k), SEEDS), SHARE) for k in shares
    )
    return {key: count / trials for key, count in hits.items()}


if __name__ == "__main__":
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    print(f"coverage at {SEEDS} seeds, {trials:,} samples")
    for (interval, name), share in coverage(trials).items():
        print(f"{interval:32} {name:18} {share:7.1%}")
