"""Check the arrays and tensors that callers give, and convert them to tensors."""

from collections.abc import Container
from contextlib import suppress

import numpy as np
import torch
from torch import Tensor

from ..errors import UserError


def as_reals(key: str, value: object) -> Tensor:
    """A tensor or an array of real numbers as a floating-point tensor; anything else is a `UserError`."""
    with suppress(TypeError, ValueError, RuntimeError):
        x = value if isinstance(value, Tensor) else torch.from_numpy(np.array(value, order="C"))  # copies views
        if x.layout == torch.strided and not (x.is_complex() or x.is_meta):
            return x if x.is_floating_point() else x.double()
    raise UserError(f"{key}: received {type(value).__name__}; expected a tensor or an array of real numbers")


def finite_matrix(
    key: str, value: object, accepted: str, dims: Container[int] = range(2, 9), rows: int | None = None
) -> Tensor:
    """Convert a tensor or an array of N >= 1 examples to a matrix (N, d) of finite numbers, or raise a `UserError`."""
    x = as_reals(key, value)
    if x.dim() not in dims or not x.numel() or len(x) != (rows or len(x)):
        raise UserError(f"{key}: received shape {tuple(x.shape)}; expected {accepted}, with one example or more")
    if not x.isfinite().all():
        raise UserError(f"{key}: contains NaN or infinity; expected finite numbers")
    return x.reshape(len(x), -1)
