"""Interrupted runs resume, within one process: three-bit operands, one layer."""

import fcntl
import shutil
from functools import partial
from pathlib import Path

import lightning as L
import pytest
import torch

from arith_erd.errors import UserError
from arith_erd.interp.loading import load_run
from arith_erd.runs import Run
from arith_erd.training.callbacks import MetricsWriter
from arith_erd.training.checkpoint import ResumePoint
from tests.behaviour.interruption import assert_same, power_cut
from tests.rows import write_metrics
from tests.tiny import FOUR_EPOCHS


@pytest.mark.parametrize(
    ("callback", "epoch", "after", "started"),
    [
        *((MetricsWriter, 1, True, None), (MetricsWriter, 3, False, 3), (MetricsWriter, 3, True, 3)),
        *((ResumePoint, 3, False, 3), (ResumePoint, 3, True, 4)),
    ],
)
def test_interrupted_then_resumed_equals_uninterrupted(train, whole, capsys, callback, epoch, after, started):
    """Whether the power went off before or after the rows, and before or after the checkpoint."""
    power_cut(train, callback, epoch, after, *FOUR_EPOCHS)
    capsys.readouterr()
    assert_same(whole, train(*FOUR_EPOCHS))
    out = capsys.readouterr().out
    assert f"resuming from epoch {started}" in out if started else "resuming" not in out


def test_resuming_from_sparse_checkpoints(train, whole, capsys):
    """With a checkpoint every two epochs, epoch 3 is trained again after an interruption in epoch 4.

    The weights that were kept over time are those of a run that was never interrupted.
    """
    overrides = ("checkpoint.every_n_epochs=2", "checkpoint.keep=all")
    power_cut(train, MetricsWriter, 4, True, *FOUR_EPOCHS, *overrides)
    capsys.readouterr()
    resumed = train(*FOUR_EPOCHS, *overrides)
    assert_same(whole, resumed)
    assert "resuming from epoch 3" in capsys.readouterr().out
    assert kept_files(resumed) == kept_files(whole)
    assert len(kept_files(whole)) == 2 * 4


def kept_files(run: Run) -> dict[str, bytes]:
    return {str(path.relative_to(run.path)): path.read_bytes() for path in run.path.glob("weights/epoch=*/*")}


def test_interrupted_between_training_and_summary(whole, train, runs_dir):
    shutil.copytree(whole.path.parent, runs_dir)
    (runs_dir / whole.name / "summary.json").unlink()
    again = train(*FOUR_EPOCHS)
    assert again.metrics() == whole.metrics()  # the seconds too: nothing was trained again
    assert_same(whole, again)


@pytest.fixture(scope="module")
def half(tmp_path_factory, train_in) -> Path:
    """The folder of a run whose power went off in epoch 4, its rows written and its checkpoint not. For copying."""
    folder = tmp_path_factory.mktemp("half")
    power_cut(partial(train_in, folder), MetricsWriter, 4, True, *FOUR_EPOCHS)
    return folder


@pytest.fixture
def interrupted(half, runs_dir) -> Run:
    """A copy of that run, which `train` continues."""
    shutil.copytree(half, runs_dir)
    (path,) = runs_dir.iterdir()
    return Run(path)


def cut(path) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


def flip_a_bit(path) -> None:
    """In the middle of a tensor, where only a checksum can tell."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut_short(path) -> None:
    """PyTorch looks for the end of a small archive before its beginning, which is an `OSError`."""
    torch.save({"weight": torch.randn(1000)}, path)
    path.write_bytes(path.read_bytes()[:-1])


def crafted(path, moment) -> None:
    saved = torch.load(path, weights_only=True)
    moments = saved["optimizer_states"][0]["state"][0]
    moments["exp_avg"] = moment(moments["exp_avg"].shape)
    torch.save(saved, path)


CRAFTS = (
    lambda shape: torch.zeros(1),  # a fused kernel would write behind its end
    lambda shape: torch.zeros(()).expand(shape),  # each place is the same number in memory
)


@pytest.mark.parametrize("damage", [cut, flip_a_bit, cut_short, *(partial(crafted, moment=one) for one in CRAFTS)])
def test_damaged_checkpoint_is_refused_in_one_line_and_stays(train, interrupted, damage):
    damage(interrupted.checkpoint)
    before = interrupted.checkpoint.read_bytes()
    with pytest.raises(UserError, match=r"last\.ckpt: damaged, or of another version; delete it to start again"):
        train(*FOUR_EPOCHS)
    assert interrupted.checkpoint.read_bytes() == before


def test_truncated_row_is_written_again(train, whole, interrupted):
    for path in (interrupted.metrics_file, interrupted.tokens_file):
        path.write_text(path.read_text()[:-20])
    assert [row["epoch"] for row in interrupted.metrics()] == [1, 1, 2, 2, 3, 3, 4]
    assert_same(whole, train(*FOUR_EPOCHS))


@pytest.mark.parametrize(
    ("times", "fault"), [(0, "lacks epoch 1"), (2, "has more than one row for each epoch and seed")]
)
def test_run_never_resumes_from_epochs_without_rows_or_with_too_many(train, interrupted, times, fault):
    """With too many it would be refused at its end, when it is too late."""
    write_metrics(interrupted, interrupted.metrics() * times)
    with pytest.raises(UserError, match=rf"metrics\.csv {fault}; delete last\.ckpt to start again"):
        train(*FOUR_EPOCHS)


def test_failed_save_leaves_the_checkpoint_unchanged(train, whole, interrupted, monkeypatch):
    before = interrupted.checkpoint.read_bytes()
    with monkeypatch.context() as patch:

        def full(self, path, *_):
            path.write_bytes(b"half of a checkp")
            raise OSError(28, "No space left on device")

        patch.setattr(L.Trainer, "save_checkpoint", full)
        with pytest.raises(OSError, match="No space left"):
            train(*FOUR_EPOCHS)
    assert interrupted.checkpoint.read_bytes() == before
    assert not list(interrupted.path.rglob(".partial-*"))
    assert "No space left" in interrupted.error.read_text()
    assert_same(whole, train(*FOUR_EPOCHS))
    assert not interrupted.error.exists()


@pytest.mark.parametrize("before", ["", "no epochs\nno epochs\n"])
def test_run_that_began_without_tokens_or_with_damaged_ones_has_them_from_the_resumed_epoch(
    train, whole, interrupted, capsys, before
):
    interrupted.tokens_file.write_text(before)
    tokens = train(*FOUR_EPOCHS).tokens_file.read_text().splitlines()
    header, *rows = whole.tokens_file.read_text().splitlines()
    assert tokens == [header, *(row for row in rows if row.startswith("4,"))]
    assert ("tokens.csv: damaged; started again at epoch 4\n" in capsys.readouterr().out) is bool(before)


def test_run_locked_by_another_process_is_not_touched(train, whole, interrupted):
    stamps = {path: path.stat().st_mtime_ns for path in interrupted.path.rglob("*")}
    with (interrupted.path / ".lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="in use by process"):
            train(*FOUR_EPOCHS)
        assert load_run(interrupted.path).seed == 0  # who only reads needs no lock
    assert {path: path.stat().st_mtime_ns for path in interrupted.path.rglob("*")} == stamps
