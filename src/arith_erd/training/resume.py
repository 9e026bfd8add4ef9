"""Resuming: the choice and the check of the checkpoint. Random streams need nothing: they are functions of the step.

A run with more epochs continues from the end of a shorter one (`continue_shorter`), if that one still has its
``last.ckpt``: two runs that differ in ``trainer.max_epochs`` alone share all their first epochs, bit for bit. A
schedule that depends on the number of epochs has it in its own options too, so such runs differ in more.
"""

import errno
import shutil
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import lightning as L
import torch

from ..config.job import Job
from ..errors import UserError, first_line
from ..models.weights import is_plain, load_tensors
from ..runs import Keep, Row, Run, identity
from ..system.files import replacing
from .checkpoint import position
from .module import LitPack

KEYS = {"epoch", "global_step", "loops", "optimizer_states", "pytorch-lightning_version", "state_dict"}
SCHEDULED = {"lr", "momentum", "betas"}  # options of an optimizer that a scheduler of torch changes


class Resumption(L.Callback):
    """Drops rows and kept weights of epochs that ended after the checkpoint, and says where the run resumes."""

    def __init__(self, run: Run, keep: Keep) -> None:
        self.run, self.keep, self.started = run, keep, False

    def on_train_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        self.started = True
        if trainer.global_step > 0:
            print(f"{self.run.path}: resuming from {position(trainer)}")
        epochs = trainer.current_epoch
        self.run.write_metrics(row for row in self.run.metrics() if row["epoch"] <= epochs)
        self.run.drop_kept_after(epochs)
        # The run began with another ``checkpoint.keep``, or they were deleted.
        if missing := self.run.missing_epochs(self.keep, pl_module.pack.seeds, epochs):
            print(f"{self.run.path}: weights of {len(missing)} earlier epoch(s) were not kept, and cannot be any more")

    @contextmanager
    def refusing(self, checkpoint: Path | None) -> Iterator[None]:
        """Within the block Lightning loads ``checkpoint``; raise a `UserError` if it cannot."""
        try:
            yield
        except Exception as error:
            if checkpoint is None or self.started or isinstance(error, UserError):
                raise
            reason = f"training cannot continue from it ({first_line(error)}); delete it to start again"
            raise UserError(f"{checkpoint}: {reason}") from error


def find_checkpoint(run: Run, module: LitPack, trainer: L.Trainer) -> Path | None:
    """The last checkpoint, or the previous one if that is damaged or missing; None for a run that starts.

    Raises:
        UserError: if one cannot be read, all that are there are damaged, or ``metrics.csv`` lacks epochs before it.
    """
    last, previous = run.checkpoint, run.previous_checkpoint
    there = [path for path in (last, previous) if path.is_file()]
    if not there:
        return None
    usable = next(((path, n) for path in there if (n := epochs_in(path, module, trainer)) is not None), None)
    if usable is None:
        are, them = ("are", "them") if len(there) > 1 else ("is", "it")
        names = " and ".join(path.name for path in there)
        raise UserError(f"{run.path}: {names} {are} damaged, or of another version; delete {them} to start again")
    path, epochs = usable
    if path == previous:
        if last in there:
            print(f"{last}: damaged; the run resumes from the previous checkpoint")
        previous.replace(last)
    _require_rows(run, run.metrics(), epochs, module.pack.seeds)
    return last


def _require_rows(run: Run, rows: Iterable[Row], epochs: int, seeds: Iterable[int]) -> None:
    there = {(row["epoch"], row["seed"]) for row in rows}
    for epoch in range(1, epochs + 1):
        if not all((epoch, seed) in there for seed in seeds):
            lacking = f"metrics.csv lacks epoch {epoch}"
            raise UserError(f"{run.path}: {lacking}; delete {run.checkpoint.name} to start again")


