"""Least-squares solvers for the directions of variables: what one carry, or one unit of the answer, adds to a site."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..bits import Array, from_digits, reorder
from .causal_model import CausalModel


def solver(regressors: Sequence[npt.NDArray[Any]]) -> Tensor:
    """Regressors, k of (N,) -> solver (k, N): a stream's slopes are solver @ stream; collinear regressors share one."""
    return torch.linalg.pinv(torch.from_numpy(np.stack(regressors, axis=1).astype(np.float64)), rcond=1e-9)


def regressors(model: CausalModel, values: Mapping[str, Array], t: int) -> list[npt.NDArray[Any]]:
    """Variables that the stream may hold about digit t, (N,) each: 1, the carry, the answer, then those held fixed.

    Variables that are linear in the others are left out: at t = 1, a_0 + b_0 = r_0 + 2 c_1; the highest digit of a sum
    is its own carry. Only some tasks have a carry. The answer counts in units of its highest digit.
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


def answer_solvers(model: CausalModel, values: Mapping[str, Array]) -> Tensor:
    """Solvers (m, k, N) of each answer position: what one carry into its digit adds, and one unit of the answer.

    Without the first, k = 1, for a task without a carry.
    """
    task, wanted = model.task, ["carry", "answer"] if "carry" in values else ["answer"]
    digits = reorder(np.arange(task.width), task.completion_order)
    solvers = torch.stack([solver(regressors(model, values, t))[1 : 1 + len(wanted)] for t in digits])
    solvers[:, -1] /= task.base ** (task.width - 1)  # regressors count it in units of its highest digit
    return solvers
