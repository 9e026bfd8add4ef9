"""Runs that are interrupted, stopped by a signal, continued to more epochs or overwritten, all within one process."""

import fcntl
import os
import re
import shutil
import signal
import sys
from functools import partial
from pathlib import Path

import lightning as L
import pytest
import torch

from arith_erd.catalog.loading import load_run
from arith_erd.config.compose import compose
from arith_erd.errors import UserError
from arith_erd.loggers import Csv
from arith_erd.models import NanoGPT
from arith_erd.runs.directory import Run
from arith_erd.system.signals import catch_signals
from arith_erd.tasks import Add
from arith_erd.training import callbacks
from arith_erd.training.callbacks import MetricsWriter
from arith_erd.training.checkpoint import CheckpointWriter
from arith_erd.training.fit import fit
from arith_erd.training.lit_pack import LitPack
from arith_erd.training.run_pack import train_pack
from arith_erd.training.train import train as train_job
from tests.behaviour.interruption import Listener, assert_same, power_cut
from tests.rows import write_metrics
from tests.tiny import FOUR_EPOCHS, TINY

pytestmark = pytest.mark.slow_after(2)


@pytest.mark.slow_after(3)
@pytest.mark.parametrize(
    ("callback", "epoch", "after", "every", "started"),
    [
        (MetricsWriter, 1, True, 1, None),
        (MetricsWriter, 3, False, 1, 3),
        (MetricsWriter, 4, True, 2, 3),
        (CheckpointWriter, 3, True, 1, 4),
    ],
)
def test_interrupted_then_resumed_equals_uninterrupted(train, whole, capsys, callback, epoch, after, every, started):
    """It stops before or after the rows or the checkpoint. With one every two epochs, epoch 3 is trained again.

    The weights that were kept over time are those of a run that was never interrupted.
    """
    overrides = (*FOUR_EPOCHS, "checkpoint.keep=all", f"checkpoint.every_n_epochs={every}")
    power_cut(train, callback, epoch, after, *overrides)
    capsys.readouterr()
    resumed = train(*overrides)
    assert_same(whole, resumed)
    out = capsys.readouterr().out
    assert f"resuming from epoch {started}" in out if started else "resuming" not in out
    kept, expected = (
        {path.relative_to(run.path): path.read_bytes() for path in run.path.glob("weights/epoch=*/*")}
        for run in (resumed, whole)
    )
    assert kept == expected
    assert len(expected) == 2 * 4


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


@pytest.mark.parametrize("damage", [cut, flip_a_bit, cut_short, *(partial(crafted, moment=when) for when in CRAFTS)])
def test_damaged_checkpoint_is_refused_in_one_line_and_stays(train, interrupted, damage):
    damage(interrupted.checkpoint_file)
    before = interrupted.checkpoint_file.read_bytes()
    with pytest.raises(UserError, match=r"last\.ckpt: cannot be read \(.*\); if it is damaged, .* delete it"):
        train(*FOUR_EPOCHS)
    assert interrupted.checkpoint_file.read_bytes() == before


def test_truncated_row_is_written_again(train, whole, interrupted):
    for path in (interrupted.metrics_file, interrupted.tokens_file):
        path.write_text(path.read_text()[:-20])
    assert [row["epoch"] for row in interrupted.metrics()] == [1, 1, 2, 2, 3, 3, 4]
    assert_same(whole, train(*FOUR_EPOCHS))


@pytest.mark.parametrize("times", [0, 2])
def test_run_never_resumes_from_epochs_without_rows_or_with_too_many(train, interrupted, times):
    """A run with too many would be refused at its end, when it is too late."""
    write_metrics(interrupted, interrupted.metrics() * times)
    said = r"metrics\.csv has not exactly one row for .*; delete last\.ckpt to start again"
    with pytest.raises(UserError, match=said):
        train(*FOUR_EPOCHS)


