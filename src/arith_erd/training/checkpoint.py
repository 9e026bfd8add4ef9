"""Write checkpoints atomically between two steps, check them, and resume from them; write the replicas' weights.

Random streams need no state, since they are functions of the step. A run with more epochs continues from the end of a
shorter run that still has its ``last.ckpt`` (`continue_shorter`): two runs that differ only in ``trainer.max_epochs``
share their first epochs bit for bit. Runs with a schedule differ in more, as its options have the number of epochs.
"""

import errno
import io
import shutil
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.pytorch.callbacks import Checkpoint
from safetensors.torch import save

from ..config.job import Job
from ..errors import UserError, first_line
from ..models.weights import is_float_tensor, load_tensors
from ..runs.directory import Run, identity
from ..system import signals
from ..system.files import replacing
from .module import LitPack
from .pack import Pack


class ResumePoint(Checkpoint):
    """Writes ``last.ckpt`` every few epochs and when a signal stops the run, and then prints where it will resume.

    With ``at_end`` it also writes one after the last epoch, from which a longer run can continue.
    """

    def __init__(self, run: Run, every_n_epochs: int = 1, at_end: bool = True) -> None:
        self.run, self.every_n_epochs, self.at_end = run, every_n_epochs, at_end
        self.after_restart = "starts again"  # effect of the same command

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.global_step > 0:
            self.after_restart = f"resumes from {progress_text(trainer)}"

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        # Not after the last batch: Lightning would consider the epoch finished, without its validation.
        if signals.pending() and not trainer.is_last_batch:
            self.save(trainer, progress_text(trainer))
            signals.raise_pending()

    def on_validation_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        if signals.pending():
            progress = trainer.fit_loop.epoch_loop.val_loop.batch_progress
            progress.reset()  # to the first batch, half done: there Lightning starts a validation again
            progress.increment_ready()
            progress.increment_started()
            self.save(trainer, progress_text(trainer))
            signals.raise_pending()

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        epoch = trainer.current_epoch + 1
        is_last = epoch == trainer.max_epochs or trainer.should_stop
        if epoch % self.every_n_epochs == 0 or (is_last and self.at_end) or signals.pending():
            self.save(trainer, f"epoch {epoch + 1}")
            if is_last:
                self.after_restart = "will write the summary"
            signals.raise_pending()

    def save(self, trainer: L.Trainer, where: str) -> None:
        """Replace the checkpoint; ``where`` names the epoch and step at which the run will resume."""
        with replacing(self.run.checkpoint) as partial:
            trainer.save_checkpoint(partial)
        self.after_restart = f"resumes from {where}"

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        if isinstance(exception, SystemExit):
            print(f"{self.run.path}: stopped; the same command {self.after_restart}")


def progress_text(trainer: L.Trainer) -> str:
    """The progress of a run as text: ``epoch 3``, or ``epoch 3, after 41 of 96 steps``."""
    steps = int(trainer.num_training_batches)
    taken = trainer.global_step - trainer.current_epoch * steps
    return f"epoch {trainer.current_epoch + 1}" + (f", after {taken} of {steps} steps" if taken else "")


