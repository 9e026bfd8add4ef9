"""A run with more epochs continues from the end of a shorter one, if that one still has its ``last.ckpt``.

Two runs that differ in ``trainer.max_epochs`` alone share all their first epochs, bit for bit. A schedule that depends
on the number of epochs has it in its own options too, so such runs differ in more, and do not continue each other.
"""

import shutil
from typing import Any

import lightning as L

from ..config.job import Job
from ..errors import UserError
from ..runs import Run, identity
from ..system.files import replacing
from .module import LitPack
from .resume import epochs_in


def continue_shorter(job: Job, module: LitPack, trainer: L.Trainer) -> None:
    """Copy the state of the longest shorter run into the directory of a job's run, which has none yet."""
    found = {epochs: run for run in _shorter_runs(job) if (epochs := epochs_in(run.checkpoint, module, trainer))}
    found = {epochs: run for epochs, run in found.items() if run.summary().get("epochs") == epochs}
    if not found:
        return
    epochs, shorter = max(found.items())
    shorter.require_plain()
    for seed in job.seeds:
        for epoch in shorter.kept_epochs(seed):
            job.run.weights(seed, epoch).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(shorter.weights(seed, epoch), job.run.weights(seed, epoch))
    job.run.write_metrics(shorter.metrics())
    with replacing(job.run.checkpoint) as beside:  # last, since it is what counts
        shutil.copyfile(shorter.checkpoint, beside)
    print(f"{job.run.path}: continues {shorter.path}, which was trained for {epochs} epochs")


def _shorter_runs(job: Job) -> list[Run]:
    """Finished runs beside a job's own that differ from it in a smaller number of epochs alone."""
    own = identity(job.resolved)
    start = "-".join(own[group]["name"] for group in ("task", "split", "model", "ablation"))
    found = []
    for path in sorted(job.runs_dir.glob(f"{start}-*")):
        run = Run(path)
        if run.checkpoint.is_file() and run.finished and _is_shorter(run, own):
            found.append(run)
    return found


def _is_shorter(run: Run, own: dict[str, Any]) -> bool:
    try:
        other = identity(run.config())
        epochs = other["trainer"]["max_epochs"]
        same = other | {"trainer": {**other["trainer"], "max_epochs": own["trainer"]["max_epochs"]}}
        return bool(same == own and epochs < own["trainer"]["max_epochs"] and run.summary().get("epochs") == epochs)
    except (UserError, KeyError, TypeError, AttributeError):  # not the configuration of a run
        return False
