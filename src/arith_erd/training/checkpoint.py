"""Checkpoints: written atomically between two steps, checked, and resumed from.

Random streams need nothing: they are functions of the step. A run with more epochs continues from the end of a shorter
one that still has its ``last.ckpt`` (`continue_shorter`): two runs that differ in ``trainer.max_epochs`` alone share
their first epochs bit for bit. A schedule has the number of epochs in its own options, so such runs differ in more.
"""

import errno
import io
import math
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.pytorch.callbacks import Checkpoint

from ..config.job import Job
from ..errors import UserError, first_line
from ..models.weights import is_plain, load_tensors
from ..runs import Row, Run, identity
from ..system import signals
from ..system.files import replacing
from .module import LitPack


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


def find_checkpoint(run: Run, module: LitPack, device: torch.device) -> Path | None:
    """The last checkpoint, or the previous one if that is damaged or missing; None for a run that starts.

    Raises:
        UserError: if one cannot be read, all are damaged, or ``metrics.csv`` does not hold each epoch before it once.
    """
    there = [path for path in (run.checkpoint, run.previous_checkpoint) if path.is_file()]
    if not there:
        return None
    usable = next(((path, n) for path in there if (n := epochs_in(path, module, device)) is not None), None)
    if usable is None:
        are, them = ("are", "them") if len(there) > 1 else ("is", "it")
        names = " and ".join(path.name for path in there)
        raise UserError(f"{run.path}: {names} {are} damaged, or of another version; delete {them} to start again")
    path, epochs = usable
    if path != there[0]:
        print(f"{run.checkpoint}: damaged; the run resumes from the previous checkpoint")
    if path == run.previous_checkpoint:
        path.replace(run.checkpoint)
    _require_rows(run, run.metrics(), epochs, module.pack.seeds)
    return run.checkpoint


def _require_rows(run: Run, rows: Iterable[Row], epochs: int, seeds: Sequence[int]) -> None:
    """Raise a `UserError` unless the rows up to an epoch, any number that a file may say, are one for each seed."""
    found = Counter((row["epoch"], row["seed"]) for row in rows if row["epoch"] <= epochs)
    lacking = (epoch for epoch in range(1, epochs + 1) if not all(found[epoch, seed] for seed in seeds))
    if (epoch := next(lacking, None)) or found.total() != epochs * len(seeds):
        fault = f"lacks epoch {epoch}" if epoch else "has more than one row for each epoch and seed"
        raise UserError(f"{run.path}: metrics.csv {fault}; delete {run.checkpoint.name} to start again")


def continue_shorter(job: Job, module: LitPack, device: torch.device) -> None:
    """Copy the state of the longest shorter run that can be read into the directory of a job's run, which has none."""
    run = job.run
    for shorter, epochs in sorted(_shorter_runs(job), key=lambda found: found[1], reverse=True):
        try:
            if epochs_in(shorter.checkpoint, module, device) != epochs:
                continue
            rows = shorter.metrics()
            _require_rows(shorter, rows, epochs, job.seeds)
            for seed in job.seeds:
                for epoch in shorter.kept_epochs(seed):
                    _copy(shorter.weights(seed, epoch), run.weights(seed, epoch))
            run.write_metrics(rows)
            for name in ("tokens_file", "slices_file"):
                if (file := getattr(shorter, name)).is_file():
                    _copy(file, getattr(run, name))
            _copy(shorter.checkpoint, run.checkpoint)  # last, since it is what counts
        except UserError as error:
            print(f"{shorter.path}: not continued ({error})")
            continue
        print(f"{run.path}: continues {shorter.path}, which was trained for {epochs} epochs")
        return


def _copy(source: Path, target: Path) -> None:
    """Copy a file: a `UserError` says if it cannot be read, an `OSError` if the copy cannot be written."""
    try:
        content = source.read_bytes()
    except OSError as error:
        raise UserError(f"{source}: cannot be read ({error.strerror})") from error
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as beside:
        beside.write_bytes(content)


