"""The GELU that compiled networks use on a CPU."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from arith_erd.models.gelu import TailGELU, gelu

X = torch.linspace(-12, 12, 200_001)


def exact(x: Tensor) -> tuple[Tensor, Tensor]:
    """The GELU and its derivative in 64 bits."""
    x = x.double()
    below = torch.special.ndtr(x)
    return x * below, below + x * torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def value_and_derivative(x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.clone().requires_grad_()
    y: Tensor = TailGELU.apply(x)  # type: ignore[no-untyped-call]
    (derivative,) = torch.autograd.grad(y.sum(), x)
    return y.detach(), derivative


def test_value_and_derivative_are_within_the_error_of_torchs_own() -> None:
    of_value, of_derivative = (
        (ours - right).abs().max() for ours, right in zip(value_and_derivative(X), exact(X), strict=True)
    )
    assert of_value <= (F.gelu(X) - exact(X)[0]).abs().max()
    assert of_derivative <= 3e-7


def test_small_values_of_negative_numbers_have_a_small_relative_error() -> None:
    x = X[(X > -6) & (X < 0)]
    value, right = value_and_derivative(x)[0], exact(x)[0]
    assert ((value - right) / right).abs().max() < 2e-6


@pytest.mark.parametrize(("x", "value", "slope"), [(0.0, 0.0, 0.5), (-0.0, 0.0, 0.5), (50.0, 50.0, 1.0), (-50.0, 0, 0)])
def test_at_zero_and_far_from_it(x: float, value: float, slope: float) -> None:
    assert [y.item() for y in value_and_derivative(torch.tensor([x]))] == [value, slope]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_compiled_it_gives_what_torchs_own_gives(dtype: torch.dtype) -> None:
    x = X.to(dtype)
    y = torch.compile(gelu, backend="eager", fullgraph=True)(x)
    assert torch.allclose(y, F.gelu(x), rtol=0, atol=1e-15 if dtype == torch.float64 else 6e-7)
