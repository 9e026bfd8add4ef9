"""A sweeper for Hydra that checks all jobs before the first starts, and ends with a table of their results.

Hydra's own sweeper stops at a failed job and writes ``multirun.yaml``. Ours reads the status of a job from its runs.
"""

import io
import logging
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..config.compose import checked_job, explained_errors, without_hydra
from ..config.job import Job, ProbeJob
from ..errors import UserError, bad_value
from ..plots.sheet import measured
from ..runs.table import load_table, mean_accuracies
from ..system.cli_errors import BUSY, FAILED, FAILURE, line_and_status, one_line_errors
from ..system.signals import Preempted, signals_caught


@dataclass
class SweepJob:
    """One job of a sweep."""

    number: int
    overrides: list[str]  # ["task=mul", "seed=4", "runs_dir=runs"]
    words: str  # the overrides that differ from other jobs: "task=mul seed=4"
    job: Job | ProbeJob | None = None  # None until it has been checked
    status: str = "not finished"  # or "finished", "skipped", "failed"
    failure: str = ""  # a line; not the exception, whose frames would keep a whole model alive
    exit_status: int = 0

    @property
    def title(self) -> str:
        """A text such as ``job 3 (task=mul seed=4)``."""
        return f"job {self.number} ({self.words})" if self.words else f"job {self.number}"

    @property
    def finished(self) -> bool:
        """Whether all its runs on disk are finished; not stored, since one job may become several packs."""
        runs = self.job.runs() if isinstance(self.job, Job) else []
        return bool(runs) and all(run.finished for run in runs)

    @property
    def accuracy(self) -> str:
        """The mean over the seeds of a finished job: ``98.76% [97.30, 100.00]``."""
        if not (isinstance(self.job, Job) and self.status in ("finished", "skipped") and self.finished):
            return ""
        means = mean_accuracies(load_table([run.path for run in self.job.runs()]), ["state"])
        return "".join(measured(*row) for row in means[["accuracy", "low", "high"]].to_numpy(dtype=float))

    def fail(self, error: Exception) -> None:
        """Store an error, and print it now rather than at the end of a long sweep."""
        self.failure, self.exit_status = line_and_status(error)
        self.status = "failed"
        print(f"error: {self.title}: {self.failure}", file=sys.stderr)

    def end(self, result: JobReturn) -> None:
        """Store the result that a launcher returned."""
        try:
            with redirect_stderr(io.StringIO()):  # Hydra announces the error of a failed job there
                _ = result.return_value
            self.status = "skipped" if self.status == "skipped" else "finished"
        except Exception as error:
            self.fail(error)


