"""A sweep: expand the jobs, check all before the first one starts, run them, and print a table.

Hydra's own sweeper stops at a failed job and writes ``multirun.yaml``; ours reads the status of a job from its runs.
A launcher gets a command line for each missing pack, so it needs nothing else from this process.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pandas as pd
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig

from ..config import compose, hydra_conf
from ..config.job import Job, ProbeJob
from ..errors import UserError, bad_value, counted
from ..plots.tables import format_mean, print_table
from ..runs.directory import Run
from ..runs.table import load_table
from ..seeds import format_ranges
from ..system.cli_errors import EXIT_BUSY, EXIT_FAILED, line_and_status, one_line_errors
from ..system.files import run_path
from ..system.signals import catch_signals

Program = Callable[[Any], Any]  # takes a `Job` or a `ProbeJob`
LAUNCHERS = {"slurm": ".slurm", "gpus": ".gpus", "ray_gpus": ".gpus"}
ACCEPTED_HYDRA_KEYS = r"hydra/launcher=|\+*hydra\.launcher\.|hydra\.searchpath="


@dataclass(eq=False)
class SweepJob:
    number: int
    overrides: list[str]  # ["task=mul", "seed=4", "runs_dir=runs"]
    varying_overrides: list[str]  # overrides that differ between jobs: ["task=mul", "seed=4"]
    checked: Job | ProbeJob | None = None
    status: str = "not finished"  # or "finished", "skipped", "failed"; under Slurm also "pending" and "running"
    failure: str = ""  # one line, since the exception's frames would keep a whole model alive
    exit_status: int = EXIT_FAILED  # if the job is not finished

    @property
    def title(self) -> str:
        varying = " ".join(self.varying_overrides)
        return f"job {self.number} ({varying})" if varying else f"job {self.number}"

    @property
    def key(self) -> str:
        """Identifies the job's result, however it is typed: the path of its run, or else the folder and overrides."""
        if isinstance(self.checked, Job):
            return str(self.checked.run.path.resolve())
        return " ".join([os.getcwd(), *self.own_overrides])

    @property
    def own_overrides(self) -> list[str]:
        """Its overrides without ``wait``, which only a sweep accepts."""
        return [word for word in self.overrides if not word.lstrip("+").startswith("wait=")]

    @property
    def runs(self) -> list[Run]:
        """The runs that it trains, several if its seeds are divided into packs; none for a probe."""
        return self.checked.runs() if isinstance(self.checked, Job) else []

    @property
    def finished(self) -> bool:
        """Whether all its runs on disk are finished."""
        return bool(self.runs) and all(run.finished for run in self.runs)

    @property
    def accuracy(self) -> str:
        """The mean over the seeds of a finished job: ``98.76% [97.30, 100.00]``."""
        if self.status not in ("finished", "skipped") or not self.finished:
            return ""
        return format_mean(load_table(self.runs)["val_seq_acc"].to_numpy(dtype=float), "accuracy")

    @property
    def overwrites(self) -> bool:
        """Whether the job trains its finished runs again."""
        return not isinstance(self.checked, Job) or self.checked.overwrite

    def packs(self) -> "list[SweepJob]":
        """A job for each of its packs. With ``auto`` it is a single job, which divides its seeds if they do not fit."""
        packs = self.checked.packs() if isinstance(self.checked, Job) else []
        if len(packs) < 2 or packs[0].pack.max_replicas == "auto":
            return [self]
        common, varying = (
            [word for word in words if word.lstrip("+").partition("=")[0] != "seed"]
            for words in (self.overrides, self.varying_overrides)
        )
        texts = (format_ranges(pack.seeds) for pack in packs)
        seeds = [f"seed='{text}'" if "," in text else f"seed={text}" for text in texts]  # as a user types them
        return [
            replace(self, overrides=[*common, seed], varying_overrides=[*varying, seed], checked=pack)
            for pack, seed in zip(packs, seeds, strict=True)
        ]

    def task(self, command: Sequence[str]) -> tuple[str, list[str]]:
        """For `write_tasks`: the key, and a command line of this program."""
        return self.key, [*command, *self.own_overrides]

    def fail(self, line: str, exit_status: int, status: str = "failed") -> None:
        """Store an error, and print it now rather than at the end of a long sweep."""
        self.failure, self.exit_status, self.status = line, exit_status, status
        print(f"error: {self.title}: {line}", file=sys.stderr)

    def end(self, log: Path, exit_status: int, state: str) -> None:
        """Record the job's status after its process has ended; a negative status means that it was killed."""
        if exit_status == 0 if self.overwrites else self.finished:
            self.status = "finished"
            return
        text = log.read_text(encoding="utf-8", errors="replace") if exit_status > 0 and log.exists() else ""
        errors = [line.removeprefix("error: ") for line in text.splitlines() if line.startswith("error: ")]
        status = "failed" if errors else "not finished"
        self.fail(f"{errors[-1] if errors else state}; log: {log}", max(exit_status, EXIT_FAILED), status)


