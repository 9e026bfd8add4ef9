import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from arith_erd.training.module import SequenceAccuracy, TokenAccuracy


@st.composite
def batches(draw):
    """Predictions (R, B, m) and completions, (R, B, m) or shared (B, m), in batches of any sizes."""
    replicas, length, shared = draw(st.integers(1, 4)), draw(st.integers(1, 5)), draw(st.booleans())
    random = np.random.default_rng(draw(st.integers(0, 999)))
    pairs = []
    for size in draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)):
        predicted = random.integers(3, 5, size=(replicas, size, length))
        completion = random.integers(3, 5, size=predicted.shape[shared:])
        pairs.append((predicted, completion))
    return pairs


def slow_accuracies(pairs) -> tuple[list[float], list[float]]:
    tokens, sequences = [], []
    for replica in range(len(pairs[0][0])):
        right, right_sequences, total, total_sequences = 0, 0, 0, 0
        for predicted, completion in pairs:
            expected = completion if completion.ndim == 2 else completion[replica]
            for row, wanted in zip(predicted[replica].tolist(), expected.tolist(), strict=True):
                hits = [x == y for x, y in zip(row, wanted, strict=True)]
                right, total = right + sum(hits), total + len(hits)
                right_sequences, total_sequences = right_sequences + all(hits), total_sequences + 1
        tokens.append(right / total)
        sequences.append(right_sequences / total_sequences)
    return tokens, sequences


@given(batches())
def test_accuracies_are_what_counting_says(pairs):
    replicas = len(pairs[0][0])
    metrics = TokenAccuracy(replicas), SequenceAccuracy(replicas)
    for predicted, completion in pairs:
        for metric in metrics:
            metric.update(torch.from_numpy(predicted), torch.from_numpy(completion))
    for metric, expected in zip(metrics, slow_accuracies(pairs), strict=True):
        assert metric.compute().reshape(-1).tolist() == pytest.approx(expected)


def test_reset_clears_all_counts():
    metric = SequenceAccuracy(2)
    metric.update(torch.zeros(2, 3, 4), torch.zeros(3, 4))
    metric.reset()
    metric.update(torch.zeros(2, 1, 4), torch.ones(1, 4))
    assert metric.compute().tolist() == [0, 0]


def test_each_replica_is_measured_alone():
    predicted = torch.tensor([[[3, 4]], [[3, 3]], [[4, 4]]])
    metrics = TokenAccuracy(3), SequenceAccuracy(3)
    for metric in metrics:
        metric.update(predicted, torch.tensor([[3, 4]]))
    assert metrics[0].compute().tolist() == [1, 0.5, 0.5]
    assert metrics[1].compute().tolist() == [1, 0, 0]


def test_large_counts_stay_exact():
    """A float32 count would stop at 2 ** 24."""
    metric = TokenAccuracy(1)
    metric.update(torch.zeros(1, 1, 4), torch.zeros(1, 4))
    metric.hits.fill_(2**24 + 1)
    metric.total.fill_(2**24 + 3)
    metric.update(torch.zeros(1, 1, 1), torch.zeros(1, 1))
    assert metric.compute().item() == (2**24 + 2) / (2**24 + 4)
