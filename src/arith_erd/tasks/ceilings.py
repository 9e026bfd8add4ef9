"""What a network without a component can get right at most, whatever it learns: table 3's cells without epochs."""

import numpy as np
import pandas as pd

from ..bits import Array


def seen(prompt: Array, ablation: str) -> Array:
    """What is left of a prompt (N, P) for the Transformer without a component.

    Without attention its decoder sees nothing of the prompt. Without positions the prompt is a bag of tokens, ``1+0``
    the same as ``0+1``. Every other ablation leaves the prompt as it is.
    """
    if ablation == "no_attention":
        return np.zeros_like(prompt[:, :1])
    return np.sort(prompt, axis=1) if ablation == "no_positional_encoding" else prompt


def ceiling(prompt: Array, completion: Array, ablation: str) -> float:
    """The share of examples (N, P), (N, m) that the best answer to each visible prompt gets right.

    ``0+0, 0+1, 1+0, 1+1`` with one bit each: one answer for all four, ``01``, is right in 0.5, one for each bag in 1.0.
    """
    visible, answer = (
        np.unique(tokens, axis=0, return_inverse=True)[1].ravel() for tokens in (seen(prompt, ablation), completion)
    )
    counts = pd.Series(answer).groupby(visible).value_counts()
    return float(counts.groupby(level=0).max().sum() / len(prompt))