def sweep_config(config_name: str, overrides: Sequence[str]) -> DictConfig:
    """The configuration that a sweep's jobs have in common, with Hydra's node."""
    parsed = hydra_conf.parsed(overrides)
    for override in parsed:
        accepted = re.match(ACCEPTED_HYDRA_KEYS, override.input_line or "") and not override.is_sweep_override()
        if override.is_hydra_override() and not accepted:
            kinds = "only hydra/launcher=NAME, hydra.launcher.KEY and hydra.searchpath, one value each"
            raise UserError(f"{override.input_line}: expected of Hydra's own {kinds}")
    common = [str(override.input_line) for override in parsed if not override.is_sweep_override()]
    # Typed keys may exist in the swept options only: ``optimizer=sgd,rmsprop model.optimizer.momentum=0.9``.
    swept = {override.key_or_group for override in parsed if override.is_sweep_override()} & {*hydra_conf.OPTION_GROUPS}
    swept_lines = [str(override.input_line) for override in parsed if override.key_or_group in swept]
    first = hydra_conf.expand_sweep({}, swept_lines)[:1]
    return hydra_conf.composed(config_name, [*common, *(first[0] if swept and first else ())])


def selected_jobs(config: DictConfig, overrides: Sequence[str]) -> list[SweepJob]:
    """The jobs of a sweep, or only the one with ``job_index``. They are not checked yet."""
    # Typed as several values it is no part of the common configuration.
    typed = (word.partition("=")[2] for word in overrides if word.startswith("job_index="))
    index = next(typed, config.get("job_index"))
    index = None if index == "null" else index
    params = config.hydra.sweeper.params or {}  # from a preset: {"task": "add,mul"}
    all_jobs = hydra_conf.expand_sweep(params, [word for word in overrides if not word.startswith("job_index=")])
    if not all_jobs:  # a glob matched nothing
        raise UserError("-m: makes no job; expected at least one value for each key")
    selected = {n: overrides for n, overrides in enumerate(all_jobs) if index is None or str(n) == str(index)}
    if not selected:
        numbers = f"an integer from 0 to {len(all_jobs) - 1}, for one of {len(all_jobs)} jobs"
        raise bad_value("job_index", index, numbers if len(all_jobs) > 1 else "0, the only job")
    common = set.intersection(*map(set, selected.values())) if len(selected) > 1 else set()
    return [
        SweepJob(number, overrides, [word for word in overrides if word not in common])
        for number, overrides in selected.items()
    ]


def check_jobs(jobs: Sequence[SweepJob], config: DictConfig, overrides: Sequence[str]) -> None:
    """Check every job of a sweep. If some cannot run, print a line for each, and exit before the first one starts."""
    loader, config_name = GlobalHydra.instance().config_loader(), config.hydra.job.config_name
    folders: set[Path] = set()
    for job in jobs:
        try:
            with catch_signals(), hydra_conf.explain_hydra_errors(config_name, job.overrides):
                composed = loader.load_sweep_config(config, job.overrides)
                if composed.hydra.sweeper.params and not config.hydra.sweeper.params:
                    experiment = f"experiment={composed.hydra.runtime.choices.get('experiment')}"
                    raise UserError(f"{experiment}: is a sweep of its own; expected one experiment per command")
                job.checked = compose.checked_job(config_name, composed, overrides)
            if isinstance(job.checked, ProbeJob):
                job.checked.reserve_folders(folders)
        except Exception as error:  # check the other jobs, too; none is started
            job.fail(*line_and_status(error))
    if any(job.failure for job in jobs):
        print(f"none of the {len(jobs)} jobs was started", file=sys.stderr)
        raise SystemExit(EXIT_FAILED)


