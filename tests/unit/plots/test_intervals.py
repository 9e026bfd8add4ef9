"""No interval in a probe's table leaves what its measure can take (``docs/verdicts.md``, rule 8)."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arith_erd.plots.sheet import SPANS, mean_text


@pytest.mark.parametrize("unit", SPANS)
@given(shares=st.lists(st.floats(0, 1), min_size=3, max_size=6))
def test_intervals_stay_within_their_unit(unit: str, shares: list[float]) -> None:
    low, high = SPANS[unit]
    text = mean_text(low + (min(high, 100) - low) * np.array(shares), unit)
    scale = 100 if unit == "accuracy" else 1
    ends = [float(x) for x in re.findall(r"-?[\d.]+", text.partition("[")[2])]
    assert all(scale * low <= end <= scale * high for end in ends)
