"""A sweep: all of its jobs are checked before the first one starts, and a table at the end says what became of each."""

import shlex
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, open_dict
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..config import job as jobs
from ..config.compose import accept, refusal, without_hydra
from ..errors import UserError, first_line, printable
from . import slurm


@dataclass
class Failure:
    """Why a job failed: a line, and the file that holds more, if any."""

    cause: str
    notes: list[str]


@dataclass
class Job:
    """One job of a sweep."""

    overrides: list[str]
    accepted: jobs.Job | jobs.ProbeJob | None = None
    """None until it has been accepted."""
    finished_before: bool = False


@dataclass
class Sweep:
    """The jobs of one command, and those that failed in this process. Without ``-m`` it is one, and has no table.

    Args:
        config_name: of the primary configuration.
    """

    config_name: str
    jobs: list[Job] = field(default_factory=list)
    failures: dict[int, Failure] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    started: float = field(default_factory=time.time)
    returned: bool = False
    """Whether the launcher came back without an error: all that is known of jobs that leave no run."""
    slurm_folder: Path | None = None
    """Where the jobs that this command submits to Slurm are to be found, if it does."""

    def plan(self, master: DictConfig) -> None:
        """Compose and check every job, wherever it is to run.

        Raises:
            SystemExit: if one of them could not be trained with, after a line for each.
        """
        self.slurm_folder = slurm.job_folder(master.hydra.launcher)
        if not master.hydra.sweeper._target_.endswith(".BasicSweeper"):
            return  # one that decides as it goes along has no list
        loader = GlobalHydra.instance().config_loader()
        refused = []
        is_preset = bool(master.hydra.sweeper.params)  # asked before `pick`, which may replace the parameters
        for job in pick(master):
            self.jobs.append(Job(job))
            try:
                composed = loader.load_sweep_config(master, job)
                if composed.hydra.sweeper.params and not is_preset:
                    experiment = composed.hydra.runtime.choices.get("experiment")
                    raise UserError(f"experiment={experiment}: a sweep of its own; expected one experiment a command")
                accepted = accept(self.config_name, *without_hydra(composed))
            except UserError as error:
                refused.append((len(self.jobs) - 1, str(error)))
            except (HydraException, ValueError) as error:
                refused.append((len(self.jobs) - 1, str(refusal(self.config_name, error, job))))
            else:
                runs = accepted.runs()
                finished = bool(runs) and all(run.finished for run in runs)
                self.jobs[-1] = Job(job, accepted, finished)
        for number, message in refused:
            print(f"error: {self.title(number)}{message}", file=sys.stderr)
        if refused:
            print(f"none of the {len(self.jobs)} jobs was started", file=sys.stderr)
            self.jobs.clear()
            sys.exit(1)

    def title(self, number: int) -> str:
        """``job 3 (task=mul seed=4): ``; nothing for the only job."""
        if not self.jobs:
            return ""
        varying = self.varying(number)
        return f"job {number} ({varying}): " if varying else f"job {number}: "

    def varying(self, number: int) -> str:
        """What sets a job apart from the others."""
        common = set.intersection(*(set(job.overrides) for job in self.jobs)) if len(self.jobs) > 1 else set()
        return " ".join(override for override in self.jobs[number].overrides if override not in common)

    def failed(self, number: int, error: Exception) -> None:
        """Note a failure, and say it now."""
        notes = list(getattr(error, "__notes__", ()))
        self.failures[number] = Failure(first_line(error), notes)  # no exception: its frames keep a whole model alive
        if not isinstance(error, UserError) and not notes:
            traceback.print_exception(error)
        print(f"error: {self.title(number)}{first_line(error)}", file=sys.stderr)

    def end(self) -> int:
        """Print the table of a sweep; the exit status, 1 if a job failed."""
        if not self.jobs:
            return 1 if self.failures else 0
        verdicts = [self._verdict(number, job) for number, job in enumerate(self.jobs)]
        console = Console()
        table = Table("job", "", "overrides", box=None, header_style="bold", pad_edge=False)
        for number, verdict in enumerate(verdicts):
            table.add_row(str(number), verdict, Text(self.varying(number)))
        console.print(table)
        for number, failure in sorted(self.failures.items()):
            console.print(f"job {number}: {failure.cause}", markup=False, highlight=False)
            for note in failure.notes:
                console.print(f"  {note}", markup=False, highlight=False, soft_wrap=True)
        return 0 if {"finished", "skipped"} >= set(verdicts) else 1

    def _verdict(self, number: int, job: Job) -> str:
        """Of jobs that ran elsewhere, the run directory knows."""
        if number in self.failures:
            return "failed"
        if job.finished_before:
            return "skipped"
        runs = job.accepted.runs() if job.accepted else ()  # asked again: it may have become several packs
        if number in self.done or (all(run.finished for run in runs) if runs else self.returned):
            return "finished"
        for run in runs:
            if run.error.is_file():
                if run.error.stat().st_mtime < self.started:
                    continue  # of an earlier command
                lines = run.error.read_text(errors="replace").strip().splitlines()
                cause = printable(lines[-1]) if lines else "failed"
                self.failures[number] = Failure(cause, [f"see {run.error}"])
                return "failed"
        if self.slurm_folder and (error := slurm.error_of(self.slurm_folder, number)):
            self.failures[number] = Failure(first_line(error), [])
            return "failed"
        return "not finished"