class CheckedSweeper(Sweeper):
    """Composes and checks every job, launches them, and prints the status of each."""

    config: DictConfig
    hydra_context: HydraContext
    launcher: Launcher

    def __init__(self, params: Mapping[str, Any] | None = None, **_: Any) -> None:
        self.params = dict(params or {})  # of a preset, {"task": "add,mul"}; what is typed comes after them

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.config, self.hydra_context = config, hydra_context
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> None:
        """Run the jobs of the command line, and exit with a status that `cli_errors` documents."""
        launcher = f"hydra/launcher={self.config.hydra.runtime.choices['hydra/launcher']}"
        here = launcher == "hydra/launcher=basic"
        if self.config.get("fail_fast") is True and not here:
            raise UserError(f"fail_fast=true: {launcher} starts jobs at once; expected fail_fast=false")
        jobs = self._accepted(self._picked(arguments))
        with one_line_errors(), signals_caught():  # from here on a ValueError is no refusal of the configuration
            try:
                (self._run_one_by_one if here else self._run_at_once)(jobs)
            except Preempted:
                if not here:
                    print(f"{launcher}: jobs that were submitted continue", file=sys.stderr)
                raise
            finally:
                show(jobs)
        failed = {job.exit_status or FAILED for job in jobs if job.status not in ("finished", "skipped")}
        raise SystemExit(BUSY if failed == {BUSY} else FAILED if failed else 0)

    def _picked(self, arguments: Sequence[str]) -> dict[int, list[str]]:
        """Number -> overrides of every job, or with ``item=3`` of that job alone."""
        items = [argument.removeprefix("item=") for argument in arguments if argument.startswith("item=")]
        typed = [argument for argument in arguments if not argument.startswith("item=")]
        jobs = expand(self.hydra_context.config_loader, self.params, typed)
        if not jobs:  # of a glob that matches nothing
            raise UserError(f"{' '.join(typed)}: makes no job; expected at least one value for each key")
        item = items[-1] if items else self.config.get("item")
        if item in (None, "null"):
            return dict(enumerate(jobs))
        if not re.fullmatch(r"\d{1,9}", str(item), re.ASCII) or int(item) >= len(jobs):
            raise bad_value("item", item, f"an integer from 0 to {len(jobs) - 1}, for one of {len(jobs)} jobs")
        return {int(item): jobs[int(item)]}

    def _accepted(self, picked: Mapping[int, list[str]]) -> list[SweepJob]:
        """Check the jobs. If some cannot be run, print a line for each and exit."""
        common = set.intersection(*map(set, picked.values())) if len(picked) > 1 else set()
        varying = [" ".join(override for override in line if override not in common) for line in picked.values()]
        jobs = [SweepJob(*one, words) for one, words in zip(picked.items(), varying, strict=True)]
        config_name, loader = self.config.hydra.job.config_name, self.hydra_context.config_loader
        folders: set[Path] = set()
        for job in jobs:
            try:
                with signals_caught(), explained_errors(config_name, job.overrides):
                    own, hydra_node = without_hydra(loader.load_sweep_config(self.config, job.overrides))
                    if hydra_node.sweeper.params and not self.params:
                        experiment = hydra_node.runtime.choices.get("experiment")
                        raise UserError(
                            f"experiment={experiment}: is a sweep of its own; expected one experiment per command"
                        )
                    job.job = checked_job(config_name, own, hydra_node, sys.argv[1:])
                if isinstance(job.job, ProbeJob):
                    job.job.take_folders(folders)
                elif job.finished and not job.job.overwrite:
                    job.status = "skipped"
            except Exception as error:  # whatever is wrong with one, all are looked at, and none is started
                job.fail(error)
        if any(job.failure for job in jobs):
            print(f"none of the {len(jobs)} jobs was started", file=sys.stderr)
            raise SystemExit(FAILED)
        return jobs

    def _run_one_by_one(self, jobs: list[SweepJob]) -> None:
        """Run the jobs in this process, one after another."""
        logging.getLogger("hydra").setLevel(logging.WARNING)  # it would announce each launch in two lines
        for job in jobs:
            print(job.title)
            # Not kept in a variable: the frames of a failed job's exception hold a whole model.
            job.end(*self.launcher.launch([job.overrides], job.number))
            if job.failure and self.config.get("fail_fast"):
                return

    def _run_at_once(self, jobs: list[SweepJob]) -> None:
        """Run the jobs in processes of the launcher. It raises if one is killed, while others may continue."""
        try:
            results = self.launcher.launch([job.overrides for job in jobs], initial_job_idx=0)
            for job, result in zip(jobs, results, strict=True):
                job.end(result)
        except Exception as error:
            error.add_note(f"{FAILURE}hydra/launcher={self.config.hydra.runtime.choices['hydra/launcher']}")
            print(f"error: {line_and_status(error)[0]}", file=sys.stderr)
            for job in jobs:
                if job.status != "skipped" and job.finished:
                    job.status = "finished"


def show(jobs: Sequence[SweepJob]) -> None:
    """Print a table of the jobs, with the accuracies of those that trained, and a line for each failure."""
    accuracies = [job.accuracy for job in jobs]
    answer = ["validation [95%]"] if any(accuracies) else []
    table = Table("job", "", *answer, "overrides", box=None, header_style="bold", pad_edge=False)
    for job, accuracy in zip(jobs, accuracies, strict=True):
        table.add_row(str(job.number), job.status, *([Text(accuracy)] if answer else []), Text(job.words))
    Console().print(table)
    for job in jobs:
        if job.failure:
            print(f"job {job.number}: {job.failure}")


def expand(loader: ConfigLoader, params: Mapping[str, Any], typed: Sequence[str]) -> list[list[str]]:
    """The overrides of every job: the product of the values of each key, with the last key fastest.

    Typed overrides, ``["seed=0,1"]``, take precedence over the ``params`` of a preset, ``{"task": "add,mul"}``.
    """
    words = [*(f"{key}={value}" for key, value in params.items()), *typed]
    overrides = OverridesParser.create(config_loader=loader).parse_overrides(words)
    (jobs,) = BasicSweeper.split_arguments(overrides, max_batch_size=None)
    return jobs
