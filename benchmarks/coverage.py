"""How often do the intervals of the report hold the truth at three to five seeds? ``python benchmarks/coverage.py``

It draws samples from distributions like those of seeds: normal, exponential (accuracies near a ceiling), skewed
integers (epochs), and the accuracies of seeds of which one in ten never learns. It counts how often each interval of
`arith_erd.stats` holds the true value. Student's t is there for comparison: no claim uses it without its correction for
skewness.
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

SEEDS = (3, 4, 5)
SHARE, NEVER = 0.8, 0.1
Sample = npt.NDArray[np.floating]
Draw = Callable[[np.random.Generator, int], Sample]
DRAWS: dict[str, tuple[Draw, float, float]] = {  # with mean and median
    "normal": (lambda rng, n: 10 + rng.normal(size=n), 10.0, 10.0),
    "exponential": (lambda rng, n: 1 + rng.exponential(size=n), 2.0, 1 + float(np.log(2))),
    "skewed integers": (lambda rng, n: 20.0 + rng.geometric(0.15, n), 20 + 1 / 0.15, 25.0),
    f"{NEVER:.0%} never learn": (lambda rng, n: np.where(rng.random(n) < NEVER, 0.5, 1.0), 1 - NEVER / 2, 1.0),
}


def holds(interval: Interval, truth: float) -> bool:
    return interval[0] - 1e-12 <= truth <= interval[1] + 1e-12


def coverage(trials: int, seeds: int, seed: int = 0) -> dict[tuple[str, str], float]:
    """Share of samples of so many seeds whose interval holds the truth, by interval and distribution.

    An interval that takes more seeds is left out.
    """
    rng = np.random.default_rng(seed)
    hits: dict[tuple[str, str], int] = {}
    for name, (draw, mean, median) in DRAWS.items():
        for _ in range(trials):
            one, other = draw(rng, seeds), draw(rng, seeds)
            even = Mean.of(rng.normal(size=seeds), -1.0)
            found = {
                "mean, Student's t": (contrast([Mean.of(one)._replace(skewness=0.0)]), mean),
                "mean": (mean_interval(one), mean),
                "difference of means": (contrast([Mean.of(one), Mean.of(other, -1.0)]), 0.0),
                "mean less an even one": (contrast([Mean.of(one), even]), mean),
                "median, range of the seeds": (median_range(one, one), median),
                "ratio, Mann-Whitney": (hodges_lehmann_ratio((2 * one, 2 * one), (other, other))[1], 2.0),
            }
            for what, (interval, truth) in found.items():
                if interval is not None:
                    hits[what, name] = hits.get((what, name), 0) + holds(interval, truth)
    shares = rng.binomial(seeds, SHARE, trials)
    hits["share, Clopper-Pearson", f"{SHARE:.0%} of seeds"] = sum(
        holds(clopper_pearson(int(k), seeds), SHARE) for k in shares
    )
    return {key: count / trials for key, count in hits.items()}


if __name__ == "__main__":
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    for seeds in SEEDS:
        print(f"coverage at {seeds} seeds, {trials:,} samples")
        for (what, name), share in coverage(trials, seeds).items():
            print(f"{what:32} {name:18} {share:7.1%}")
