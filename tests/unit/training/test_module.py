"""Accuracies are what counting says, for each replica by itself."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from arith_erd.training.module import Accuracies


@given(st.integers(1, 4), st.integers(1, 5), st.booleans(), st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_accuracies_are_what_counting_says(replicas: int, length: int, shared: bool, sizes: list[int]) -> None:
    """Of predictions (R, B, m) and completions, (R, B, m) or shared (B, m), in batches of any sizes, twice."""
    random = np.random.default_rng(len(sizes))
    metric = Accuracies(replicas)
    for _ in range(2):
        hits = []
        for size in sizes:
            predicted, completion = random.integers(3, 5, size=(2, replicas, size, length))
            right = completion[0] if shared else completion
            metric.update(torch.from_numpy(predicted), torch.from_numpy(right))
            hits.append(predicted == right)
        counted = np.concatenate(hits, axis=1)  # (R, N, m)
        tokens, answers = counted.mean(axis=(1, 2)), counted.all(axis=2).mean(axis=1)
        expected = np.column_stack([tokens, answers, counted.mean(axis=1)])
        assert metric.compute().numpy() == pytest.approx(expected)
        metric.reset()
