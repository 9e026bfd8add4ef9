"""Write checkpoints atomically between two steps, check them, and resume from them; write the replicas' weights.

Random streams need no state, since they are functions of the step. So two runs that differ only in
``trainer.max_epochs`` share their first epochs bit for bit, and the longer one continues the shorter one.
"""

import io
import math
import shutil
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.pytorch.callbacks import Checkpoint
from safetensors.torch import save

from ..config.job import Job
from ..errors import UserError, file_may_be_intact, first_line
from ..models.weights import epochs_done, is_float_tensor, load_tensors
from ..runs.directory import TEMPORARY_PREFIX, Run
from ..runs.identity import short_hash, weights_config
from ..system import signals
from ..system.files import MAX_SIZE, atomic_file, run_path
from .lit_pack import LitPack
from .pack import Pack


class CheckpointWriter(Checkpoint):
    """Writes ``last.ckpt`` every few epochs, when a signal stops the run, and, if ``at_end``, after the last epoch."""

    def __init__(self, run: Run, every_n_epochs: int, at_end: bool) -> None:
        self.run, self.every_n_epochs, self.at_end = run, every_n_epochs, at_end

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        # Not after the last batch: Lightning would consider the epoch finished, without its validation.
        if signals.pending() and not trainer.is_last_batch:
            self.save(trainer)
            signals.raise_pending()

    def on_validation_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        if signals.pending():
            progress = trainer.fit_loop.epoch_loop.val_loop.batch_progress
            progress.reset()  # and mark the first batch as started: on resuming, Lightning repeats the validation
            progress.increment_ready()
            progress.increment_started()
            self.save(trainer)
            signals.raise_pending()

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        epoch = trainer.current_epoch + 1
        is_last = epoch == trainer.max_epochs or trainer.should_stop
        if epoch % self.every_n_epochs == 0 or (is_last and self.at_end) or signals.pending():
            self.save(trainer)
            signals.raise_pending()

    def save(self, trainer: L.Trainer) -> None:
        with atomic_file(self.run.checkpoint_file) as partial:
            trainer.save_checkpoint(partial)

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        if isinstance(exception, signals.ProgramExit):
            if self.run.path.parent.name.startswith(TEMPORARY_PREFIX):
                print("fit: stopped, and nothing is kept; with out=FOLDER the same call continues")
            else:
                print(f"{self.run.path}: stopped; the same command continues")


def progress_text(trainer: L.Trainer) -> str:
    """``epoch 3``, ``epoch 3, after 41 of 96 steps``, or ``epoch 3 trained, not yet evaluated``."""
    steps = int(trainer.num_training_batches)
    taken = trainer.global_step - trainer.current_epoch * steps
    progress = " trained, not yet evaluated" if taken == steps else f", after {taken} of {steps} steps" if taken else ""
    return f"epoch {trainer.current_epoch + 1}{progress}"


