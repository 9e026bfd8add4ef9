"""Write checkpoints atomically, between two steps. `resume` reads them."""

import io
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.pytorch.callbacks import Checkpoint

from ..runs import Run
from ..system import signals
from ..system.files import replacing


class ResumePoint(Checkpoint):
    """Writes ``last.ckpt`` every few epochs and when a signal asks the run to stop; the one before stays beside it.

    On a stop it prints where the same command continues. With ``at_end`` it also writes one after the last epoch, for a
    longer run to continue from.
    """

    def __init__(self, run: Run, every_n_epochs: int = 1, at_end: bool = True) -> None:
        self.run, self.every_n_epochs, self.at_end = run, every_n_epochs, at_end
        self.next_time = "starts again"  # what the same command will do

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.global_step > 0:
            self.next_time = f"resumes from {position(trainer)}"

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        # Not after the last batch: Lightning would consider the epoch finished, without its validation.
        if signals.asked() and not trainer.is_last_batch:
            self.save(trainer, position(trainer))
            signals.check()

    def on_validation_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        if signals.asked():
            progress = trainer.fit_loop.epoch_loop.val_loop.batch_progress
            progress.reset()  # to the first batch, half done: there Lightning starts a validation again
            progress.increment_ready()
            progress.increment_started()
            self.save(trainer, position(trainer))
            signals.check()

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        epoch = trainer.current_epoch + 1
        is_last = epoch == trainer.max_epochs or trainer.should_stop
        if epoch % self.every_n_epochs == 0 or (is_last and self.at_end) or signals.asked():
            self.save(trainer, f"epoch {epoch + 1}")
            if is_last:
                self.next_time = "will write the summary"
            signals.check()

    def save(self, trainer: L.Trainer, where: str) -> None:
        """Replace the checkpoint; ``where`` says at which epoch and step the run will resume."""
        with replacing(self.run.checkpoint, previous=self.run.previous_checkpoint) as beside:
            trainer.save_checkpoint(beside)
        self.next_time = f"resumes from {where}"

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        if isinstance(exception, SystemExit):
            print(f"{self.run.path}: stopped; the same command {self.next_time}")


def position(trainer: L.Trainer) -> str:
    """``epoch 3``, or ``epoch 3, after 41 of 96 steps``."""
    steps = int(trainer.num_training_batches)
    taken = trainer.global_step - trainer.current_epoch * steps
    return f"epoch {trainer.current_epoch + 1}" + (f", after {taken} of {steps} steps" if taken else "")


class CheckpointFile(TorchCheckpointIO):
    """Writes to the given path in one go. Lightning's own writer stages elsewhere; PyTorch raises no `OSError`."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        whole = io.BytesIO()
        torch.save(checkpoint, whole)
        Path(path).write_bytes(whole.getbuffer())
