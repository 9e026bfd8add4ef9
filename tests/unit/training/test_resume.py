"""Runs with more epochs, runs that are overwritten, files that cannot be read, and what counts as finished."""

import builtins
import errno
from pathlib import Path

import pytest

from arith_erd.config.compose import compose
from arith_erd.errors import UserError
from arith_erd.losses import CrossEntropy
from arith_erd.runs import Run
from arith_erd.training.checkpoint import ResumePoint
from arith_erd.training.module import LitPack
from tests.behaviour.interruption import assert_same, interrupt
from tests.tiny import FOUR_EPOCHS, TINY

# More epochs, and once more


def test_longer_run_continues_a_shorter_one_bit_for_bit(train, whole, capsys):
    """The shorter one has a checkpoint at its end only."""
    shorter = train(*FOUR_EPOCHS, "trainer.max_epochs=2", "checkpoint.every_n_epochs=5")
    longer = train(*FOUR_EPOCHS)
    out = capsys.readouterr().out
    assert f"{longer.path}: continues {shorter.path}, which was trained for 2 epochs\n" in out
    assert "resuming from epoch 3" in out
    assert_same(longer, whole)
    assert shorter.finished


def test_longer_run_starts_at_the_beginning_if_the_state_was_not_kept_or_the_schedule_is_another(train, capsys):
    shorter = train("checkpoint.keep_last=false")
    assert not shorter.checkpoint.exists()
    train("trainer.max_epochs=3")
    train("scheduler=warmup_linear", "trainer.max_epochs=1")
    train("scheduler=warmup_linear")
    assert "continues" not in capsys.readouterr().out


def test_damaged_shorter_run_is_left_out_and_named(train, whole, capsys):
    shorter = train(*FOUR_EPOCHS, "trainer.max_epochs=3")
    shorter.metrics_file.write_text("no columns\n")
    train(*FOUR_EPOCHS, "trainer.max_epochs=2")
    assert_same(train(*FOUR_EPOCHS), whole)
    out = capsys.readouterr().out
    assert f"{shorter.path}: not continued (" in out
    assert "which was trained for 2 epochs\n" in out


def test_overwriting_keeps_the_old_run_until_the_new_one_has_finished(train, runs_dir, monkeypatch, capsys):
    old = train()
    (old.path / "mine").touch()
    with monkeypatch.context() as patch:
        interrupt(patch, ResumePoint, 1, True)
        with pytest.raises(RuntimeError, match="the power went off"):
            train("overwrite=true")
    again = train("overwrite=true")
    out = capsys.readouterr().out
    assert "resuming from epoch 2" in out
    assert again.path == old.path
    assert not (old.path / "mine").exists()
    assert [path.name for path in runs_dir.iterdir()] == [old.name]


# Cannot be read is not damaged


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES])
def test_checkpoint_that_cannot_be_read_is_kept_and_not_replaced_by_an_older_one(train, whole, monkeypatch, number):
    with monkeypatch.context() as patch:
        interrupt(patch, ResumePoint, epoch=3, after=True)
        with pytest.raises(RuntimeError, match="the power went off"):
            train(*FOUR_EPOCHS)
    run = Run(compose("train", [*TINY, *FOUR_EPOCHS, f"runs_dir={whole.path.parent}"]).run.path)
    files, original = [], builtins.open

    def fails(file, *arguments, **options):
        if str(file).endswith("last.ckpt"):
            files.append(file)
            raise OSError(number, "cannot")
        return original(file, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(builtins, "open", fails)
        patch.setattr("io.open", fails)
        with pytest.raises(UserError, match=r"last\.ckpt: cannot be read \(cannot\); the same command tries again"):
            train(*FOUR_EPOCHS)
    assert files
    assert run.name == whole.name
    assert_same(train(*FOUR_EPOCHS), whole)


def test_finished_run_whose_summary_cannot_be_read_is_not_trained_again(train, monkeypatch):
    run = train("checkpoint.keep_last=false")
    before = {path: path.read_bytes() for path in run.path.rglob("*.*") if path.name != "error.txt"}
    original = Path.read_text

    def fails(self, *arguments, **options):
        if self == run.summary_file:
            raise OSError(errno.EMFILE, "Too many open files", str(self))
        return original(self, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", fails)
        with pytest.raises(UserError, match=r"summary\.json: cannot be read \(Too many open files\); the same command"):
            train("checkpoint.keep_last=false")
    assert {path: path.read_bytes() for path in before} == before


# The end of a run is counted


@pytest.mark.parametrize("error", [StopIteration, SystemExit, GeneratorExit])
def test_loss_that_raises_an_end_ends_no_epoch(train, runs_dir, monkeypatch, error):
    """Of the data, to Lightning; of the program, with status 0."""

    def stops(self, *tensors):
        raise error

    monkeypatch.setattr("arith_erd.training.assemble.try_step", lambda *_: None)
    monkeypatch.setattr(CrossEntropy, "forward", stops)
    with pytest.raises(UserError, match=f"step 1: the network or the loss raises {error.__name__}"):
        train()
    (run,) = (Run(path) for path in runs_dir.iterdir())
    assert not run.finished
    assert not run.metrics()


@pytest.mark.parametrize("fault", ["a step is missing", "a row is missing", "a row is there twice"])
def test_run_is_finished_only_with_all_its_steps_and_rows(train, runs_dir, monkeypatch, fault):
    original = LitPack.on_train_end

    def spoil(self):
        original(self)
        (run,) = (Run(path) for path in runs_dir.iterdir())
        rows = run.metrics()
        if fault == "a step is missing":
            self.trainer.fit_loop.epoch_loop.automatic_optimization.optim_progress.optimizer.step.total.completed -= 1
        elif fault == "a row is missing":
            run.write_metrics(rows[1:])
        else:
            run.write_metrics([*rows, rows[0]])

    monkeypatch.setattr(LitPack, "on_train_end", spoil)
    with pytest.raises(UserError, match=r"has 5 steps|has 6 steps and [13] rows"):
        train()
    (run,) = (Run(path) for path in runs_dir.iterdir())
    assert not run.finished
    assert not run.has_summary