def test_failed_save_leaves_the_checkpoint_unchanged(train, whole, interrupted, monkeypatch):
    before = interrupted.checkpoint_file.read_bytes()
    with monkeypatch.context() as patch:

        def full(self, path, *_):
            path.write_bytes(b"half of a checkp")
            raise OSError(28, "No space left on device")

        patch.setattr(L.Trainer, "save_checkpoint", full)
        with pytest.raises(OSError, match="No space left"):
            train(*FOUR_EPOCHS)
    assert interrupted.checkpoint_file.read_bytes() == before
    assert not list(interrupted.path.rglob(".partial-*"))
    assert "No space left" in interrupted.error_file.read_text()
    assert_same(whole, train(*FOUR_EPOCHS))
    assert not interrupted.error_file.exists()


@pytest.mark.parametrize(("before", "damage"), [(None, "missing"), ("no epochs\nno epochs\n", "damaged")])
def test_run_without_tokens_or_with_damaged_ones_has_them_from_the_resumed_epoch(
    train, whole, interrupted, capsys, before, damage
):
    interrupted.tokens_file.unlink()
    if before:
        interrupted.tokens_file.write_text(before)
    tokens = train(*FOUR_EPOCHS).tokens_file.read_text().splitlines()
    header, *rows = whole.tokens_file.read_text().splitlines()
    assert tokens == [header, *(row for row in rows if row.startswith("4,"))]
    assert f"tokens.csv: {damage}; started again at epoch 4\n" in capsys.readouterr().out


