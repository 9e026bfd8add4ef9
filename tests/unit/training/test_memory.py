"""What does not fit into memory is refused in one line, and before anything is written."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch._inductor import config as inductor_config
from torch._inductor.cudagraph_utils import log_cudagraph_skip_and_bump_counter

from arith_erd.config.compose import compose
from arith_erd.config.schema import PackConfig
from arith_erd.errors import UserError
from arith_erd.launch.sweep import SweepJob
from arith_erd.models import NanoGPT
from arith_erd.training import memory
from arith_erd.training.memory import COPIES_PER_WEIGHT, USABLE, explain_errors_of_torch
from arith_erd.training.pack import Pack
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
    said = r"^seed=0-9: a pack of 10 .*MemoryError: at least .* GiB, .*smaller pack\.max_replicas"
    with pytest.raises(UserError, match=said):
        train(job)
    assert not runs_dir.exists()


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA"), MemoryError(), None])
def test_failed_allocation_gives_a_one_line_error(error):
    said = r"^seed=0: .*too large for the memory of .* smaller data\.batch"
    with pytest.raises(UserError, match=said), explain_errors_of_torch(compose("train", TINY), CPU):
        if error is not None:
            raise error
        torch.empty(2**52)


def test_failed_capture_of_a_cuda_graph_gives_a_one_line_error(monkeypatch):
    """By default PyTorch only logs the failure, and the run would silently be slow."""
    monkeypatch.setattr(inductor_config.triton, "cudagraph_or_error", False)
    Pack(partial(NanoGPT, 7, 4), [0], compile=True, cuda_graphs=True)._compile()
    said = r"^trainer\.cuda_graphs=true: expected false, since PyTorch says: skipping cudagraphs due to noise$"
    with pytest.raises(UserError, match=said), explain_errors_of_torch(compose("train", TINY), CPU):
        log_cudagraph_skip_and_bump_counter("skipping cudagraphs due to noise\nmore")


@pytest.fixture
def job_with_room_for(runs_dir, monkeypatch):
    """A function that makes a job of ten seeds where a number of replicas fits; each takes 1000 bytes."""

    def peak(device, work):
        work()
        return 1000 * len(work.args[0].seeds)

    def job(number, *words):
        monkeypatch.setattr(memory, "MEASURED_DEVICE", "cpu")
        monkeypatch.setattr(memory, "free_bytes", lambda device: round(1000 * number / USABLE) + 1)
        monkeypatch.setattr(memory, "peak_bytes", peak)
        return compose("train", [*TINY, "trainer.max_epochs=1", "seed=0-9", f"runs_dir={runs_dir}", *words])

    return job


def test_auto_takes_the_fewest_equal_packs_that_fit_and_finds_them_again(job_with_room_for, capsys):
    job = job_with_room_for(6)
    runs = train(job)
    assert [run.config()["seed"] for run in runs] == ["0-4", "5-9"]
    out = capsys.readouterr().out
    assert "pack.max_replicas=auto: 2 packs of 5 seeds, as a pack of 10 needs " in out
    assert out.count("pack.max_replicas=5: a pack of 5 needs ") == 2
    assert [run.name for run in runs] == [pack.run.name for pack in replace(job, pack=PackConfig(5)).packs()]
    job_with_room_for(0)  # nothing is measured again
    assert [run.path for run in train(job)] == [run.path for run in runs]
    assert capsys.readouterr().out.count("finished already") == 2
    (whole,) = SweepJob(0, [], [], job).packs()  # under a launcher, too, the job divides its seeds itself
    assert whole.finished


def test_refused_number_of_replicas_is_answered_with_the_number_that_fits(job_with_room_for, runs_dir):
    job = job_with_room_for(6, "pack.max_replicas=8")
    with pytest.raises(UserError, match=r"^seed=0-7: a pack of 8 needs .*; expected pack\.max_replicas=6 or less$"):
        train(job)
    assert not runs_dir.exists()
