"""Runs stopped by a signal resume from the step at which they stopped."""

import os
import signal
import sys

import pytest

from arith_erd.loggers import Csv
from arith_erd.system.signals import signals_caught
from arith_erd.training.callbacks import MetricsWriter
from arith_erd.training.module import LitPack
from tests.behaviour.interruption import Listener, assert_same
from tests.tiny import FOUR_EPOCHS


def signalled(monkeypatch, epoch: int, hook: str, batch: int | None = None, number: signal.Signals = signal.SIGTERM):
    """Make a signal come in an epoch (from 1), at the end of that batch or of the epoch."""
    original = getattr(MetricsWriter, hook)

    def receiving(self, trainer, pl_module, *rest):
        original(self, trainer, pl_module, *rest)
        if trainer.current_epoch + 1 == epoch and (batch is None or rest[2] == batch):
            os.kill(os.getpid(), number)

    monkeypatch.setattr(MetricsWriter, hook, receiving)


def stop(train, *overrides) -> None:
    """Train until the signal ends it."""
    with pytest.raises(SystemExit), signals_caught():
        train(*FOUR_EPOCHS, *overrides)


@pytest.fixture
def submitit():
    """Somebody who listens for SIGUSR2, and ends the program."""
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
        (signal.SIGHUP, "on_train_batch_end", 2, "epoch 3, after 3 of 3 steps", 3),
        (signal.SIGINT, "on_validation_batch_end", 0, "epoch 3, after 3 of 3 steps", 3),
        (signal.SIGUSR2, "on_train_batch_end", 1, "epoch 3, after 2 of 3 steps", 4),
        (signal.SIGUSR2, "on_train_epoch_end", None, "epoch 4", 3),
    ],
)
def test_run_stopped_by_a_signal_resumes_from_that_step(
    train, whole, runs_dir, monkeypatch, capsys, submitit, number, hook, batch, place, left
):
    """In the middle of an epoch, in its last step, in its validation, or while its checkpoint is written.

    Three steps an epoch; ``left`` are those that the same command then takes. A checkpoint would be due after all four.
    """
    with monkeypatch.context() as patch:
        signalled(patch, 3, hook, batch, number)
        stop(train, "checkpoint.every_n_epochs=4")
    assert f"the same command resumes from {place}\n" in capsys.readouterr().out
    assert submitit.heard == ([number] if number == signal.SIGUSR2 else [])
    assert not list(runs_dir.glob("*/error.txt"))
    steps, step = [], LitPack.training_step
    monkeypatch.setattr(LitPack, "training_step", lambda self, *rest: steps.append(rest[1]) or step(self, *rest))
    assert_same(whole, train(*FOUR_EPOCHS))
    assert f"resuming from {place}\n" in capsys.readouterr().out
    assert len(steps) == left


@pytest.mark.parametrize("overrides", [("data.batch_size=1000", "scheduler=warmup_cosine"), ("trainer.stop_at=0.0",)])
def test_signal_during_validation_stops_the_run(train, tmp_path, train_in, monkeypatch, overrides):
    """Of an epoch of one step, or of one that is the first and the last; the logged rate is that of the epoch."""
    logged = []
    monkeypatch.setattr(Csv, "log", lambda self, rows: logged.extend(row["learning_rate"] for row in rows))
    with monkeypatch.context() as patch:
        signalled(patch, 1, "on_validation_batch_end", 0)
        stop(train, *overrides)
    stopped = train(*FOUR_EPOCHS, *overrides)
    of_stopped = logged.copy()
    logged.clear()
    assert_same(stopped, train_in(tmp_path / "whole", *FOUR_EPOCHS, *overrides))
    assert of_stopped == logged


@pytest.mark.parametrize("overrides", [("checkpoint.every_n_epochs=3",), ("trainer.stop_at=0.0",)], ids=" ".join)
def test_signal_after_the_last_epoch_still_writes_the_summary(train, monkeypatch, capsys, overrides):
    with monkeypatch.context() as patch:
        signalled(patch, 1 if "trainer.stop_at=0.0" in overrides else 4, "on_train_epoch_end", number=signal.SIGUSR1)
        stop(train, *overrides)
    assert "the same command will write the summary\n" in capsys.readouterr().out
    assert train(*FOUR_EPOCHS, *overrides).finished
