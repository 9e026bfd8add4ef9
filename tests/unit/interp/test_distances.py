"""Distances and correlations equal their definitions."""

import math
import warnings

import numpy as np
import pytest
from scipy import stats

from arith_erd.interp.distances import absolute, euclidean, hamming, pearson, spearman

RNG = np.random.default_rng(0)
TOKENS = RNG.integers(0, 5, size=(9, 6))
VECTORS = RNG.normal(size=(9, 6))
VALUES = RNG.integers(0, 200, size=9)
PAIRS = [(i, j) for i in range(9) for j in range(i + 1, 9)]


def test_distances_equal_a_double_loop() -> None:
    euclid = [math.sqrt(sum((p - q) ** 2 for p, q in zip(VECTORS[i], VECTORS[j], strict=True))) for i, j in PAIRS]
    np.testing.assert_allclose(euclidean(VECTORS), euclid, rtol=1e-12)
    different = [sum(p != q for p, q in zip(TOKENS[i], TOKENS[j], strict=True)) for i, j in PAIRS]
    np.testing.assert_allclose(hamming(TOKENS), different, rtol=1e-12)
    np.testing.assert_array_equal(absolute(VALUES), [abs(int(VALUES[i]) - int(VALUES[j])) for i, j in PAIRS])


def test_small_differences_of_large_float32_vectors_survive() -> None:
    x = np.full((2, 4), 1000, dtype=np.float32)
    x[1, 0] += np.float32(0.25)
    assert euclidean(x) == pytest.approx([0.25], abs=1e-12)  # the product form |x|^2 - 2xy + |y|^2 loses this


def test_correlations_equal_scipy_ties_included() -> None:
    x = np.stack([hamming(TOKENS), euclidean(VECTORS)])
    y = np.stack([absolute(VALUES), hamming(TOKENS[:, :3]), euclidean(VECTORS[:, :1])])
    for correlate, scipys in ((pearson, stats.pearsonr), (spearman, stats.spearmanr)):
        expected = [[scipys(p, q).statistic for q in y] for p in x]
        np.testing.assert_allclose(correlate(x, y), expected, rtol=1e-10)


def test_constant_rows_have_nan_correlation_without_warnings() -> None:
    x = np.array([[0.1, 0.1, 0.1], [1.0, 2.0, 4.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for correlate in (pearson, spearman):
            found = correlate(x, x)
            assert np.isnan(found[0]).all()
            assert found[1, 1] == pytest.approx(1)