def pick(master: DictConfig) -> list[list[str]]:
    """The overrides of every job of a sweep; with ``item=3`` of that one alone, and the sweep becomes one of it.

    Raises:
        SystemExit: if there is no such item, after a line that says how many there are.
    """
    parser = OverridesParser.create(GlobalHydra.instance().config_loader())
    typed = [f"{key}={value}" for key, value in (master.hydra.sweeper.params or {}).items()]
    overrides = parser.parse_overrides([*typed, *master.hydra.overrides.task])
    given = [override for override in overrides if override.key_or_group == "item"]
    rest = [override for override in overrides if override not in given]
    jobs: list[list[str]] = BasicSweeper.split_arguments(rest, None)[0]
    item = given[-1].value() if given else None
    if item is None:
        return jobs
    if not isinstance(item, int) or isinstance(item, bool) or not 0 <= item < len(jobs):
        received = given[-1].input_line
        sys.exit(f"error: {received}: expected an integer from 0 to {len(jobs) - 1}, for one of {len(jobs)} jobs")
    with open_dict(master.hydra):
        master.hydra.sweeper.params = None
        master.hydra.overrides.task = jobs[item]
    return [jobs[item]]


current: Sweep | None = None
"""The command of this process; None where a launcher runs one job of it."""


class CheckJobs(Callback):
    """What Hydra tells of a sweep before it launches anything."""

    def on_multirun_start(self, config: DictConfig, **_: object) -> None:
        launcher = config.hydra.runtime.choices["hydra/launcher"]
        if config.get("fail_fast") is True and launcher != "basic":
            sys.exit(f"error: fail_fast=true: hydra/launcher={launcher} starts jobs at once; expected fail_fast=false")
        if current is not None:
            current.plan(config)

    def on_run_start(self, config: DictConfig, **_: object) -> None:
        launcher = config.hydra.runtime.choices["hydra/launcher"]
        if launcher != "basic":  # it would not be asked, and a login node would train
            sys.exit(f"error: hydra/launcher={launcher}: expected -m too, also for a single job")
        if config.get("item") is not None:
            sys.exit(f"error: item={config.item}: expected -m too; it is one job of a sweep")
        if config.hydra.sweeper.params and (jobs := len(pick(config))) > 1:
            typed = shlex.join(["-m", *config.hydra.overrides.task])
            name = f"experiment={config.hydra.runtime.choices.get('experiment')}"
            sys.exit(f"error: {name}: a sweep of {jobs} jobs; expected -m: python train.py {typed}")
