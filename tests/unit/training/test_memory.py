"""What does not fit into memory is refused in one line, and before anything is written."""

import pytest
import torch

from arith_erd.config.compose import compose
from arith_erd.errors import UserError
from arith_erd.training.run_pack import COPIES_PER_WEIGHT, explain_errors_of_torch
from arith_erd.training.train import train
from tests.tiny import TINY

CPU = torch.device("cpu")


@pytest.mark.parametrize("precision", ["32-true", "64-true"])
def test_pack_that_does_not_fit_is_refused_before_anything_is_written(runs_dir, monkeypatch, precision):
    job = compose("train", [*TINY, "seed=0-9", f"runs_dir={runs_dir}", f"trainer.precision={precision}"])
    with torch.device("meta"):
        parameters = sum(p.numel() for p in job.network().parameters())
    needed = 10 * COPIES_PER_WEIGHT * parameters * int(precision[:2]) // 8
    monkeypatch.setattr("os.sysconf", lambda name: {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": needed - 1}[name])
    with pytest.raises(
        UserError, match=r"^seed=0-9: a pack of 10 .*MemoryError: at least .* GiB, .*smaller pack\.max_replicas"
    ):
        train(job)
    assert not runs_dir.exists()


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA"), MemoryError(), None])
def test_allocation_that_fails_is_one_line(error):
    said = r"^seed=0: .*too large for the memory of .* smaller data\.batch"
    with pytest.raises(UserError, match=said), explain_errors_of_torch(compose("train", TINY), CPU):
        if error is not None:
            raise error
        torch.empty(2**52)