class CheckpointFile(TorchCheckpointIO):
    """Writes a checkpoint to the given path at once. Lightning writes elsewhere first; PyTorch raises no `OSError`."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        whole = io.BytesIO()
        torch.save(checkpoint, whole)
        Path(path).write_bytes(whole.getbuffer())


def find_checkpoint(run: Run, module: LitPack) -> Path | None:
    """The last checkpoint; None if there is none; a `UserError` if the run cannot continue from it."""
    path = run.checkpoint
    if not path.is_file():
        return None
    try:
        saved = load_tensors(path)
        with zipfile.ZipFile(path) as archive:
            intact = archive.testzip() is None  # the checksums, which `torch.load` ignores
        states = saved["state_dict"], module.state_dict()
        theirs, own = ({name: x.shape for name, x in state.items()} for state in states)
        (optimizer,) = saved["optimizer_states"]
        fits = theirs == own and _moments_fit(optimizer, module)
        epochs = int(saved["loops"]["fit_loop"]["epoch_progress"]["current"]["processed"])
    except Exception as error:  # damaged bytes can make an unpickler raise anything
        intact = False
        # Others say nothing about what is in it. A damaged archive names places before its beginning: EINVAL.
        if isinstance(error, OSError | MemoryError) and getattr(error, "errno", None) != errno.EINVAL:
            why = getattr(error, "strerror", None) or first_line(error)
            raise UserError(f"{path}: cannot be read ({why}); the same command tries again") from error
    if not (intact and fits):
        raise UserError(f"{path}: damaged, or of another version; delete it to start again")
    require_rows(run, epochs, module.pack.seeds)
    return path


def require_rows(run: Run, epochs: int, seeds: Sequence[int]) -> None:
    """Raise a `UserError` unless ``metrics.csv`` has one row per seed for each of the first ``epochs`` (untrusted)."""
    counts = Counter((row["epoch"], row["seed"]) for row in run.metrics() if row["epoch"] <= epochs)
    lacking = (epoch for epoch in range(1, epochs + 1) if not all(counts[epoch, seed] for seed in seeds))
    if (epoch := next(lacking, None)) or counts.total() != epochs * len(seeds):
        fault = f"lacks epoch {epoch}" if epoch else "has more than one row for each epoch and seed"
        raise UserError(f"{run.path}: metrics.csv {fault}; delete {run.checkpoint.name} to start again")


def continue_shorter(job: Job, module: LitPack, sources: Mapping[str, str]) -> None:
    """Copy the state of the longest readable shorter run into the new directory of a job's run, if there is any."""
    run = job.run
    for shorter, epochs in sorted(_shorter_runs(job), key=lambda found: found[1], reverse=True):
        try:
            find_checkpoint(shorter, module)
            kept = *shorter.path.glob("weights/epoch=*/seed=*.safetensors"), *shorter.path.glob("*.csv")
            for path in (*kept, shorter.checkpoint):  # the checkpoint last, since it is what counts
                target = run.path / path.relative_to(shorter.path)
                target.parent.mkdir(parents=True, exist_ok=True)
                with replacing(target) as partial:
                    shutil.copyfile(path, partial)
        except (UserError, OSError) as error:
            print(f"{shorter.path}: not continued ({error})")
            continue
        changes = shorter.code_changes(sources)
        print(f"{run.path}: continues {shorter.path}, which was trained for {epochs} epochs{changes}")
        return


def _shorter_runs(job: Job) -> Iterator[tuple[Run, int]]:
    """Finished runs that differ from a job's own only in a smaller number of epochs, with that number."""
    own = identity(job.resolved)
    start = "-".join(own[group]["name"] for group in ("task", "split", "model", "ablation"))
    for run in map(Run, job.runs_dir.glob(f"{start}-*")):
        if not (run.checkpoint.is_file() and run.finished):
            continue
        with suppress(UserError, KeyError, TypeError, AttributeError):  # not the configuration of a run
            other = identity(run.config())
            epochs, more = other["trainer"]["max_epochs"], own["trainer"]["max_epochs"]
            same = other | {"trainer": other["trainer"] | {"max_epochs": more}} == own
            if same and type(epochs) is int and epochs < more and run.summary().get("epochs") == epochs:
                yield run, epochs


def _moments_fit(saved: dict[str, Any], module: LitPack) -> bool:
    """Whether the moments in an optimizer's state have the parameters' shapes, which a fused step does not check."""
    places = [place for group in saved["param_groups"] for place in group["params"]]
    shapes = [parameter.shape for group in module.parameter_groups() for parameter in group["params"]]
    shape = dict(zip(places, shapes, strict=True))
    states = saved["state"].items()
    moments = [(place, x) for place, state in states for name, x in state.items() if "exp_avg" in name]
    return all(x.shape == shape[place] and is_float_tensor(x) and x.is_contiguous() for place, x in moments)


def save_weights(run: Run, pack: Pack, epoch: int | None = None) -> None:
    """Write ``weights/seed=K.safetensors`` for every replica, or ``weights/epoch=E/seed=K.safetensors``."""
    for index, seed in enumerate(pack.seeds):
        path = run.weights(seed, epoch)
        path.parent.mkdir(exist_ok=True)
        with replacing(path) as partial:
            # Raises an OSError if the disk is full, unlike the library's own writer.
            partial.write_bytes(save(pack.replica_state(index)))
