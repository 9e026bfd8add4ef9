"""Sweeps, as a sweeper of Hydra: all jobs are checked before the first starts, and a table at the end sums up.

Hydra's own sweeper stops at a failed job, writes ``multirun.yaml`` into a folder, and is private to Hydra. This one
writes nothing. Jobs whose last attempt was killed come last, so that they cannot keep the others from running.
"""

import io
import itertools
import logging
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.errors import HydraException
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from ..config.compose import accept, refusal, without_hydra
from ..config.job import ProbeJob
from ..errors import UserError
from ..system.boundary import explain
from ..system.signals import Preempted
from . import slurm
from .outcomes import Outcomes, SweepJob


class CheckedSweeper(Sweeper):
    """Composes and checks every job, launches them, and prints what became of each.

    Args:
        params: overrides of a preset, as ``{"task": "add,mul"}``; what is typed comes after them.
    """

    config: DictConfig
    hydra_context: HydraContext
    launcher: Launcher

    def __init__(self, params: Mapping[str, Any] | None = None, **_: Any) -> None:
        self.params = dict(params or {})

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.config = config
        self.hydra_context = hydra_context
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> None:
        """Run the jobs that the command line describes.

        Raises:
            UserError: if the sweep as a whole is refused.
            SystemExit: with status 1 if a job was refused, before any is started, or has failed.
            Preempted: if a signal ended it.
        """
        choices = self.config.hydra.runtime.choices
        one_by_one = choices["hydra/launcher"] == "basic"
        if self.config.get("fail_fast") is True and not one_by_one:
            where = f"hydra/launcher={choices['hydra/launcher']}"
            raise UserError(f"fail_fast=true: {where} starts jobs at once; expected fail_fast=false")
        outcomes = Outcomes(self._accepted(self._picked(arguments)))
        outcomes.slurm_folder = slurm.job_folder(self.config.hydra.launcher)
        try:
            if one_by_one:
                self._run_here(outcomes)
            else:
                self._run_elsewhere(outcomes)
        except Preempted as stop:
            outcomes.show()
            if outcomes.slurm_folder and (ids := slurm.submitted(outcomes.slurm_folder)):
                end = f"to end them: scancel {' '.join(ids)}"
                print(f"{stop.signal.name}: the submitted jobs continue; {end}", file=sys.stderr)
                raise SystemExit(stop.code) from None
            raise
        raise SystemExit(outcomes.show())

    def _picked(self, arguments: Sequence[str]) -> list[list[str]]:
        """The overrides of every job; with ``item=3``, of that job alone."""
        picks = [argument for argument in arguments if argument.startswith("item=")]
        typed = [argument for argument in arguments if argument not in picks]
        jobs = expand(self.hydra_context.config_loader, self.params, typed)
        item = self.config.get("item")
        if picks and "," in picks[-1]:  # values of a sweep, which Hydra leaves out of its own configuration
            item = picks[-1].removeprefix("item=")
        if item is None:
            return jobs
        if not isinstance(item, int) or isinstance(item, bool) or not 0 <= item < len(jobs):
            one_of = f"an integer from 0 to {len(jobs) - 1}, for one of {len(jobs)} jobs"
            raise UserError(f"{picks[-1] if picks else f'item={item}'}: expected {one_of}")
        return [jobs[item]]

    def _accepted(self, jobs: list[list[str]]) -> list[SweepJob]:
        """The jobs, checked.

        Raises:
            SystemExit: if one of them could not be run, after a line for each.
        """
        outcomes = Outcomes([SweepJob(overrides) for overrides in jobs])
        folders: set[Path] = set()
        for job in outcomes.jobs:
            number = len(outcomes.done)
            try:
                self._accept(job)
                if isinstance(job.job, ProbeJob):
                    job.job.take_folders(folders)
            except Exception as error:  # whatever is wrong with one, all are looked at, and none is started
                outcomes.failures[number] = explain(error)[0]
                print(f"error: {outcomes.title(number)}: {outcomes.failures[number]}", file=sys.stderr)
            outcomes.done.add(number)
        if outcomes.failures:
            print(f"none of the {len(jobs)} jobs was started", file=sys.stderr)
            raise SystemExit(1)
        return list(outcomes.jobs)

    def _accept(self, job: SweepJob) -> None:
        config_name = self.config.hydra.job.config_name
        try:
            composed = self.hydra_context.config_loader.load_sweep_config(self.config, job.overrides)
            own, hydra_node = without_hydra(composed)
            if hydra_node.sweeper.params and not self.params:
                experiment = hydra_node.runtime.choices.get("experiment")
                raise UserError(f"experiment={experiment}: a sweep of its own; expected one experiment a command")
            job.job = accept(config_name, own, hydra_node)
        except (HydraException, ValueError) as error:
            raise refusal(config_name, error, job.overrides) from error
        runs = job.job.runs()
        job.finished_before = bool(runs) and all(run.finished for run in runs) and not job.overwrites

    def _run_here(self, outcomes: Outcomes) -> None:
        """One after the other, in this process; those whose last attempt was killed come last."""
        logging.getLogger("hydra").setLevel(logging.WARNING)  # it would announce each launch in two lines
        order = sorted(range(len(outcomes.jobs)), key=lambda number: outcomes.jobs[number].killed_before)
        for number in order:
            print(outcomes.title(number))
            # Not kept in a variable: the frames of a failed job's exception hold a whole model.
            self._note(outcomes, number, *self.launcher.launch([outcomes.jobs[number].overrides], number))
            if number in outcomes.failures:
                print(f"error: {outcomes.title(number)}: {outcomes.failures[number]}", file=sys.stderr)
                if self.config.get("fail_fast"):
                    return

    def _run_elsewhere(self, outcomes: Outcomes) -> None:
        """All at once, in processes that the launcher starts."""
        try:
            results = self.launcher.launch([job.overrides for job in outcomes.jobs], initial_job_idx=0)
        except Exception as error:  # of the launcher, or of the first job that was killed
            print(f"error: {explain(error)[0]}", file=sys.stderr)
            if outcomes.slurm_folder:
                slurm.wait_for_all(outcomes.slurm_folder)
            outcomes.show()
            raise SystemExit(1) from None
        outcomes.returned = True
        for number, result in enumerate(results):
            if error_of(result) is not None:
                self._note(outcomes, number, result)

    @staticmethod
    def _note(outcomes: Outcomes, number: int, result: JobReturn) -> None:
        error = error_of(result)
        if error is None:
            outcomes.done.add(number)
        else:
            outcomes.failures[number] = failure(error)