def test_run_locked_by_another_process_is_not_touched(train, whole, interrupted):
    stamps = {path: path.stat().st_mtime_ns for path in interrupted.path.rglob("*")}
    with (interrupted.path / ".lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="in use by process"):
            train(*FOUR_EPOCHS)
        assert load_run(interrupted.path).seed == 0  # who only reads needs no lock
    assert {path: path.stat().st_mtime_ns for path in interrupted.path.rglob("*")} == stamps


def stop(train, epoch: int, hook: str, batch: int | None = None, number: signal.Signals = signal.SIGTERM) -> None:
    """Train until a signal ends it, in an epoch (from 1) after this batch, or at the end of the epoch."""
    original = getattr(MetricsWriter, hook)

    def receiving(self, trainer, pl_module, *rest):
        original(self, trainer, pl_module, *rest)
        if trainer.current_epoch + 1 == epoch and (batch is None or rest[2] == batch):
            os.kill(os.getpid(), number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MetricsWriter, hook, receiving)
        with pytest.raises(SystemExit), catch_signals():
            train()


@pytest.fixture
def submitit():
    """A handler of SIGUSR2 that ends the program, as submitit's does."""
    listener = Listener()
    listener.work = lambda: sys.exit(-1)
    before = signal.signal(signal.SIGUSR2, listener)
    yield listener
    assert signal.getsignal(signal.SIGUSR2) is listener
    signal.signal(signal.SIGUSR2, before)


@pytest.mark.parametrize(
    ("number", "hook", "batch", "place", "left"),
    [
        (signal.SIGTERM, "on_train_batch_end", 0, "epoch 3, after 1 of 3 steps", 5),
        (signal.SIGHUP, "on_train_batch_end", 2, "epoch 3 trained, not yet evaluated", 3),
        (signal.SIGINT, "on_validation_batch_end", 0, "epoch 3 trained, not yet evaluated", 3),
        (signal.SIGUSR2, "on_train_batch_end", 1, "epoch 3, after 2 of 3 steps", 4),
        (signal.SIGUSR2, "on_train_epoch_end", None, "epoch 4", 3),
    ],
)
def test_run_stopped_by_a_signal_resumes_from_that_step(
    train, whole, runs_dir, monkeypatch, capsys, submitit, number, hook, batch, place, left
):
    """It stops in the middle of an epoch, in its last step, in its validation, or while its checkpoint is written.

    Three steps an epoch; ``left`` are those that the same command then takes. A checkpoint would be due after all four.
    """
    stop(partial(train, *FOUR_EPOCHS, "checkpoint.every_n_epochs=4"), 3, hook, batch, number)
    assert "stopped; the same command continues\n" in capsys.readouterr().out
    assert submitit.heard == ([number] if number == signal.SIGUSR2 else [])
    assert not list(runs_dir.glob("*/error.txt"))
    steps, step = [], LitPack.training_step
    monkeypatch.setattr(LitPack, "training_step", lambda self, *rest: steps.append(rest[1]) or step(self, *rest))
    assert_same(whole, train(*FOUR_EPOCHS))
    assert f"resuming from {place}\n" in capsys.readouterr().out
    assert len(steps) == left


@pytest.mark.slow
def test_fit_without_a_folder_promises_no_resuming_and_prints_lines_without_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr(callbacks, "LINE_INTERVAL", 0.0)
    overrides = ["data.batch_size=16", "model.net.num_layers=1"]
    stop(partial(fit, Add(bits=3), NanoGPT, epochs=3, overrides=overrides), 2, "on_train_epoch_end")
    printed = capsys.readouterr()
    assert "fit: stopped, and nothing is kept; with out=FOLDER the same call continues\n" in printed.out
    assert "same command" not in printed.out
    assert re.search(r"^epoch 1\.3 of 3  loss \d\.\d+ +train +[\d.]+%  val +[\d.]+%$", printed.err, re.M)


@pytest.mark.parametrize("overrides", [("data.batch_size=1000", "scheduler=warmup_cosine"), ("trainer.stop_at=0.0",)])
def test_signal_during_validation_stops_the_run(train, tmp_path, train_in, monkeypatch, overrides):
    """The epoch has one step, or is the first and the last; the logged rate is that of the epoch."""
    logged = []
    monkeypatch.setattr(Csv, "log", lambda self, rows: logged.extend(row["learning_rate"] for row in rows))
    stop(partial(train, *FOUR_EPOCHS, *overrides), 1, "on_validation_batch_end", 0)
    stopped = train(*FOUR_EPOCHS, *overrides)
    of_stopped = logged.copy()
    logged.clear()
    assert_same(stopped, train_in(tmp_path / "whole", *FOUR_EPOCHS, *overrides))
    assert of_stopped == logged


def test_signal_after_the_last_epoch_still_writes_the_summary(train, capsys):
    command = partial(train, *FOUR_EPOCHS, "checkpoint.every_n_epochs=3")
    stop(command, 4, "on_train_epoch_end", number=signal.SIGUSR1)
    assert "stopped; the same command continues\n" in capsys.readouterr().out
    assert command().finished


def test_longer_run_continues_a_shorter_one_bit_for_bit(train, whole, capsys, monkeypatch):
    """The shorter one has a checkpoint at its end only, and was trained by other code."""
    monkeypatch.setattr("arith_erd.system.machine.git_commit", lambda: "aaa")
    monkeypatch.setattr("arith_erd.runs.directory.git_commit", lambda: "bbb")
    shorter = train(*FOUR_EPOCHS, "trainer.max_epochs=2", "checkpoint.every_n_epochs=5")
    longer = train(*FOUR_EPOCHS)
    out = capsys.readouterr().out
    continued = f"{longer.path}: continues {shorter.path}, which was trained to epoch 2"
    assert f"{continued}; trained at commit aaa, the code is now at bbb\n" in out
    assert "resuming from epoch 3" in out
    assert_same(longer, whole)
    assert shorter.finished


@pytest.mark.slow
def test_longer_run_starts_at_the_beginning_if_the_state_was_not_kept_or_the_schedule_is_another(train, capsys):
    shorter = train("checkpoint.keep_last=false")
    assert not shorter.checkpoint_file.exists()
    train("trainer.max_epochs=3")
    train("scheduler=warmup_linear", "trainer.max_epochs=1")
    train("scheduler=warmup_linear")
    assert "continues" not in capsys.readouterr().out


def no_file(run: Run) -> None:
    run.checkpoint_file.unlink()
    run.checkpoint_file.symlink_to("nowhere")


def a_folder(run: Run) -> None:
    run.tokens_file.unlink()
    run.tokens_file.mkdir()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda run: run.checkpoint_file.write_bytes(b"cut"), "last.ckpt: cannot be read"),
        (a_folder, "tokens.csv"),
        (no_file, ""),
    ],
)
def test_shorter_run_that_is_damaged_is_left_out_and_named(train, whole, capsys, damage, said):
    """The next shorter one is continued."""
    shorter = train(*FOUR_EPOCHS, "trainer.max_epochs=2", "checkpoint.keep=all")
    train(*FOUR_EPOCHS, "trainer.max_epochs=1")
    damage(shorter)
    longer = train(*FOUR_EPOCHS)
    out = capsys.readouterr().out
    assert (f"{shorter.path}: not continued (" in out) == bool(said)
    assert said in out
    assert "which was trained to epoch 1" in out
    assert_same(longer, whole)
    assert 2 not in longer.saved_epochs(0)


