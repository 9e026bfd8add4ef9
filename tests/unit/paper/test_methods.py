"""The area under the curve of a method's scores needs no threshold, and its interval holds chance."""

import numpy as np
import pandas as pd
import pytest

from arith_erd.errors import UserError
from paper.studies.methods import area_under_curve


def scored(scores: np.ndarray) -> pd.DataFrame:
    """Of 24 networks: three kinds of either algorithm, four seeds each."""
    kinds = [(f"{algorithm} {k}", algorithm) for algorithm in ("sum", "carries") for k in range(3) for _ in range(4)]
    return pd.DataFrame(kinds, columns=["kind", "algorithm"]).assign(score=scores)


def test_interval_of_the_area_holds_one_half_for_noise():
    rng = np.random.default_rng(1)
    areas = [area_under_curve(scored(rng.normal(size=24)), 200) for _ in range(100)]
    assert np.mean([low <= 0.5 <= high for _, low, high in areas]) > 0.8  # three kinds of each: a narrow bootstrap
    assert area_under_curve(scored(np.arange(24)[::-1]))[0] == 1


def test_area_of_one_algorithm_alone_is_refused():
    with pytest.raises(UserError, match="scores of sum; expected some of sum and of carries"):
        area_under_curve(scored(np.zeros(24)).query("algorithm == 'sum'"))
