"""Verdicts from numbers alone, by the rules of ``docs/verdicts.md``. This module reads no file and names no claim."""

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from scipy.stats import binomtest, fisher_exact

from ..stats import MIN_FOR_MEDIAN, MIN_SEEDS, Interval

Verdict: TypeAlias = Literal["reproduced", "differs", "inconclusive", "not run"]
VERDICTS: tuple[Verdict, ...] = ("reproduced", "differs", "inconclusive", "not run")
ROUNDING = 1e-9  # 0.9 - 0.88 is within 0.02
LEVEL = 0.05
NEAR = 0.05  # largest difference in correlation at which two layers count as near
LEARNS = 0.75  # smallest accuracy that counts as learning: halfway to 0.5, at which one bit is left to chance
SHARE = 0.2  # tolerance of a share of runs that learn: one in five


class Modes(NamedTuple):
    """For the n seeds of one kind of run: how many learn, and the mean accuracies of these and of the others."""

    learning: int
    n: int
    right: float
    wrong: float

    @classmethod
    def of(cls, accuracies: "np.ndarray") -> "Modes":
        """Count from the accuracy of each seed, with `LEARNS` or more as learning."""
        learns = accuracies >= LEARNS
        right = float(accuracies[learns].mean()) if learns.any() else 1.0
        wrong = float(accuracies[~learns].mean()) if not learns.all() else 0.0
        return cls(int(learns.sum()), len(learns), right, wrong)

    def published(self, value: float) -> float:
        """The share of learning runs at which the mean over all runs equals the published value."""
        return float(np.clip((value - self.wrong) / (self.right - self.wrong), 0.0, 1.0))


def of_bound(accepted: Interval, interval: Interval | None) -> Verdict:
    """Reproduced if the whole interval is within the accepted one, differs if it is outside."""
    if interval is None:
        return "inconclusive"
    slack = ROUNDING * max(1.0, *(abs(end) for end in accepted if np.isfinite(end)))
    low, high = accepted[0] - slack, accepted[1] + slack
    if low <= interval[0] and interval[1] <= high:
        return "reproduced"
    return "differs" if interval[1] < low or interval[0] > high else "inconclusive"


def of_mean(value: float, tolerance: float, ours: float, interval: Interval | None) -> Verdict:
    """Compare with a published mean: ours must be within the tolerance, and its interval within twice the tolerance."""
    if interval is None:
        return "inconclusive"
    slack = ROUNDING * max(1.0, abs(value))
    if abs(ours - value) <= tolerance + slack:
        return "reproduced" if _within(value, tolerance, interval) else "inconclusive"
    return "inconclusive" if interval[0] - slack <= value <= interval[1] + slack else "differs"


def _within(value: float, tolerance: float, interval: Interval) -> bool:
    return of_bound((value - 2 * tolerance, value + 2 * tolerance), interval) == "reproduced"


def of_share(value: float, modes: Modes, interval: Interval) -> Verdict:
    """Compare the share of seeds that learn with the share that the published mean of five runs implies."""
    if modes.n < MIN_FOR_MEDIAN:
        return "inconclusive"
    share, ours = modes.published(value), modes.learning / modes.n
    if abs(ours - share) <= SHARE + ROUNDING:
        return "reproduced" if _within(share, SHARE, interval) else "inconclusive"
    theirs = round(5 * share)
    table = [[modes.learning, modes.n - modes.learning], [theirs, 5 - theirs]]
    return "differs" if fisher_exact(table).pvalue <= LEVEL else "inconclusive"


def of_votes(layer: int, votes: Mapping[int, int]) -> Verdict:
    """Test the published layer's share of votes by exact binomial tests: against one in six, and against a half."""
    n, hits = sum(votes.values()), votes.get(layer, 0)
    others = max((count for other, count in votes.items() if other != layer), default=0)
    if n < MIN_SEEDS:
        return "inconclusive"
    if hits > others and binomtest(hits, n, 1 / 6, "greater").pvalue <= LEVEL:
        return "reproduced"
    return "differs" if binomtest(hits, n, 0.5, "less").pvalue <= LEVEL else "inconclusive"


def of_layer(layer: int, votes: Mapping[int, int], behind: Interval | None) -> Verdict:
    """Combine the votes with the published layer's distance to the best: reproduced also if it is near the best."""
    by_votes, by_distance = of_votes(layer, votes), of_bound((-np.inf, NEAR), behind)
    if "reproduced" in (by_votes, by_distance):
        return "reproduced"
    return "differs" if by_votes == by_distance == "differs" else "inconclusive"


def of_ceiling(accepted: Interval, exact: float, limit: float, reached: "np.ndarray") -> Verdict:
    """Compare the exact ceiling with the published accuracy; at least three seeds must stay below their own limit."""
    if not accepted[0] <= exact <= accepted[1]:
        return "differs"
    if not len(reached):
        return "not run"
    return "reproduced" if len(reached) >= MIN_SEEDS and (reached <= limit + ROUNDING).all() else "inconclusive"
