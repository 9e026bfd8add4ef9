"""What a network without a component can get right at most, whatever it learns: table 3's cells without epochs."""

import numpy as np

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
    """The share of N examples that the best answer to each visible prompt gets right.

    ``0+0, 0+1, 1+0, 1+1`` with one bit each: one answer for all four, ``01``, is right in 0.5, one for each bag in 1.0.

    Args:
        prompt, completion: tokens (N, P) and (N, m).
        ablation: by its name in ``conf/ablation/``.
    """
    _, group = np.unique(seen(prompt, ablation), axis=0, return_inverse=True)
    answers, answer = np.unique(completion, axis=0, return_inverse=True)
    pairs, counts = np.unique(group.ravel() * len(answers) + answer.ravel(), return_counts=True)
    best = np.zeros(int(group.max()) + 1, dtype=np.int64)
    np.maximum.at(best, pairs // len(answers), counts)
    return float(best.sum() / len(prompt))
