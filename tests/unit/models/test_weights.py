"""Untrusted weights: only tensors are taken. That code in a file does not run: ``test_authors_weights.py``."""

import pytest
import torch

from arith_erd.models.weights import is_plain


@pytest.mark.parametrize(
    ("tensor", "plain"),
    [
        (torch.zeros(2), True),
        (torch.zeros(2, dtype=torch.float64), True),
        (torch.zeros(2, dtype=torch.int64), False),
        (torch.zeros(2, dtype=torch.complex64), False),
        (torch.zeros(2, device="meta"), False),
        (torch.zeros(2).to_sparse(), False),
        ([0.0, 0.0], False),
    ],
)
def test_only_dense_real_floats_in_memory_are_weights(tensor: object, plain: bool) -> None:
    assert is_plain(tensor) == plain
