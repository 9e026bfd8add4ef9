"""Train the packs of a job. PyTorch is loaded only if one of them has work left."""

import os
import sys
import warnings
from dataclasses import replace

from ..checks import require_type
from ..config.class_spec import source_hashes
from ..config.job import Job
from ..loggers import Logger
from ..runs.directory import Run
from ..system.files import require_writable
from ..system.isolation import TRAINING, at_end, drop_unusable_cache, isolated
from ..system.machine import configure_threads, visible_gpus


def train(job: Job) -> list[Run]:
    """Train the packs of a job, and return their directories. Finished packs are skipped, interrupted ones resume.

    >>> from arith_erd import compose
    >>> tiny = ["task.bits=2", "trainer.max_epochs=1", "model.net.num_layers=1", "trainer.accelerator=cpu"]
    >>> (run,) = train(compose("train", tiny))  # doctest: +ELLIPSIS
    runs/add-random-transformer-none-bits2-layers1-ep1-seed0-...
    >>> run.finished, run.metrics()[-1]["epoch"]
    (True, 1)
    """
    require_type("train: job", job, Job)
    packs = job.packs()
    for pack in packs:
        # A backup means that an ``overwrite=true`` command was interrupted: its finished packs are already new.
        keep_finished = not job.overwrite or pack.run.backup.path.exists()
        if not (pack.run.finished and keep_finished):
            require_writable("runs_dir", job.runs_dir)
            drop_unusable_cache()
            variables = {*os.environ}
            if "torch" not in sys.modules:
                configure_threads()
                say_unused_gpus(job)
                print("loading PyTorch", flush=True)
            with TRAINING:
                at_end.enter_context(warnings.catch_warnings())  # Lightning changes these, and variables, as it loads
                at_end.callback(setattr, warnings, "formatwarning", warnings.formatwarning)
                from .memory import PackTooLargeError
                from .run_pack import train_pack

                for name in os.environ.keys() - variables:
                    del os.environ[name]
            try:
                with TRAINING, isolated():
                    trained = train_pack(pack)
            except PackTooLargeError as error:
                if job.pack.max_replicas != "auto" or len(packs) > 1:
                    raise
                divided = replace(job, pack=replace(job.pack, max_replicas=error.size))
                print(f"pack.max_replicas=auto: {len(divided.packs())} packs of {error.size} seeds, as {error.need}")
                return train(divided)
            if trained:
                continue
        print(pack.run.skip_message(pack.resolved, job.checkpoint.keep, source_hashes(job.resolved)))
        if os.environ.get("WANDB_SWEEP_ID"):  # an agent of W&B started this process, and waits for a result
            summary, logger = pack.run.summary(), job.logger.build(Logger)
            logger.start(pack.run.name, pack.seeds, pack.resolved, pack.run.path)
            logger.log([{**row, "epoch": summary["epochs"]} for row in summary["seeds"]])
            logger.finish(summary["seeds"])
    for pack in packs:  # only now: until all are trained, the old runs show which packs are new
        pack.run.delete_backup()
    return [pack.run for pack in packs]


def say_unused_gpus(job: Job) -> None:
    """Say if GPUs stay idle: a process trains on only one."""
    if job.trainer.accelerator != "cpu" and len(gpus := visible_gpus()) > 1:
        print(f"{len(gpus)} GPUs are visible and this uses one; -m hydra/launcher=gpus trains packs on all of them")
