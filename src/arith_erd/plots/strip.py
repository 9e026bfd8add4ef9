"""Where an estimate lies beside a published number, for a line of a table."""

from typing import Any

import numpy as np

from ..stats import Estimate, Interval

WIDTH = 120  # in its own units


def strip(published: float, tolerance: Interval, ours: Estimate) -> dict[str, Any]:
    """Places in [4, 116]: the tolerance as a bar, the paper a tick in the middle, ours a dot and a line."""
    interval = ours.interval or (ours.low, ours.high)
    ends = [end for end in (*tolerance, ours.low, *interval) if np.isfinite(end)]
    reach = max(abs(end - published) for end in ends) * 1.25 or max(abs(published), 1.0)

    def place(value: float) -> float:
        share = 0.5 + 0.5 * min(1.0, max(-1.0, (value - published) / reach))
        return round(4 + (WIDTH - 8) * share, 2)

    low, high = (place(end) for end in tolerance)
    return {
        "low": low,
        "width": max(round(high - low, 2), 1.0),
        "paper": place(published),
        "ours": place(ours.low),
        "interval": [place(end) for end in interval],
    }
