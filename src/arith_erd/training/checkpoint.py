"""What a run goes on from: written between two steps, checked before it is trusted."""

import io
import zipfile
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.pytorch.callbacks import Checkpoint

from ..errors import UserError
from ..models.weights import is_plain, load_tensors
from ..runs import Run
from ..system import signals
from ..system.files import replacing
from .module import LitPack

KEYS = {"epoch", "global_step", "loops", "optimizer_states", "pytorch-lightning_version", "state_dict"}


class ResumePoint(Checkpoint):
    """Write ``last.ckpt``, every few epochs and when a signal asks to leave; the one before is ``previous.ckpt``."""

    def __init__(self, run: Run, every_n_epochs: int = 1) -> None:
        self.run = run
        self.every_n_epochs = every_n_epochs
        self.goes_on = "starts again"
        """What the same command does next."""

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.global_step > 0:
            self.goes_on = f"resumes from {place(trainer)}"

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        # After the last batch Lightning would take the epoch for finished, without its validation.
        if signals.asked() and not trainer.is_last_batch:
            self.save(trainer, place(trainer))
            signals.check()

    def on_validation_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        if signals.asked():
            progress = trainer.fit_loop.epoch_loop.val_loop.batch_progress
            progress.reset()  # to the first batch, half done: that is where Lightning begins a validation once more
            progress.increment_ready()
            progress.increment_started()
            self.save(trainer, place(trainer))
            signals.check()

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        epoch = trainer.current_epoch + 1
        if epoch % self.every_n_epochs == 0 or signals.asked():
            self.save(trainer, f"epoch {epoch + 1}")
            if epoch == trainer.max_epochs or trainer.should_stop:
                self.goes_on = "has the summary left to write"
            signals.check()

    def save(self, trainer: L.Trainer, where: str) -> None:
        """Replace the checkpoint; ``where`` says from where the run is to go on."""
        with replacing(self.run.checkpoint, previous=self.run.previous_checkpoint) as beside:
            trainer.save_checkpoint(beside)
        self.goes_on = f"resumes from {where}"

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        if isinstance(exception, SystemExit):
            print(f"{self.run.path}: stopped; the same command {self.goes_on}")


def place(trainer: L.Trainer) -> str:
    """Where a run stands: ``epoch 3``, or ``epoch 3, after 41 of 96 steps``."""
    steps = int(trainer.num_training_batches)
    taken = trainer.global_step - trainer.current_epoch * steps
    return f"epoch {trainer.current_epoch + 1}" + (f", after {taken} of {steps} steps" if taken else "")


class PlainFile(TorchCheckpointIO):
    """Writes a checkpoint where it is told to, at once: `replacing` is what makes it whole or not at all.

    Lightning's own goes through the system's temporary folder, where a kill would leave it; and PyTorch, writing to a
    full disk itself, raises no `OSError`.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        whole = io.BytesIO()
        torch.save(checkpoint, whole)
        Path(path).write_bytes(whole.getbuffer())


def resume_point(run: Run, module: LitPack, trainer: L.Trainer) -> Path | None:
    """The checkpoint to go on from; None for a run that starts.

    A last one that is damaged, or that a kill between two renames left missing, is replaced by the one before.

    Raises:
        UserError: if none of those that are there can be read, or ``metrics.csv`` lacks epochs that are behind it.
    """
    last, previous = run.checkpoint, run.previous_checkpoint
    there = [path for path in (last, previous) if path.is_file()]
    if not there:
        return None
    epochs = next(((path, n) for path in there if (n := epochs_behind(path, module, trainer)) is not None), None)
    if epochs is None:
        are, them = ("are", "them") if len(there) > 1 else ("is", "it")
        names = " and ".join(path.name for path in there)
        raise UserError(f"{run.path}: {names} {are} damaged, or of another version; delete {them} to start again")
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


def epochs_behind(checkpoint: Path, module: LitPack, trainer: L.Trainer) -> int | None:
    """How many whole epochs a checkpoint has behind it; None if it is damaged, or not of this module."""
    shapes = {name: value.shape for name, value in module.state_dict().items()}
    try:
        saved = load_tensors(checkpoint)
        with zipfile.ZipFile(checkpoint) as archive:
            if archive.testzip() is not None:  # the checksums; `torch.load` does not look at them
                return None
        (state,) = saved["optimizer_states"]
        whole = (
            saved.keys() >= KEYS
            and {name: value.shape for name, value in saved["state_dict"].items() if is_plain(value)} == shapes
            and are_counts(saved["loops"]["fit_loop"], trainer.fit_loop.state_dict())
            and is_state_of(module.configure_optimizers(), state)
        )
        return int(saved["loops"]["fit_loop"]["epoch_progress"]["current"]["processed"]) if whole else None
    except Exception:  # damaged bytes can make an unpickler raise anything
        return None


def are_counts(saved: Any, own: Any) -> bool:
    """Whether a tree of counts, as Lightning's loops keep them, has the branches of another one."""
    if isinstance(own, dict):
        return saved.keys() == own.keys() and all(are_counts(saved[key], value) for key, value in own.items())
    return isinstance(saved, int) and 0 <= saved < 2**31


def is_state_of(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> bool:
    """Whether a saved state is what an optimizer has after a step: fused kernels write where it says, unchecked.

    The step is taken here, with gradients of zero: on an optimizer, and on parameters, that nobody uses.
    """
    for group in optimizer.param_groups:
        group["params"] = [torch.zeros_like(p, requires_grad=True) for p in group["params"]]
        for p in group["params"]:
            p.grad = torch.zeros_like(p)
    optimizer.step()
    own = optimizer.state_dict()
    return saved["param_groups"] == own["param_groups"] and _alike(saved["state"], own["state"])


def _alike(saved: Any, own: Any) -> bool:
    """Whether two trees have the same branches, and at their ends values of one type, and tensors of one layout.

    Numbers may be of another precision: what loads them converts them.
    """
    if isinstance(own, dict):
        return saved.keys() == own.keys() and all(_alike(saved[key], value) for key, value in own.items())
    if not isinstance(own, torch.Tensor):
        return type(saved) is type(own)
    return is_plain(saved) and (saved.shape, saved.stride()) == (own.shape, own.stride())
