"""Untrusted weights: only tensors are read, and only from files that PyTorch could have written."""

import os
import pickle
from pathlib import Path

import pytest
import torch

from arith_erd.models.weights import is_plain, load_tensors


def test_pickled_code_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(pickle.dumps(os.getcwd))
    with pytest.raises(pickle.UnpicklingError):
        load_tensors(tmp_path / "file")


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
