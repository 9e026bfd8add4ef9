"""Train one pack, from its job to a finished directory: check memory, build, resume, train, summarise."""

import math
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import lightning as L
import numpy as np
import pandas as pd

from ..config.class_spec import source_hashes
from ..config.job import Job
from ..digits import PAD
from ..errors import UserError, bad_value
from ..loggers import Logger
from ..models.network import Network, greedy_tokens, teacher_forced_tokens
from ..plots.curves import draw_learning_curves
from ..plots.style import save_png
from ..runs.directory import Row, Run, first_epoch_reaching
from ..seeds import format_ranges
from ..stats import TARGET_ACCURACY, TokenCounts, stuck_status
from ..system import signals
from ..system.cli_errors import naming_user_code
from ..system.files import atomic_file, locked, run_path, write_atomically
from ..system.machine import device_name, versions
from .build import build_module, build_task_data, make_trainer
from .callbacks import EpochProgress, MetricsWriter, StopAtAccuracy
from .checkpoint import CheckpointWriter, continue_shorter_run, find_checkpoint, require_all_rows, save_weights
from .data import TaskData
from .lit_pack import LitPack
from .memory import CompilerError, explain_errors_of_torch, require_memory
from .pack import Pack


@signals.exits_are_errors()
def train_pack(job: Job) -> bool:
    """Train a job's seeds as one pack, or resume it, and write its run directory; False if another process did."""
    try:
        return _train_pack(job)
    except CompilerError as error:  # in the first step, or in a later one that needs new code
        if job.trainer.compile is True:
            raise bad_value("trainer.compile", "true", f"auto or false, since {error}") from error
        print(f"trainer.compile=auto: not compiled, since {error}", file=sys.stderr)
    return _train_pack(replace(job, trainer=replace(job.trainer, compile=False)))


def _train_pack(job: Job) -> bool:
    run, logger = job.run, job.logger.build(Logger)
    # Every refusal comes before anything is written.
    trainer = make_trainer(job.trainer, callbacks(job, logger))
    device = trainer.strategy.root_device
    with explain_errors_of_torch(job, device):
        require_memory(job, device)
        data = build_task_data(job)
        module = build_module(job, device, data)
    sources = source_hashes(job.resolved)  # before training: they may be edited meanwhile

    if job.overwrite:
        run.move_to_backup()
    with locked(run.path), record_errors(run), explain_errors_of_torch(job, device):
        if run.finished:  # the process that held the lock has finished it
            return False
        checkpoint = resume_or_create(job, module, sources)
        seeds = f"seed{'s' if len(job.seeds) > 1 else ''} {format_ranges(job.seeds)}"
        print(f"{run.path}: {module.pack.num_parameters_each:,} parameters, {seeds}, on {device_name(device)}")
        if module.pack.compiled:
            print(f"{run.path}: compiling, which takes a minute or more the first time", flush=True)
        summaries = fit_and_save(job, trainer, module, data, checkpoint, logger)
        write_summary(run, module.pack, data, summaries, sources)
        if not job.checkpoint.keep_last:
            run.checkpoint_file.unlink(missing_ok=True)
    for summary in summaries:
        print(seed_line(summary))
    return True


def callbacks(job: Job, logger: Logger) -> list[L.Callback]:
    """The callbacks of a run, in the order in which they act after an epoch."""
    run, stop_at = job.run, job.trainer.stop_at
    return [
        *([] if stop_at is None else [StopAtAccuracy(run, stop_at)]),  # first, since it repeats rows
        MetricsWriter(run, logger, job.checkpoint.keep),
        EpochProgress(),
        CheckpointWriter(run, job.checkpoint.every_n_epochs, job.checkpoint.keep_last),
    ]


def resume_or_create(job: Job, module: LitPack, sources: Mapping[str, str]) -> Path | None:
    """Make the run directory, and return the checkpoint to resume from, perhaps a shorter run's; None to start anew."""
    run = job.run
    run.error_file.unlink(missing_ok=True)  # an earlier attempt may have left it
    if not (run.checkpoint_file.is_file() or job.overwrite or run.backup.path.exists()):
        continue_shorter_run(job, module, sources)
    checkpoint = find_checkpoint(run, module)
    run.create(job.resolved)
    return checkpoint