def expand(loader: ConfigLoader, params: Mapping[str, Any], typed: Sequence[str]) -> list[list[str]]:
    """The overrides of every job: the product of the values of each key, the last key fastest.

    Args:
        loader: of Hydra.
        params: of a preset, ``{"task": "add,mul"}``.
        typed: ``["seed=0,1"]``; these win over the preset's.
    """
    parser = OverridesParser.create(config_loader=loader)
    values: dict[str, list[str]] = {}
    for override in parser.parse_overrides([*(f"{key}={value}" for key, value in params.items()), *typed]):
        key = override.get_key_element()
        if not override.is_sweep_override():
            values[key] = [f"{key}={override.get_value_element_as_str()}"]
        elif override.is_discrete_sweep():
            values[key] = [f"{key}={value}" for value in override.sweep_string_iterator()]
        else:
            raise UserError(f"{override.input_line}: expected values separated by commas")
    return [list(job) for job in itertools.product(*values.values())]


def error_of(result: JobReturn) -> Exception | None:
    """What a job raised; None if nothing."""
    if result.status == JobStatus.COMPLETED:
        return None
    try:
        with redirect_stderr(io.StringIO()):  # Hydra announces the error there
            _ = result.return_value
    except Exception as error:
        return error
    return None


def failure(error: Exception) -> str:
    """A line for a failed job, with the file that holds more."""
    line, _ = explain(error)
    notes = [note for note in getattr(error, "__notes__", ()) if isinstance(error, UserError)]
    return "; ".join([line, *notes])
