"""The story of a run, one pack: assemble, resume, train, finish."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pandas as pd

from ..config.build import source_hashes
from ..config.job import Job
from ..errors import UserError, first_line
from ..loggers import Logger
from ..plots.curves import learning_curves
from ..plots.style import save_png
from ..runs import Run, SeedSummary
from ..seeds import format_seeds
from ..system import signals
from ..system.files import locked, replacing, write_atomically
from ..system.machine import device_name
from .assemble import assemble, make_trainer, table_data
from .callbacks import EpochProgress, MetricsWriter, StopAtAccuracy
from .checkpoint import ResumePoint, continue_shorter, find_checkpoint, require_rows
from .memory import memory_errors_explained, require_room
from .summary import describe, finish, num_parameters, save_weights, summarise


def train_pack(job: Job) -> None:
    """Train the seeds of a job as one pack, and write everything that a run directory holds.

    It raises `signals.Preempted` if a signal asked to stop: the same call resumes.
    """
    run = job.run
    # Assemble: every refusal comes before anything is written.
    logger = job.logger.build(Logger)
    rows = MetricsWriter(run, logger, job.task.answer_names, job.checkpoint.keep)
    stop_at = job.trainer.stop_at
    stopping = [] if stop_at is None else [StopAtAccuracy(run, stop_at)]  # first, since it repeats rows
    resume_point = ResumePoint(run, job.checkpoint.every_n_epochs, job.checkpoint.keep_last)
    trainer = make_trainer(job.trainer, [*stopping, rows, EpochProgress(), resume_point])
    device = trainer.strategy.root_device
    with memory_errors_explained(job, device):
        require_room(job, device)
        data = table_data(job)
        module = assemble(job, device, data)
    code = source_hashes(job.resolved)  # before training: they may be edited meanwhile

    if job.overwrite:
        run.set_aside()
    with locked(run.path), errors_kept(run), memory_errors_explained(job, device):
        if run.finished:  # by the process that held the lock until now
            print(run.skip_message(job.checkpoint.keep, code))
            return

        # Resume, or start.
        run.error.unlink(missing_ok=True)  # of an earlier attempt
        if not (run.checkpoint.is_file() or job.overwrite):
            continue_shorter(job, module, code)
        checkpoint = find_checkpoint(run, module)
        run.create(job.resolved)
        seeds = f"seed{'s' if len(job.seeds) > 1 else ''} {format_seeds(job.seeds)}"
        print(f"{run.path}: {num_parameters(module.pack):,} parameters, {seeds}, on {device_name(device)}")
        if module.pack.compiled:
            print(f"{run.path}: compiling, which takes a minute or more the first time", flush=True)

        # Train.
        summaries: list[SeedSummary] = []
        try:
            logger.start(run.name, job.seeds, job.resolved, run.path)
            try:
                with signals.deferred():
                    trainer.fit(module, data, ckpt_path=checkpoint, weights_only=True)
            except Exception as error:
                if checkpoint is None or rows.started is not None or isinstance(error, UserError):
                    raise
                reason = f"training cannot continue from it ({first_line(error)}); delete it to start again"
                raise UserError(f"{checkpoint}: {reason}") from error
            require_rows(run, trainer.current_epoch, job.seeds)
            module.to(device)  # Lightning leaves it on the CPU
            save_weights(run, module.pack)
            with replacing(run.curves) as partial:
                slices = pd.read_csv(run.slices_file) if data.kinds else None
                save_png(learning_curves(run.metrics(), job.title, slices), partial)
            summaries += summarise(run, module.pack, data)
        finally:
            logger.finish(summaries)

        # Finish.
        finish(run, module.pack, data, summaries, code)
        if not job.checkpoint.keep_last:
            run.checkpoint.unlink(missing_ok=True)
    for summary in summaries:
        print(describe(summary))


@contextmanager
def errors_kept(run: Run) -> Iterator[None]:
    """Leave ``error.txt`` in the directory of a run that fails: the message of a `UserError`, else the traceback."""
    try:
        yield
    except Exception as error:
        with suppress(OSError, ValueError):  # the disk may be full; the error itself comes first
            run.path.mkdir(parents=True, exist_ok=True)
            text = f"{error}\n" if isinstance(error, UserError) else traceback.format_exc()
            write_atomically(run.error, text)
            error.add_note(f"see {run.error}")
        raise