def _shorter_runs(job: Job) -> Iterator[tuple[Run, int]]:
    """Finished runs beside a job's own that differ from it in a smaller number of epochs alone; and that number."""
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


def epochs_in(checkpoint: Path, module: LitPack, device: torch.device) -> int | None:
    """How many whole epochs a checkpoint was trained for; None if it is damaged, or not of this module.

    Args:
        device: where the module will be trained: its optimizer may work nowhere else.

    Raises:
        UserError: if the file cannot be read: that says nothing about what is in it.
    """
    try:
        saved = load_tensors(checkpoint)
        with zipfile.ZipFile(checkpoint) as archive:
            intact = archive.testzip() is None  # the checksums, which `torch.load` ignores
        theirs, own = (
            {name: x.shape for name, x in state.items()} for state in (saved["state_dict"], module.state_dict())
        )
        epochs = int(saved["loops"]["fit_loop"]["epoch_progress"]["current"]["processed"])
        (optimizer,) = saved["optimizer_states"]
        intact &= theirs == own and _are_counts(saved["loops"], saved["global_step"])
        return epochs if intact and _fits(optimizer, module, device) else None
    except (OSError, MemoryError) as error:
        if getattr(error, "errno", None) == errno.EINVAL:  # a damaged archive names places before its beginning
            return None
        why = getattr(error, "strerror", None) or first_line(error)
        raise UserError(f"{checkpoint}: cannot be read ({why}); the same command tries again") from error
    except Exception:  # damaged bytes can make an unpickler raise anything
        return None


def _are_counts(node: Any, most: int) -> bool:
    """Whether Lightning's progress, a tree of dictionaries, holds counts alone, of no more than the steps taken."""
    if isinstance(node, dict):
        return all(_are_counts(child, most) for child in node.values())
    return isinstance(node, int) and 0 <= node <= most


def _fits(saved: dict[str, Any], module: LitPack, device: torch.device) -> bool:
    """Whether an optimizer can go on from a state: its steps, fused ones above all, do not check what they find.

    A step on one parameter shows what a state holds; its tensors are shaped like the parameter, or numbers.
    """
    tried = torch.nn.Parameter(torch.zeros(2, 3, device=device))
    tried.grad = torch.zeros_like(tried)
    optimizer = module.optimizer([{"params": [tried]}])
    optimizer.step(lambda: 0.0)
    expected = optimizer.state[tried]
    places = (place for group in saved["param_groups"] for place in group["params"])
    shapes = (parameter.shape for group in module.parameter_groups() for parameter in group["params"])
    shape = dict(zip(places, shapes, strict=True))

    def tensor_fits(name: str, x: torch.Tensor, place: int) -> bool:
        number = name in expected and expected[name].dim() == 0
        return x.shape == () if number else x.shape == shape[place] and is_plain(x) and x.is_contiguous()

    return all(_alike(group, optimizer.defaults) for group in saved["param_groups"]) and all(
        _alike(state, expected)
        and all(tensor_fits(name, x, place) for name, x in state.items() if isinstance(x, torch.Tensor))
        for place, state in saved["state"].items()
    )


def _alike(value: Any, expected: Any) -> bool:
    """Whether a value is of the kind of another one; a dictionary may have more keys, and switches may be unset."""
    if isinstance(expected, dict):
        return isinstance(value, dict) and all(name in value and _alike(value[name], x) for name, x in expected.items())
    if isinstance(expected, tuple | list):
        return isinstance(value, tuple | list) and [type(x) for x in value] == [type(x) for x in expected]
    if expected is None or isinstance(expected, bool):
        return value is None or isinstance(value, bool)
    if isinstance(expected, int | float):
        return isinstance(value, int | float) and math.isfinite(value)
    return isinstance(value, type(expected))
