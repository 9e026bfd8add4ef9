"""What became of each job of a sweep, and the table that says so."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..config.job import Job, ProbeJob
from ..errors import printable
from ..runs import Run
from ..system.boundary import explain
from . import slurm


@dataclass
class SweepJob:
    """One job of a sweep.

    Attributes:
        overrides: that make it, ``["task=mul", "seed=4"]``.
        job: None until it has been accepted.
        finished_before: whether all its runs were finished when the sweep started.
    """

    overrides: list[str]
    job: Job | ProbeJob | None = None
    finished_before: bool = False

    @property
    def overwrites(self) -> bool:
        """Whether it trains anew what has finished."""
        return isinstance(self.job, Job) and self.job.overwrite

    @property
    def killed_before(self) -> bool:
        """Whether an earlier attempt at one of its runs was killed, so that other jobs go first."""
        return any(run.killed for run in self.job.runs()) if self.job else False


@dataclass
class Outcomes:
    """The jobs of a sweep, and how those that have ended did."""

    jobs: Sequence[SweepJob]
    started: float = field(default_factory=time.time)
    done: set[int] = field(default_factory=set)
    failures: dict[int, str] = field(default_factory=dict)
    """A line each; not the exceptions, whose frames would keep whole models alive."""
    returned: bool = False
    """Whether the launcher returned without an error: all that is known of jobs that leave no run."""
    slurm_folder: Path | None = None
    """Of the jobs that were submitted to Slurm."""

    def title(self, number: int) -> str:
        """``job 3 (task=mul seed=4)``."""
        varying = self.varying(number)
        return f"job {number} ({varying})" if varying else f"job {number}"

    def varying(self, number: int) -> str:
        """The overrides that set a job apart from the others."""
        common = set.intersection(*(set(job.overrides) for job in self.jobs)) if len(self.jobs) > 1 else set()
        return " ".join(override for override in self.jobs[number].overrides if override not in common)

    def show(self) -> int:
        """Print the table and the failures; the exit status, 1 unless every job is finished."""
        verdicts = [self.verdict(number) for number in range(len(self.jobs))]
        console = Console()
        table = Table("job", "", "overrides", box=None, header_style="bold", pad_edge=False)
        for number, verdict in enumerate(verdicts):
            table.add_row(str(number), verdict, Text(self.varying(number)))
        console.print(table)
        for number, failure in sorted(self.failures.items()):
            console.print(f"job {number}: {failure}", markup=False, highlight=False, soft_wrap=True)
        return 0 if {"finished", "skipped"} >= set(verdicts) else 1

    def verdict(self, number: int) -> str:
        """``finished``, ``skipped``, ``failed`` or ``not finished``.

        The status of jobs run elsewhere is read from their run directories.
        """
        job = self.jobs[number]
        if number in self.failures:
            return "failed"
        if job.finished_before:
            return "skipped"
        runs = job.job.runs() if job.job else []  # asked again: the job may have become several packs
        if number in self.done or (all(self._is_new(run, job) for run in runs) if runs else self.returned):
            return "finished"
        for run in runs:
            if run.error.is_file():
                if run.error.stat().st_mtime < self.started:
                    continue  # of an earlier command
                lines = run.error.read_text(errors="replace").strip().splitlines()
                self.failures[number] = f"{printable(lines[-1]) if lines else 'failed'}; see {run.error}"
                return "failed"
        if self.slurm_folder and (error := slurm.error_of(self.slurm_folder, number)):
            self.failures[number] = explain(error)[0]
            return "failed"
        return "not finished"

    def _is_new(self, run: Run, job: SweepJob) -> bool:
        """Whether a run is finished, by this command if that is to overwrite it."""
        return run.finished and not (job.overwrites and run.summary_file.stat().st_mtime < self.started)
