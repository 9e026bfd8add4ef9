"""Verdicts from numbers alone, by the rules of ``docs/verdicts.md``. No file is read and no claim is named here."""

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from scipy.stats import binomtest, fisher_exact

from ..stats import MIN_FOR_MEDIAN, MIN_SEEDS, Interval

Verdict: TypeAlias = Literal["reproduced", "differs", "inconclusive", "not run"]
VERDICTS: tuple[Verdict, ...] = ("reproduced", "differs", "inconclusive", "not run")
ROUNDING = 1e-9  # 0.9 - 0.88 is within 0.02
LEVEL = 0.05
NEAR = 0.05  # correlation by which a layer may be behind another and count as near
LEARNS = 0.75  # between all answers right and the half that is right if one bit is left to chance
SHARE = 0.2  # tolerance of a share of runs that learn: one in five


class Modes(NamedTuple):
    """Of the seeds of one kind of run, how many learn; the mean accuracies of these and of the others."""

    learning: int
    n: int
    right: float
    wrong: float

    @classmethod
    def of(cls, accuracies: "np.ndarray") -> "Modes":
        """From the accuracy of each seed; `LEARNS` or more is learning."""
        learns = accuracies >= LEARNS
        right = float(accuracies[learns].mean()) if learns.any() else 1.0
        wrong = float(accuracies[~learns].mean()) if not learns.all() else 0.0
        return cls(int(learns.sum()), len(learns), right, wrong)

    def published(self, value: float) -> float:
        """The share of learning runs at which the mean over all runs equals the published value."""
        return float(np.clip((value - self.wrong) / (self.right - self.wrong), 0.0, 1.0))


def of_bound(accepted: Interval, interval: Interval | None) -> Verdict:
    """Reproduced if the whole interval is within what is accepted, differs if it is outside."""
    if interval is None:
        return "inconclusive"
    slack = ROUNDING * max(1.0, *(abs(end) for end in accepted if np.isfinite(end)))
    low, high = accepted[0] - slack, accepted[1] + slack
    if low <= interval[0] and interval[1] <= high:
        return "reproduced"
    return "differs" if interval[1] < low or interval[0] > high else "inconclusive"


def of_mean(value: float, tolerance: float, ours: float, interval: Interval | None) -> Verdict:
    """Compare with a published mean of runs: ours must be within the tolerance, its interval within twice that."""
    if interval is None:
        return "inconclusive"
    slack = ROUNDING * max(1.0, abs(value))
    if abs(ours - value) <= tolerance + slack:
        return "reproduced" if _within(value, tolerance, interval) else "inconclusive"
    return "inconclusive" if interval[0] - slack <= value <= interval[1] + slack else "differs"


def _within(value: float, tolerance: float, interval: Interval) -> bool:
    return of_bound((value - 2 * tolerance, value + 2 * tolerance), interval) == "reproduced"


def of_share(value: float, modes: Modes, interval: Interval) -> Verdict:
    """Compare the share of seeds that learn with the share for which the published mean of five runs stands."""
    if modes.n < MIN_FOR_MEDIAN:
        return "inconclusive"
    share, ours = modes.published(value), modes.learning / modes.n
    if abs(ours - share) <= SHARE + ROUNDING:
        return "reproduced" if _within(share, SHARE, interval) else "inconclusive"
    theirs = round(5 * share)
    table = [[modes.learning, modes.n - modes.learning], [theirs, 5 - theirs]]
    return "differs" if fisher_exact(table).pvalue <= LEVEL else "inconclusive"


def of_votes(layer: int, votes: Mapping[int, int]) -> Verdict:
    """Exact binomial tests: against one layer in six for the published layer, and against a majority for it."""
    n, hits = sum(votes.values()), votes.get(layer, 0)
    others = max((count for other, count in votes.items() if other != layer), default=0)
    if n < MIN_SEEDS:
        return "inconclusive"
    if hits > others and binomtest(hits, n, 1 / 6, "greater").pvalue <= LEVEL:
        return "reproduced"
    return "differs" if binomtest(hits, n, 0.5, "less").pvalue <= LEVEL else "inconclusive"


def of_layer(layer: int, votes: Mapping[int, int], behind: Interval | None) -> Verdict:
    """Votes, and by how much the published layer is behind the best: reproduced if it may be near, too."""
    by_votes, by_distance = of_votes(layer, votes), of_bound((-np.inf, NEAR), behind)
    if "reproduced" in (by_votes, by_distance):
        return "reproduced"
    return "differs" if by_votes == by_distance == "differs" else "inconclusive"


def of_ceiling(accepted: Interval, exact: float, limit: float, reached: "np.ndarray") -> Verdict:
    """The exact ceiling against the published accuracy, if at least three seeds confirm that none exceeds its limit."""
    if not accepted[0] <= exact <= accepted[1]:
        return "differs"
    if not len(reached):
        return "not run"
    return "reproduced" if len(reached) >= MIN_SEEDS and (reached <= limit + ROUNDING).all() else "inconclusive"
