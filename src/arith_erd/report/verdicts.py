"""The rules of ``docs/verdicts.md``, from numbers alone."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from scipy.stats import binomtest, fisher_exact

from ..stats import LEARNING_ACCURACY, MIN_FOR_MEDIAN, MIN_SEEDS, Interval

Verdict: TypeAlias = Literal["reproduced", "differs", "inconclusive", "not run"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
ROUNDING = 1e-9  # 0.9 - 0.88 is within 0.02
SIGNIFICANCE = 0.05
NEAR_CORRELATION = 0.05  # largest difference in correlation at which two layers count as near
SHARE_TOLERANCE = 0.2  # tolerance of a share of runs that learn: one in five


class LearningCounts(NamedTuple):
    """For n seeds of one kind of run: how many learn, and the mean accuracies of those that do and do not."""

    learning: int
    n: int
    learning_mean: float
    failing_mean: float

    @classmethod
    def from_accuracies(cls, accuracies: np.ndarray) -> "LearningCounts":
        """Count from each seed's accuracy. A seed learns if it reaches `LEARNING_ACCURACY`."""
        learns = accuracies >= LEARNING_ACCURACY
        right = float(accuracies[learns].mean()) if learns.any() else 1.0
        wrong = float(accuracies[~learns].mean()) if not learns.all() else 0.0
        return cls(int(learns.sum()), len(learns), right, wrong)


def interval_verdict(accepted: Interval, interval: Interval | None) -> Verdict:
    """Reproduced if the whole interval is within the accepted one, differs if it is outside."""
    if interval is None:
        return "inconclusive"
    slack = ROUNDING * max([1.0, *(abs(end) for end in accepted if np.isfinite(end))])
    low, high = accepted[0] - slack, accepted[1] + slack
    if low <= interval[0] and interval[1] <= high:
        return "reproduced"
    return "differs" if interval[1] < low or interval[0] > high else "inconclusive"


def mean_verdict(value: float, tolerance: float, ours: float, interval: Interval | None) -> Verdict:
    """Compare with a published mean, which is excluded if it is outside our interval."""
    excluded = interval_verdict((value, value), interval) == "differs"
    return _near_verdict(value, tolerance, ours, interval, excluded)


def _near_verdict(value: float, tolerance: float, ours: float, interval: Interval | None, excluded: bool) -> Verdict:
    """Reproduced if ours is within the tolerance and its interval within twice that; differs if ``excluded``."""
    if abs(ours - value) > tolerance + ROUNDING:
        return "differs" if excluded else "inconclusive"
    within = interval_verdict((value - 2 * tolerance, value + 2 * tolerance), interval)
    return "inconclusive" if within == "differs" else within


def share_verdict(value: float, counts: LearningCounts, interval: Interval, mean_of: int, one_sided: bool) -> Verdict:
    """Compare the share of seeds that learn with the share that a published mean of ``mean_of`` runs implies.

    With ``one_sided`` more may learn.
    """
    if counts.n < MIN_FOR_MEDIAN:
        return "inconclusive"
    share = float(np.clip((value - counts.failing_mean) / (counts.learning_mean - counts.failing_mean), 0.0, 1.0))
    share = max(share, counts.learning / counts.n) if one_sided else share
    published_hits = round(mean_of * share)
    table = [[counts.learning, counts.n - counts.learning], [published_hits, mean_of - published_hits]]
    excluded = fisher_exact(table).pvalue <= SIGNIFICANCE
    return _near_verdict(share, SHARE_TOLERANCE, counts.learning / counts.n, interval, excluded)


def votes_verdict(layer: int, num_layers: int, votes: Mapping[int, int]) -> Verdict:
    """Test the published layer's share of votes by exact binomial tests: against ``1 / num_layers``, and a half."""
    n, hits = sum(votes.values()), votes.get(layer, 0)
    others = max((count for other, count in votes.items() if other != layer), default=0)
    if n < MIN_SEEDS:
        return "inconclusive"
    if hits > others and binomtest(hits, n, 1 / num_layers, "greater").pvalue <= SIGNIFICANCE:
        return "reproduced"
    return "differs" if binomtest(hits, n, 0.5, "less").pvalue <= SIGNIFICANCE else "inconclusive"


def layer_verdict(layer: int, num_layers: int, votes: Mapping[int, int], gap: Interval | None) -> Verdict:
    """Combine the votes with the published layer's distance to the best: reproduced also if it is near the best."""
    by_votes = votes_verdict(layer, num_layers, votes)
    by_distance = interval_verdict((-np.inf, NEAR_CORRELATION), gap)
    if "reproduced" in (by_votes, by_distance):
        return "reproduced"
    return "differs" if by_votes == by_distance == "differs" else "inconclusive"


def derived_verdict(accepted: Interval, exact: float, limit: float, accuracies: np.ndarray) -> Verdict:
    """Compare a derived number with the published one. At least three seeds must confirm the limit that it implies."""
    if not accepted[0] <= exact <= accepted[1]:
        return "differs"
    if not len(accuracies):
        return "not run"
    below = (accuracies <= limit + ROUNDING).all()
    return "reproduced" if len(accuracies) >= MIN_SEEDS and below else "inconclusive"


def count_verdicts(verdicts: Iterable[str]) -> str:
    """Counts of verdicts as text: ``16 reproduced, 2 differ, 19 not run``."""
    counts = Counter(verdicts)
    words = {verdict: "differ" if verdict == "differs" and counts[verdict] > 1 else verdict for verdict in VERDICTS}
    return ", ".join(f"{counts[verdict]} {words[verdict]}" for verdict in VERDICTS if counts[verdict])
