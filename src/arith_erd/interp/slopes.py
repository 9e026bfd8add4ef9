"""How a site depends on variables and tokens: least-squares slopes per carry and per unit of the answer, and means."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..digits import Array, from_digits
from .causal_model import CausalModel


def slope_estimator(columns: Sequence[npt.NDArray[Any]]) -> Tensor:
    """A matrix (k, N) whose product with activations (N, C) is their slopes (k, C); collinear regressors share one."""
    return torch.linalg.pinv(torch.from_numpy(np.stack(columns, axis=1).astype(np.float64)), rcond=1e-9)


def regressors(model: CausalModel, values: Mapping[str, Array], t: int) -> list[npt.NDArray[Any]]:
    """Regressors (N,) for the stream at digit t: 1, the carry (if the task has one), the answer, then those held fixed.

    We leave out regressors that are linear in the others. For example, a_0 + b_0 = r_0 + 2 c_1 at t = 1, and the
    highest digit of a sum is its own carry. The answer is in units of its highest digit.
    """
    base, top, digits = model.task.base, model.task.width - 1, model.answers({**values})
    lower_first = model.task.completion_order == "reverse"
    columns: list[npt.NDArray[Any]] = [np.ones(len(digits))]
    columns += [values["carry"][:, t]] if "carry" in values else []
    columns += [from_digits(digits, base) / base**top]
    columns += [values[root][:, place] for place in (t, t - 1) for root in model.roots if place >= 0]
    columns += [digits[:, t - 1]] if lower_first and t > 1 else []
    columns += [digits[:, t]] if t < top else []
    columns += [from_digits(digits[:, :t], base) / base**t] if lower_first and 1 < t < top - 1 else []
    return columns


def answer_slope_estimators(model: CausalModel, values: Mapping[str, Array]) -> Tensor:
    """Rows of `slope_estimator` (m, k, N): the carry into each answer position's digit, and one unit of the answer.

    For a task without a carry k = 1, and only the answer is left.
    """
    task, variables = model.task, ["carry", "answer"] if "carry" in values else ["answer"]
    fits = [slope_estimator(regressors(model, values, t)) for t in task.answer_digits]
    slope_estimators = torch.stack([fit[1 : 1 + len(variables)] for fit in fits])
    slope_estimators[:, -1] /= task.base ** (task.width - 1)  # regressors count it in units of its highest digit
    return slope_estimators


def token_means(x: Tensor, tokens: Tensor, vocab_size: int) -> Tensor:
    """Mean activations (P, V, C) by position and token, from x (N, P, C) and tokens (N, P); 0 for unseen tokens."""
    means = x.new_zeros(x.shape[1], vocab_size, x.shape[2])
    for position in range(x.shape[1]):
        for token in tokens[:, position].unique():
            means[position, token] = x[tokens[:, position] == token, position].mean(0)
    return means