class DirectCheckpointIO(TorchCheckpointIO):
    """Writes directly to the path. Lightning writes elsewhere first, and torch raises no `OSError` on a full disk."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        buffer = io.BytesIO()
        torch.save(checkpoint, buffer)
        Path(path).write_bytes(buffer.getbuffer())


def find_checkpoint(run: Run, module: LitPack) -> Path | None:
    """The last checkpoint, or None without one; a `UserError` if the run cannot continue from it."""
    path = run.checkpoint_file
    if not path.is_file():
        return None
    try:
        saved = load_tensors(run_path(path, limit=math.inf))
        states = saved["state_dict"], module.state_dict()
        saved_shapes, shapes = ({name: x.shape for name, x in state.items()} for state in states)
        (optimizer,) = saved["optimizer_states"]
        if saved_shapes != shapes or not _moments_fit(optimizer, module):
            raise ValueError("weights of another network")
        epochs = epochs_done(saved)
    except Exception as error:  # damaged bytes can make an unpickler raise anything
        if file_may_be_intact(error):
            raise
        hint = "if it is damaged, or of another version, delete it to start again"
        raise UserError(f"{path}: cannot be read ({first_line(error).partition('. ')[0]}); {hint}") from error
    require_all_rows(run, epochs, module.pack.seeds)
    return path


def require_all_rows(run: Run, epochs: int, seeds: Sequence[int]) -> None:
    """Raise a `UserError` unless ``metrics.csv`` has one row per seed for each of the first ``epochs``."""
    # The number comes from a file, so the count is compared before a list is made.
    found = sorted((row["epoch"], row["seed"]) for row in run.metrics() if row["epoch"] <= epochs)
    if len(found) != epochs * len(seeds) or found != [*product(range(1, epochs + 1), sorted(seeds))]:
        problem = f"has not exactly one row for each seed and epoch up to {epochs}"
        raise UserError(f"{run.path}: metrics.csv {problem}; delete {run.checkpoint_file.name} to start again")


def continue_shorter_run(job: Job, module: LitPack, sources: Mapping[str, str]) -> None:
    """Copy the state of the longest readable shorter run into the new directory of a job's run, if there is any.

    A shorter run is a finished run with the hash that the job would have with fewer epochs.
    """
    run, shorter_runs = job.run, {}
    for other in map(Run, job.runs_dir.glob("*-*")):
        try:
            if other.checkpoint_file.is_file() and other.finished:
                epochs = other.summary().get("epochs", 0)  # the epochs in its hash, unless ``trainer.stop_at`` ended it
                same = job.resolved | {"trainer": job.resolved["trainer"] | {"max_epochs": epochs}}
                if other.name.endswith(f"-{short_hash(weights_config(same))}") and epochs < job.trainer.max_epochs:
                    shorter_runs[epochs] = other
        except Exception as error:  # another run may be damaged in any way
            print(f"{other.path}: left out ({first_line(error)})")
    for epochs, shorter in sorted(shorter_runs.items(), reverse=True):
        try:
            find_checkpoint(shorter, module)
            files = *shorter.path.glob("weights/epoch=*/seed=*.safetensors"), *shorter.path.glob("*.csv")
            for file in (*files, shorter.checkpoint_file):  # the checkpoint last, since a run resumes if it exists
                target = run.path / file.relative_to(shorter.path)
                run_path(target.parent, run.path).mkdir(parents=True, exist_ok=True)
                limit = MAX_SIZE if file.suffix == ".csv" else shorter.checkpoint_file.stat().st_size
                with atomic_file(target, run.path) as partial:
                    shutil.copyfile(run_path(file, shorter.path, limit), partial)
            changes = shorter.describe_code_changes(sources)
        except Exception as error:
            print(f"{shorter.path}: not continued ({first_line(error)})")
            continue
        print(f"{run.path}: continues {shorter.path}, which was trained to epoch {epochs}{changes}")
        return


def _moments_fit(saved: dict[str, Any], module: LitPack) -> bool:
    """Whether an optimizer's saved moments have the parameters' shapes; a fused step does not check this."""
    indices = [index for group in saved["param_groups"] for index in group["params"]]
    parameters = [parameter for group in module.parameter_groups() for parameter in group["params"]]
    shapes = {index: parameter.shape for index, parameter in zip(indices, parameters, strict=True)}
    states = saved["state"].items()
    moments = [(index, x) for index, state in states for name, x in state.items() if "exp_avg" in name]
    return all(x.shape == shapes[index] and is_float_tensor(x) and x.is_contiguous() for index, x in moments)


def save_weights(run: Run, pack: Pack, epoch: int | None = None) -> None:
    """Write ``weights/seed=K.safetensors`` for every replica, or ``weights/epoch=E/seed=K.safetensors``."""
    for index, seed in enumerate(pack.seeds):
        path = run.weights_file(seed, epoch)
        path.parent.mkdir(exist_ok=True)
        with atomic_file(path, run.path) as partial:
            # Raises an OSError if the disk is full, unlike the library's own writer.
            partial.write_bytes(save(pack.replica_state(index)))
