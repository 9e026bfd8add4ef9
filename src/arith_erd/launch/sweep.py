"""Run a sweep, and print a table of its results.

Hydra's own sweeper stops at a failed job and writes ``multirun.yaml``; ours reads the status of a job from its runs.
A launcher gets a command line for each pack that is missing, so nothing of this process travels.
"""

import os
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, cast

import pandas as pd

from ..config.job import Job
from ..config.sweep import SweepJob, checked_jobs, sweep_config
from ..errors import UserError, bad_value, counted
from ..plots.tables import format_table
from ..system.cli_errors import EXIT_BUSY, EXIT_FAILED, line_and_status, one_line_errors
from ..system.files import run_path
from ..system.signals import catch_signals

Program = Callable[[Any], Any]  # takes a `Job` or a `ProbeJob`
LAUNCHERS = {"slurm": ".slurm", "gpus": ".processes", "ray_gpus": ".processes"}


def sweep(config_name: str, overrides: Sequence[str], program: Program, command: Sequence[str]) -> None:
    """Check all jobs of a sweep, run them here or by ``command`` and a launcher; exit with a status of `cli_errors`."""
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
    with one_line_errors(), catch_signals():  # from here on a ValueError is no refusal of the configuration
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
    print(format_table(table.assign(overrides=[" ".join(job.varying_overrides) for job in jobs])))
    for job in jobs:
        if job.failure:
            print(f"job {job.number}: {job.failure}")
    if under_way := sum(job.status in ("pending", "running") for job in jobs):
        print(f"{counted(under_way, 'job')} under way; the same command waits, submitting none of them again")
