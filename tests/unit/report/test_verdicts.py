"""Verdicts follow from numbers by the rules of ``docs/verdicts.md``."""

from functools import partial

import numpy as np

from arith_erd.report import verdicts
from arith_erd.stats import clopper_pearson


def share(hits: int, n: int, published: float, one_sided: bool = False) -> verdicts.Verdict:
    """The verdict on the share of n seeds that learn, beside a published mean of five runs."""
    counts = verdicts.LearningCounts.from_accuracies(np.array([1.0] * hits + [0.3] * (n - hits)))
    return verdicts.share_verdict(published, counts, clopper_pearson(hits, n), mean_of=5, one_sided=one_sided)


def test_verdicts_follow_from_numbers_by_the_rules() -> None:
    interval, mean = partial(verdicts.interval_verdict, (0.90, 0.94)), partial(verdicts.mean_verdict, 0.937, 0.02)
    votes, layer = partial(verdicts.votes_verdict, 3, 6), partial(verdicts.layer_verdict, 3, 6)
    cases = [
        (interval((0.91, 0.93)), "reproduced"),
        (interval((0.90, 0.94)), "reproduced"),  # the ends belong to the tolerance
        (interval((0.95, 0.99)), "differs"),
        (interval((0.93, 0.95)), "inconclusive"),
        (interval(None), "inconclusive"),
        (mean(0.935, (0.91, 0.96)), "reproduced"),  # within twice the tolerance
        (mean(0.935, (0.89, 0.97)), "inconclusive"),  # too wide to say
        (mean(0.965, (0.94, 0.99)), "differs"),  # the published 0.937 is outside, and ours is beyond the tolerance
        (mean(0.965, (0.93, 0.99)), "inconclusive"),
        (mean(0.950, (0.945, 0.955)), "reproduced"),  # outside, but within the tolerance
        (mean(0.937, None), "inconclusive"),
        (share(15, 20, 0.82), "reproduced"),  # which stands for 74% of runs that learn
        (share(3, 5, 0.82), "inconclusive"),
        (share(6, 20, 1.0), "differs"),  # from 5 of 5
        (share(12, 20, 1.0), "inconclusive"),  # five of five runs would be no surprise
        (share(3, 4, 0.82), "inconclusive"),  # takes five seeds
        (share(0, 20, 0.82), "differs"),
        (share(19, 20, 0.8, one_sided=True), "reproduced"),  # more may learn than a lower bound implies
        (share(2, 20, 0.8, one_sided=True), "differs"),
        (votes({3: 4, 2: 1}), "reproduced"),
        (votes({2: 3, 3: 2}), "inconclusive"),
        (votes({2: 5}), "differs"),
        (votes({3: 2}), "inconclusive"),
        (votes({3: 5, 1: 3, 2: 2}), "reproduced"),
        (verdicts.votes_verdict(3, 3, {3: 5, 1: 3, 2: 2}), "inconclusive"),  # chance is one in three
        (layer({2: 3, 3: 2}, (0.0, 0.04)), "reproduced"),  # near the best layer
        (layer({2: 5}, (0.0, 0.04)), "reproduced"),
        (layer({2: 5}, (0.02, 0.08)), "inconclusive"),
        (layer({2: 5}, (0.06, 0.08)), "differs"),
        (layer({3: 4, 2: 1}, None), "reproduced"),
        (verdicts.derived_verdict((0.0045, 0.0135), 0.0003, 0.0095, np.array([])), "differs"),  # a ceiling outside
    ]
    assert [given for given, _ in cases] == [verdict for _, verdict in cases]
