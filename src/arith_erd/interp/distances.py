"""Distances between all pairs of examples, and correlations of two sets of distances (paper, section 4.5).

N examples have N (N - 1) / 2 pairs i < j. They are in lexicographic order, for N = 3: (0, 1), (0, 2), (1, 2).
"""

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist, pdist
from scipy.stats import rankdata

Floats = npt.NDArray[np.float64]


def euclidean(x: npt.ArrayLike) -> Floats:
    """Length of the difference between rows of (N, D) -> (N (N - 1) / 2,)."""
    return pdist(np.asarray(x, dtype=np.float64))


def hamming(tokens: npt.ArrayLike) -> Floats:
    """Number of positions at which rows of (N, T) differ -> (N (N - 1) / 2,)."""
    tokens = np.asarray(tokens)
    return pdist(tokens, "hamming") * tokens.shape[1]


def absolute(values: npt.ArrayLike) -> Floats:
    """Absolute difference of numbers (N,) -> (N (N - 1) / 2,)."""
    return pdist(np.asarray(values, dtype=np.float64)[:, None], "cityblock")


def pearson(x: npt.ArrayLike, y: npt.ArrayLike) -> Floats:
    """Correlation of every row of x (S, D) with every row of y (L, D) -> (S, L), NaN where a row is constant."""
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    constant = (np.ptp(x, axis=-1) == 0)[:, None] | (np.ptp(y, axis=-1) == 0)  # SciPy's result for these is arbitrary
    return np.where(constant, np.nan, 1 - cdist(x, y, "correlation"))


def spearman(x: npt.ArrayLike, y: npt.ArrayLike) -> Floats:
    """Correlation of ranks; ties share their mean rank. Shapes and NaN as in `pearson`."""
    return pearson(rankdata(x, axis=-1), rankdata(y, axis=-1))