def fit_and_save(
    job: Job, trainer: L.Trainer, module: LitPack, data: TaskData, checkpoint: Path | None, logger: Logger
) -> list[Row]:
    """Train to the end, write weights and curves, and return the summary of each replica."""
    run, summaries = job.run, list[Row]()
    try:
        with naming_user_code("start", logger):
            logger.start(run.name, job.seeds, deepcopy(job.resolved), run.path)
        with signals.defer_signals():
            trainer.fit(module, data, ckpt_path=checkpoint, weights_only=True)
        require_all_rows(run, trainer.current_epoch, job.seeds)
        module.to(trainer.strategy.root_device)  # Lightning leaves it on the CPU
        save_weights(run, module.pack)
        with atomic_file(run.curves_file) as partial:
            slices = pd.read_csv(run_path(run.slices_file)) if data.slices else None
            title = ", ".join((*job.option_names.values(), job.model.name))  # add, random, transformer
            save_png(draw_learning_curves(run.metrics(), title, slices), partial)
        summaries += seed_summaries(run, module.pack, data)
    finally:
        with naming_user_code("finish", logger):
            logger.finish(deepcopy(summaries))
    return summaries


def seed_summaries(run: Run, pack: Pack, data: TaskData) -> list[Row]:
    """The summary of each replica. Only here do we decode answers, and only where teacher forcing is wrong."""
    rows, summaries = run.metrics(), []
    prompt, completion = data.validation
    right = completion.cpu()
    for index, seed in enumerate(pack.seeds):
        last = next(row for row in reversed(rows) if row["seed"] == seed)
        summary = {key: value for key, value in last.items() if key not in ("epoch", "seconds")}
        network = pack.replica(index)
        decoded = greedy_tokens(network, prompt, completion).cpu()
        summary["val_token_acc_autoregressive"] = float((decoded == right)[right != PAD].double().mean())
        summary["val_mae"] = math.nan
        with suppress(UserError), naming_user_code("summary", data.task):  # a task whose tokens have no names
            summary["val_mae"] = float(np.abs(data.task.decode(decoded) - data.task.decode(right)).mean())
        summary["epochs_to_95"] = first_epoch_reaching(rows, seed, TARGET_ACCURACY)
        summary["never_learnt"] = never_learned(network, data)
        summaries.append(summary)
    return summaries


def never_learned(network: Network, data: TaskData) -> list[str]:
    """The answer tokens that the network predicts no better than a constant guess, in training and held out."""
    if data.task.min_bits is not None:  # the highest answer tokens may occur in no training example
        return []
    counts: list[list[TokenCounts]] = []  # for each answer token under teacher forcing, in both subsets
    for prompt, completion, *_ in (data.train, data.validation):  # (N, P), (N, m)
        n, hits = len(completion), (teacher_forced_tokens(network, prompt, completion) == completion).sum(dim=0)
        most_common = (int(token.bincount().max()) for token in completion.cpu().T)
        counts.append([(right, n, most / n) for right, most in zip(hits.tolist(), most_common, strict=True)])
    tokens = zip(data.task.answer_names, *counts, strict=True)
    return [name for name, *both in tokens if stuck_status(*both) == "never learned"]


def write_summary(run: Run, pack: Pack, data: TaskData, summaries: list[Row], sources: Mapping[str, str]) -> None:
    """Write ``summary.json`` with the device, versions and sources of the process that finishes the run."""
    rows, parameters = run.metrics(), pack.num_parameters_each
    epochs = rows[-1]["epoch"]
    tokens = len(data.train[0]) * epochs * (data.task.prompt_length + data.task.answer_length)
    run.finish(
        {
            "params": parameters,
            "epochs": epochs,
            "wall_seconds": sum(row["seconds"] for row in rows if row["seed"] == pack.seeds[0]),
            "train_flops": 6 * parameters * tokens,  # 6 N T for one replica, the usual estimate
            "device": device_name(pack.replica_keys.device),
            "versions": versions(),
            **({"sources": sources} if sources else {}),
            "seeds": summaries,
        }
    )


def seed_line(summary: Row) -> str:
    reached = summary["epochs_to_95"]
    return (
        f"seed {summary['seed']}: train {summary['train_seq_acc']:.2%}, validation {summary['val_seq_acc']:.2%} of "
        f"sequences, mean absolute error {summary['val_mae']:.3g}, "
        + (f"95% at epoch {reached}" if reached else "never reached 95%")
    )


@contextmanager
def record_errors(run: Run) -> Iterator[None]:
    """If a run fails, write ``error.txt`` into its directory: the message of a `UserError`, else the traceback."""
    try:
        with signals.exits_are_errors():
            yield
    except Exception as error:
        with suppress(OSError, ValueError):  # the disk may be full; the error itself comes first
            run.path.mkdir(parents=True, exist_ok=True)
            text = f"{error}\n" if isinstance(error, UserError) else traceback.format_exc()
            write_atomically(run.error_file, text)
            error.add_note(f"see {run.error_file}")
        raise
