"""Accuracies are what counting says, for each replica by itself."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from arith_erd.bits import PAD
from arith_erd.training.module import accuracies


@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 6), st.integers(0, 99))
def test_accuracies_are_what_counting_says(replicas: int, length: int, size: int, seed: int) -> None:
    """Of predictions (R, N, m) and completions (N, m), in which unused tokens, perhaps a whole column, do not count."""
    random = np.random.default_rng(seed)
    predicted = random.integers(3, 5, size=(replicas, size, length))
    completion = random.integers(3, 5, size=(size, length))
    completion[:, 1:][random.random((size, length - 1)) < 0.3] = PAD
    used, right = completion != PAD, predicted == completion
    found = accuracies(torch.from_numpy(predicted), torch.from_numpy(completion)).numpy()
    for own, hits in zip(found, right, strict=True):
        columns = [hits[used[:, t], t] for t in range(length)]
        expected = [
            hits[used].mean(),
            (hits | ~used).all(axis=1).mean(),
            *(c.mean() if c.size else np.nan for c in columns),
        ]
        assert own == pytest.approx(expected, nan_ok=True)