def checked_jobs(config: DictConfig, overrides: Sequence[str], divided: bool) -> list[SweepJob]:
    """The checked jobs of a sweep, if ``divided`` split into packs; finished ones are marked as skipped."""
    jobs = selected_jobs(config, overrides)
    check_jobs(jobs, config, overrides)
    packs = {pack.key: pack for job in jobs for pack in job.packs()} if divided else {}  # jobs may share a pack
    if packs and [*packs] != [job.key for job in jobs]:
        jobs = [replace(pack, number=number) for number, pack in enumerate(packs.values())]
    # A backup means that an earlier ``overwrite=true`` command has renamed the old runs: finished runs are new.
    renamed = divided and any(run.backup.path.exists() for job in jobs if job.overwrites for run in job.runs)
    for job in jobs:
        if job.finished and (renamed or not job.overwrites):
            job.status = "skipped"
    return jobs


@contextmanager
def old_runs_renamed(jobs: Sequence[SweepJob]) -> Iterator[ExitStack]:
    """Rename the old runs of jobs with ``overwrite=true``. If the block raises before it submits a job, undo this.

    The tasks themselves overwrite nothing, so a restarted task continues, or keeps, the new run.
    """
    with ExitStack() as undo:
        for job in jobs:
            for run in job.runs if job.overwrites else ():
                if not run.backup.path.exists():
                    undo.callback(run.restore_backup)
                    run.move_to_backup()
            if isinstance(job.checked, Job):
                job.checked = replace(job.checked, overwrite=False)
                job.overrides = [word for word in job.overrides if word.lstrip("+").partition("=")[0] != "overwrite"]
        yield undo
        undo.pop_all()


# Running


def sweep(config_name: str, overrides: Sequence[str], program: Program, command: Sequence[str]) -> None:
    """Check all jobs of a sweep, run them here or by a launcher with ``command``, exit with a `cli_errors` status."""
    config = sweep_config(config_name, overrides)
    name, fail_fast = config.hydra.runtime.choices["hydra/launcher"], config.get("fail_fast") is True
    if name not in LAUNCHERS and name != "basic":
        raise bad_value("hydra/launcher", name, f"one of basic, {', '.join(LAUNCHERS)}")
    if fail_fast and name != "basic":
        raise UserError(f"fail_fast=true: hydra/launcher={name} starts jobs at once; expected fail_fast=false")
    if config.get("wait") is False and name != "slurm":
        raise UserError("wait=false: expected hydra/launcher=slurm, whose jobs need no command that waits")
    jobs = checked_jobs(config, overrides, divided=name != "basic")
    missing = [job for job in jobs if job.status != "skipped"]
    with one_line_errors(), catch_signals():  # from here on a ValueError does not come from the configuration
        try:
            if name == "basic":
                run_locally(jobs, program, fail_fast)
            elif missing:
                root = run_path(cast(Job, missing[0].checked).runs_dir / f".{name}-{os.geteuid()}")
                import_module(LAUNCHERS[name], __package__).run(missing, command, root, config)
        finally:
            print_results(jobs)
    failed = {job.exit_status for job in missing if job.status in ("failed", "not finished")}
    raise SystemExit(EXIT_BUSY if failed == {EXIT_BUSY} else EXIT_FAILED if failed else 0)


def run_locally(jobs: Sequence[SweepJob], program: Program, fail_fast: bool) -> None:
    for job in jobs:
        print(job.title)
        try:
            with catch_signals():
                program(job.checked)
            job.status = "skipped" if job.status == "skipped" else "finished"
        except Exception as error:
            job.fail(*line_and_status(error))
        if job.failure and fail_fast:
            return


def print_results(jobs: Sequence[SweepJob]) -> None:
    """Print a table of the jobs, with the accuracies of those that trained, and a line for each failure."""
    table = pd.DataFrame({"job": [job.number for job in jobs], "": [job.status for job in jobs]})
    accuracies = [job.accuracy for job in jobs]
    if any(accuracies):
        table["validation [95%]"] = accuracies
    print_table(table.assign(overrides=[" ".join(job.varying_overrides) for job in jobs]))
    for job in jobs:
        if job.failure:
            print(f"job {job.number}: {job.failure}")
    if under_way := sum(job.status in ("pending", "running") for job in jobs):
        print(f"{counted(under_way, 'job')} under way; the same command waits, submitting none of them again")
