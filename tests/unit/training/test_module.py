"""Accuracies are what counting says, for each replica by itself."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from arith_erd.training.module import SequenceAccuracy, TokenAccuracy


@given(st.integers(1, 4), st.integers(1, 5), st.booleans(), st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_accuracies_are_what_counting_says(replicas: int, length: int, shared: bool, sizes: list[int]) -> None:
    """Of predictions (R, B, m) and completions, (R, B, m) or shared (B, m), in batches of any sizes, twice."""
    random = np.random.default_rng(len(sizes))
    metrics = TokenAccuracy(replicas), SequenceAccuracy(replicas)
    for _ in range(2):
        batches = [random.integers(3, 5, size=(2, replicas, size, length)) for size in sizes]
        for predicted, completion in batches:
            for metric in metrics:
                metric.update(torch.from_numpy(predicted), torch.from_numpy(completion[0] if shared else completion))
        hits = np.concatenate(
            [predicted == completion[:1] if shared else predicted == completion for predicted, completion in batches],
            axis=1,
        )
        assert metrics[0].compute().reshape(-1).tolist() == pytest.approx(hits.mean(axis=(1, 2)).tolist())
        assert metrics[1].compute().reshape(-1).tolist() == pytest.approx(hits.all(axis=2).mean(axis=1).tolist())
        for metric in metrics:
            metric.reset()


def test_large_counts_stay_exact() -> None:
    """A float32 count would stop at 2 ** 24."""
    metric = TokenAccuracy(1)
    metric.update(torch.zeros(1, 1, 4), torch.zeros(1, 4))
    metric.hits.fill_(2**24 + 1)
    metric.total.fill_(2**24 + 3)
    metric.update(torch.zeros(1, 1, 1), torch.zeros(1, 1))
    assert metric.compute().item() == (2**24 + 2) / (2**24 + 4)
