"""What a run goes on from: written after an epoch, checked before it is trusted."""

import io
import zipfile
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.pytorch.callbacks import Checkpoint

from .errors import UserError
from .lit import LitPack
from .models.weights import is_plain, load_tensors
from .runs import Run, replacing

KEYS = {"epoch", "global_step", "loops", "optimizer_states", "pytorch-lightning_version", "state_dict"}


class ResumePoint(Checkpoint):
    """Write ``last.ckpt`` every few epochs, and keep the one before as ``previous.ckpt``."""

    def __init__(self, run: Run, every_n_epochs: int = 1) -> None:
        self.run = run
        self.every_n_epochs = every_n_epochs
        self.saved = 0
        """Epochs that the checkpoint has behind it."""

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.saved = trainer.current_epoch

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if (trainer.current_epoch + 1) % self.every_n_epochs == 0:
            with replacing(self.run.checkpoint, previous=self.run.previous_checkpoint) as beside:
                trainer.save_checkpoint(beside)
            self.saved = trainer.current_epoch + 1

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        if isinstance(exception, SystemExit):
            goes_on = f"resumes from epoch {self.saved + 1}" if self.saved else "starts again"
            if self.saved == trainer.max_epochs:
                goes_on = "has the summary left to write"
            print(f"{self.run.path}: stopped; the same command {goes_on}")


class PlainFile(TorchCheckpointIO):
    """Writes a checkpoint where it is told to, at once: `replacing` is what makes it whole or not at all.

    Lightning's own goes through the system's temporary folder, where a kill would leave it; and PyTorch, writing to a
    full disk itself, raises no `OSError`.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        whole = io.BytesIO()
        torch.save(checkpoint, whole)
        Path(path).write_bytes(whole.getbuffer())


def resume_point(run: Run, module: LitPack) -> Path | None:
    """The checkpoint to go on from; None for a run that starts.

    A last one that is damaged, or that a kill between two renames left missing, is replaced by the one before.

    Raises:
        UserError: if none of those that are there can be read, or ``metrics.csv`` lacks epochs that are behind it.
    """
    last, previous = run.checkpoint, run.previous_checkpoint
    there = [path for path in (last, previous) if path.is_file()]
    if not there:
        return None
    epochs = next(((path, n) for path in there if (n := epochs_behind(path, module)) is not None), None)
    if epochs is None:
        are, them = ("are", "them") if len(there) > 1 else ("is", "it")
        names = " and ".join(path.name for path in there)
        raise UserError(f"{run.path}: {names} {are} damaged; delete {them} to start again")
    path, behind = epochs
    if path == previous:
        if last in there:
            print(f"{last}: damaged; going on from the one before")
        previous.replace(last)
    rows = {(row["epoch"], row["seed"]) for row in run.metrics()}
    for epoch in range(1, behind + 1):
        if not all((epoch, seed) in rows for seed in module.pack.seeds):
            raise UserError(f"{run.path}: metrics.csv lacks epoch {epoch}; delete {last.name} to start again")
    return last


def epochs_behind(checkpoint: Path, module: LitPack) -> int | None:
    """How many epochs a checkpoint has behind it; None if it is damaged, or of something else than this module."""
    shapes = {name: value.shape for name, value in module.state_dict().items()}
    try:
        saved = load_tensors(checkpoint)
        with zipfile.ZipFile(checkpoint) as archive:
            if archive.testzip() is not None:  # the checksums; `torch.load` does not look at them
                return None
        fits = {name: value.shape for name, value in saved["state_dict"].items() if is_plain(value)} == shapes
        whole = fits and saved.keys() >= KEYS and len(saved["optimizer_states"]) == 1
        return int(saved["epoch"]) + 1 if whole else None
    except Exception:  # damaged bytes can make an unpickler raise anything
        return None