def continue_shorter(job: Job, module: LitPack, trainer: L.Trainer) -> None:
    """Copy the state of the longest shorter run that can be read into the directory of a job's run, which has none."""
    for shorter, epochs in sorted(_shorter_runs(job), key=lambda found: found[1], reverse=True):
        try:
            rows = shorter.metrics()
            _require_rows(shorter, rows, epochs, job.seeds)
            if epochs_in(shorter.checkpoint, module, trainer) != epochs:
                continue
            shorter.require_plain()
            for seed in job.seeds:
                for epoch in shorter.kept_epochs(seed):
                    job.run.weights(seed, epoch).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(shorter.weights(seed, epoch), job.run.weights(seed, epoch))
        except UserError as error:
            print(f"{shorter.path}: not continued ({error})")
            continue
        job.run.write_metrics(rows)
        with replacing(job.run.checkpoint) as beside:  # last, since it is what counts
            shutil.copyfile(shorter.checkpoint, beside)
        print(f"{job.run.path}: continues {shorter.path}, which was trained for {epochs} epochs")
        return


def _shorter_runs(job: Job) -> Iterator[tuple[Run, int]]:
    """Finished runs beside a job's own that differ from it in a smaller number of epochs alone; and that number."""
    own = identity(job.resolved)
    start = "-".join(own[group]["name"] for group in ("task", "split", "model", "ablation"))
    for path in job.runs_dir.glob(f"{start}-*"):
        run = Run(path)
        if not (run.checkpoint.is_file() and run.finished):
            continue
        with suppress(UserError, KeyError, TypeError, AttributeError):  # not the configuration of a run
            other = identity(run.config())
            epochs = other["trainer"]["max_epochs"]
            same = other | {"trainer": {**other["trainer"], "max_epochs": own["trainer"]["max_epochs"]}} == own
            if same and epochs < own["trainer"]["max_epochs"] and run.summary().get("epochs") == epochs:
                yield run, epochs


def epochs_in(checkpoint: Path, module: LitPack, trainer: L.Trainer) -> int | None:
    """How many whole epochs a checkpoint was trained for; None if it is damaged, or not of this module.

    Fused optimizers do not check what they load, so a saved state must have the layout of a state after one step. Of
    the options that a scheduler changes only the types are compared.

    Raises:
        UserError: if the file cannot be read: that says nothing about what is in it.
    """

    def settings(state: dict[str, Any]) -> list[dict[str, Any]]:
        groups = state["param_groups"]
        return [{k: layout(v) if schedules and k in SCHEDULED else v for k, v in group.items()} for group in groups]

    try:
        saved = load_tensors(checkpoint)
        with zipfile.ZipFile(checkpoint) as archive:
            if archive.testzip() is not None:  # the checksums, which `torch.load` ignores
                return None
        groups = module.parameter_groups()
        for group in groups:
            group["params"] = [torch.zeros_like(p, requires_grad=True) for p in group["params"]]
            for p in group["params"]:
                p.grad = torch.zeros_like(p)
        optimizer = module.optimizer(groups)
        schedules = [] if module.schedule is None else [module.schedule(optimizer).state_dict()]
        optimizer.step()
        (state,), own = saved["optimizer_states"], optimizer.state_dict()
        whole = (
            saved.keys() >= KEYS
            and layout(dict(saved["state_dict"])) == layout(dict(module.state_dict()))
            and layout(saved["loops"]["fit_loop"]) == layout(trainer.fit_loop.state_dict())
            and layout(state["state"]) == layout(own["state"])
            and settings(state) == settings(own)
            and layout(saved["lr_schedulers"]) == layout(schedules)
        )
        return int(saved["loops"]["fit_loop"]["epoch_progress"]["current"]["processed"]) if whole else None
    except (OSError, MemoryError) as error:
        if getattr(error, "errno", None) == errno.EINVAL:  # a damaged archive names places before its beginning
            return None
        why = getattr(error, "strerror", None) or first_line(error)
        raise UserError(f"{checkpoint}: cannot be read ({why}); the same command tries again") from error
    except Exception:  # damaged bytes can make an unpickler raise anything
        return None


def layout(tree: Any) -> Any:
    """The branches of a tree, the types of its leaves, and the shapes of its tensors, whatever their precision."""
    if isinstance(tree, dict):
        return {key: layout(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree), [layout(value) for value in tree]
    return (tree.shape, is_plain(tree)) if isinstance(tree, torch.Tensor) else type(tree)
