"""How often do the intervals of the report hold the truth? ``python -m arith_erd.paper.studies.coverage [samples]``

It draws samples from distributions like those of seeds: normal, exponential (accuracies near a ceiling), skewed
integers (epochs), and two modes (seven seeds in ten learn). It counts how often each interval of `arith_erd.stats`
holds what it is for, at the numbers of seeds in use: the mean of five further runs for a prediction interval, the true
value for all others. No claim takes a mean over two modes, so those have medians and shares only.
"""

import sys
from collections import Counter
from collections.abc import Callable

import numpy as np

from arith_erd.stats import Estimate, Interval, Moments

from ..formats import markdown

SEEDS = (3, 5, 8, 20)
SHARE, OTHER_SHARE = 0.7, 0.9  # of seeds that learn, in two kinds of runs
TWO_MODES = "two modes"
DISTRIBUTIONS: dict[str, tuple[Callable[[np.random.Generator, int], np.ndarray], float, float]] = {  # mean, median
    "normal": (lambda rng, n: 10 + rng.normal(size=n), 10.0, 10.0),
    "exponential": (lambda rng, n: 1 + rng.exponential(size=n), 2.0, 1 + float(np.log(2))),
    "skewed integers": (lambda rng, n: 20.0 + rng.geometric(0.15, n), 20 + 1 / 0.15, 25.0),
    TWO_MODES: (lambda rng, n: np.where(rng.random(n) < SHARE, 1.0, 0.5), 0.5 + SHARE / 2, 1.0),
}


def coverage(samples: int, seeds: int) -> dict[tuple[str, str], float]:
    """Share of samples of so many seeds whose interval holds the truth, by interval and distribution.

    An interval that takes more seeds is left out.
    """
    rng = np.random.default_rng(0)
    hits: Counter[tuple[str, str]] = Counter()
    for name, (draw, mean, median) in DISTRIBUTIONS.items():
        for _ in range(samples):
            one, other, further = draw(rng, seeds), draw(rng, seeds), float(draw(rng, 5).mean())
            moments, less = Moments.from_values(one), Moments.from_values(other, -1.0)
            intervals = {  # from two samples, with what each should hold
                "mean": (Estimate.of_means([moments]).interval, mean),
                "mean of five more": (Estimate.of_prediction(moments).interval, further),
                "difference of means": (Estimate.of_means([moments, less]).interval, 0.0),
                "median": (Estimate.of_median((one, one)).interval, median),
                "ratio": (Estimate.of_ratio((2 * one, 2 * one), (other, other)).interval, 2.0),
            }
            for what, (interval, truth) in intervals.items():
                if interval is not None and (name != TWO_MODES or what == "median"):
                    hits[what, name] += contains(interval, truth)
    for k, other_k in zip(rng.binomial(seeds, SHARE, samples), rng.binomial(seeds, OTHER_SHARE, samples), strict=True):
        shares = (1.0, int(k), seeds), (-1.0, int(other_k), seeds)
        one_share, difference = (Estimate.of_shares(shares[:number]).interval or (0.0, 0.0) for number in (1, 2))
        hits["share that learns", TWO_MODES] += contains(one_share, SHARE)
        hits["difference of shares", TWO_MODES] += contains(difference, SHARE - OTHER_SHARE)
    return {key: count / samples for key, count in hits.items()}


def contains(interval: Interval, truth: float) -> bool:
    return interval[0] - 1e-12 <= truth <= interval[1] + 1e-12


def table(samples: int) -> str:
    """Markdown: a row for each interval and number of seeds."""
    lines = [["interval, seeds", *DISTRIBUTIONS]]
    by_seeds = {seeds: coverage(samples, seeds) for seeds in SEEDS}
    for what in dict.fromkeys(what for shares in by_seeds.values() for what, _ in shares):
        for seeds, shares in by_seeds.items():
            cells = [f"{shares[what, name]:.1%}" if (what, name) in shares else "" for name in DISTRIBUTIONS]
            if any(cells):
                lines.append([f"{what}, {seeds}", *cells])
    return markdown(*lines)


if __name__ == "__main__":
    print(table(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
