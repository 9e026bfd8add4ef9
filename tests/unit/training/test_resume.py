"""Runs with more epochs, and runs that are overwritten."""

import pytest

from arith_erd.training.checkpoint import ResumePoint
from tests.behaviour.interruption import assert_same, interrupt
from tests.tiny import FOUR_EPOCHS


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


def test_overwriting_keeps_the_old_run_until_the_new_one_has_finished(train, runs_dir, monkeypatch, capsys):
    old = train()
    (old.path / "mine").touch()
    with monkeypatch.context() as patch:
        interrupt(patch, ResumePoint, 1, True)
        with pytest.raises(RuntimeError, match="the power went off"):
            train("overwrite=true")
    assert old.finished
    again = train("overwrite=true")
    out = capsys.readouterr().out
    assert "resuming from epoch 2" in out
    assert f"{old.path}: the new run has replaced the old one" in out
    assert again.path == old.path
    assert not (old.path / "mine").exists()
    assert [path.name for path in runs_dir.iterdir()] == [old.name]