@pytest.mark.slow
def test_overwriting_keeps_the_old_run_until_the_new_one_has_finished(train, runs_dir, capsys):
    old = train()
    (old.path / "mine").touch()
    power_cut(train, CheckpointWriter, 1, True, "overwrite=true")
    assert (old.backup.path / "mine").is_file()
    again = train("overwrite=true")
    out = capsys.readouterr().out
    assert "resuming from epoch 2" in out
    assert again.path == old.path
    assert not (old.path / "mine").exists()
    assert [path.name for path in runs_dir.iterdir()] == [old.name]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "pack", "missing"), [("move_to_backup", 1, [(1,)]), ("finish", 1, [(1,)]), ("delete_backup", 0, [])]
)
def test_overwriting_of_several_packs_goes_on_where_it_was_killed(runs_dir, monkeypatch, method, pack, missing):
    """It dies before the second old run is renamed, before the new one has finished, or before the old are deleted."""
    words = [*TINY, "trainer.max_epochs=1", "seed=0-1", "pack.max_replicas=1", f"runs_dir={runs_dir}"]
    old = train_job(compose("train", words))
    for run in old:
        (run.path / "mine").touch()
    original, trained = getattr(Run, method), []

    def killed(self, *arguments):
        if self.path == old[pack].path:
            raise KeyboardInterrupt
        original(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Run, method, killed)
        with pytest.raises(KeyboardInterrupt):
            train_job(compose("train", [*words, "overwrite=true"]))
    monkeypatch.setattr("arith_erd.training.run_pack.train_pack", lambda job: trained.append(job) or train_pack(job))
    train_job(compose("train", [*words, "overwrite=true"]))
    assert [job.seeds for job in trained] == missing
    assert all(run.finished and not (run.path / "mine").exists() for run in old)
    assert sorted(path.name for path in runs_dir.iterdir()) == sorted(run.name for run in old)


@pytest.mark.slow
def test_run_whose_old_one_was_renamed_by_a_launcher_continues_no_shorter_run(train, capsys):
    train("trainer.max_epochs=1")
    train().move_to_backup()
    assert "which was trained to epoch 1" in capsys.readouterr().out
    new = train()
    assert "which was trained to epoch 1" not in capsys.readouterr().out
    assert new.finished
    assert not new.backup.path.exists()


def test_refused_command_leaves_the_old_run(train, runs_dir, monkeypatch):
    old = train()
    before = {path: path.read_bytes() for path in old.path.rglob("*") if path.is_file() and path.name != ".lock"}
    monkeypatch.setattr("os.sysconf", lambda name: 1)
    with pytest.raises(UserError, match="too large for the memory"):
        train("overwrite=true")
    assert {path: path.read_bytes() for path in before} == before
    assert [path.name for path in runs_dir.iterdir()] == [old.name]
