"""Command-line programs over ``conf/``: one job, or with ``-m`` a sweep of them.

All jobs of a sweep are checked before the first starts, and it ends with a table of their results. Hydra's own sweeper
stops at a failed job and writes ``multirun.yaml``; ours reads the status of a job from its runs.
"""

import io
import os
import shlex
import shutil
import sys
import textwrap
from argparse import ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import pandas as pd
from hydra._internal.callbacks import Callbacks
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.utils import get_args_parser
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.types import HydraContext, RunMode, TaskFunction
from omegaconf import DictConfig, OmegaConf

from .. import __version__
from ..bundled import CONF
from ..config import compose
from ..config.job import Job, ProbeJob
from ..errors import UserError, bad_value
from ..plots.tables import format_mean, format_table
from ..runs.table import load_table
from ..system.cli_errors import EXIT_BUSY, EXIT_FAILED, USER_CODE_NOTE, line_and_status, one_line_errors
from ..system.signals import Interrupted, catch_signals

Program = Callable[[Any], Any]
"""Takes a `Job` or a `ProbeJob`, and returns the objective of a search."""
HELP_WIDTH = 80  # columns of the list of options in ``--help``
REFUSED_OPTIONS = ("config_path", "config_name", "experimental_rerun")  # options that would run something else


def entry_point(config_name: compose.ConfigName) -> Callable[[Program], Callable[[], None]]:
    """Turn a function of a job into a command-line program over ``conf/``, with an exit status of `cli_errors`."""

    def decorate(program: Program) -> Callable[[], None]:
        def main() -> None:
            os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # exceptions come here, not to Hydra's own printer
            OmegaConf.register_new_resolver("options", option_lines, replace=True)  # for the help texts in ``conf/``
            cli_overrides = tuple(sys.argv[1:])  # part of the job, so that a launcher takes it to the job's process

            def run_job(composed: DictConfig) -> Any:  # in the process of a launcher, or of a search
                whole = OmegaConf.merge({"hydra": HydraConfig.get()}, composed)  # Hydra takes its own node away
                with catch_signals():
                    return program(compose.checked_job(config_name, cast(DictConfig, whole), cli_overrides))

            with one_line_errors(), catch_signals():
                single_job = _handle_command_line(config_name, program, run_job)
                if single_job is not None:
                    program(single_job)

        return main

    return decorate


def _handle_command_line(
    config_name: compose.ConfigName, program: Program, run_job: TaskFunction
) -> Job | ProbeJob | None:
    """Do what the command line asks: return its single job; or run a sweep and exit; or print, as for ``--help``."""
    parser = args_parser()
    if "--version" in sys.argv[1:]:  # Hydra's own would print Hydra's
        print(f"arith_erd {__version__}")
        return None
    options, unknown = parser.parse_known_args()
    overrides = options.overrides
    if unknown and unknown[0].startswith("-"):
        accepted = "overrides without dashes, such as model=nanogpt; --help lists them"
        raise UserError(f"{unknown[0]}: no such option; expected {accepted}")
    if unknown:
        raise UserError(f"{unknown[0]}: expected all KEY=VALUE together, either before or after options such as -m")
    if refused := [option.replace("_", "-") for option in REFUSED_OPTIONS if getattr(options, option)]:
        raise UserError(f"--{refused[0]}: expected --config-dir, a folder of more options")
    # For what only prints too: composing starts the logging.
    with compose.hydra_over_conf(options.config_dir) as our_hydra, compose.explain_hydra_errors(config_name, overrides):
        if options.help:
            our_hydra.app_help(config_name, parser, options)
        elif options.hydra_help:
            our_hydra.hydra_help(config_name, parser, options)
        elif options.cfg:
            our_hydra.show_cfg(config_name, overrides, options.cfg, options.package, options.resolve)
        elif options.info:
            our_hydra.show_info(options.info, config_name, overrides)
        elif options.shell_completion:
            our_hydra.shell_completion(config_name, overrides)
        elif options.multirun or "hydra.mode=MULTIRUN" in overrides:
            overrides = [*overrides, "hydra.mode=MULTIRUN"]
            config = our_hydra.compose_config(config_name, overrides, RunMode.MULTIRUN, with_log_configuration=True)
            if config.hydra.runtime.choices["hydra/sweeper"] == "basic":
                sweep(config, program, run_job)
            else:  # the sweeper of a plugin
                our_hydra.multirun(config_name, run_job, overrides)
        else:  # Hydra's own settings, such as folders and logs, have no effect
            config = our_hydra.compose_config(config_name, overrides, RunMode.RUN)
            _require_single_job(config)
            return compose.checked_job(config_name, config, overrides)
    return None


def args_parser() -> ArgumentParser:
    """Hydra's parser. One of its help texts is an object (hydra-core 1.3.8), which Python 3.14 refuses."""
    add_argument = ArgumentParser.add_argument

    def with_text(self: ArgumentParser, *names: str, help: object = None, **options: Any) -> Any:
        return add_argument(self, *names, help=help if isinstance(help, str) else "See docs/how-to", **options)

    with patch.object(ArgumentParser, "add_argument", with_text):
        return get_args_parser()


def _require_single_job(config: DictConfig) -> None:
    """Raise a `UserError` for settings that need a sweep, which ``-m`` starts."""
    hydra_node = config.hydra
    launcher = hydra_node.runtime.choices["hydra/launcher"]
    if launcher != "basic":  # Hydra would not ask it, and a login node would train
        raise UserError(f"hydra/launcher={launcher}: expected -m too, also for a single job")
    if own := [one for one in hydra_node.overrides.hydra if not one.startswith("hydra.searchpath=")]:
        raise UserError(f"{own[0]}: expected -m too; a single run uses nothing of Hydra's own")
    if config.get("item") is not None:
        raise UserError(f"item={config.item}: expected -m too; it is one job of a sweep")
    if params := hydra_node.sweeper.params:
        cli_overrides = compose.job_overrides(hydra_node)
        jobs = expand_sweep(GlobalHydra.instance().config_loader(), params, cli_overrides)
        if len(jobs) > 1:
            command = shlex.join(["-m", *cli_overrides])
            experiment = f"experiment={hydra_node.runtime.choices.get('experiment')}"
            raise UserError(f"{experiment}: a sweep of {len(jobs)} jobs; expected -m: python train.py {command}")


def option_lines(*, _root_: DictConfig) -> str:
    """A line of ``--help`` for each group: its name and its options, including those of ``--config-dir``."""
    loader = GlobalHydra.instance().config_loader()
    chosen = list(_root_.hydra.runtime.choices)[::-1]  # in the order of the defaults list, which Hydra reverses
    groups = [group for group in chosen if not group.startswith("hydra/")]
    options = {group: loader.get_group_options(group, ObjectType.CONFIG) for group in groups}
    # Only our own launchers: Hydra and its plugins bring others, which have no defaults for our runs.
    options["hydra/launcher"] = sorted(path.stem for path in (CONF / "hydra" / "launcher").glob("*.yaml"))
    indent = max(map(len, options)) + 4
    wrapper = textwrap.TextWrapper(HELP_WIDTH, subsequent_indent=" " * indent, break_on_hyphens=False)
    return "\n".join(wrapper.fill(f"  {group}".ljust(indent) + "  ".join(names)) for group, names in options.items())


# Sweeps


@dataclass
class SweepJob:
    number: int
    overrides: list[str]  # ["task=mul", "seed=4", "runs_dir=runs"]
    varying_overrides: str  # the overrides that differ from other jobs: "task=mul seed=4"
    checked: Job | ProbeJob | None = None
    status: str = "not finished"  # or "finished", "skipped", "failed"
    failure: str = ""  # a line; not the exception, whose frames would keep a whole model alive
    exit_status: int = EXIT_FAILED  # of a job that is not finished

    @property
    def title(self) -> str:
        return f"job {self.number} ({self.varying_overrides})" if self.varying_overrides else f"job {self.number}"

    @property
    def finished(self) -> bool:
        """Whether all its runs on disk are finished; not stored, since one job may become several packs."""
        runs = self.checked.runs() if isinstance(self.checked, Job) else []
        return bool(runs) and all(run.finished for run in runs)

    @property
    def accuracy(self) -> str:
        """The mean over the seeds of a finished job: ``98.76% [97.30, 100.00]``."""
        if not (isinstance(self.checked, Job) and self.status in ("finished", "skipped") and self.finished):
            return ""
        return format_mean(load_table(self.checked.runs())["val_seq_acc"].to_numpy(dtype=float), "accuracy")

    def fail(self, error: Exception) -> None:
        """Store an error, and print it now rather than at the end of a long sweep."""
        self.failure, self.exit_status = line_and_status(error)
        self.status = "failed"
        print(f"error: {self.title}: {self.failure}", file=sys.stderr)

    def succeed(self) -> None:
        if self.status != "skipped":
            self.status = "finished"


def sweep(config: DictConfig, program: Program, run_job: TaskFunction) -> None:
    """Check all jobs of a sweep, then run them here or by a launcher, and exit with a status of `cli_errors`."""
    launcher = f"hydra/launcher={config.hydra.runtime.choices['hydra/launcher']}"
    local, fail_fast = launcher == "hydra/launcher=basic", config.get("fail_fast") is True
    if fail_fast and not local:
        raise UserError(f"fail_fast=true: {launcher} starts jobs at once; expected fail_fast=false")
    if launcher == "hydra/launcher=slurm" and not shutil.which("srun"):
        raise UserError(f"{launcher}: there is no srun here; expected a machine of a Slurm cluster")
    jobs = checked_jobs(config)
    with one_line_errors(), catch_signals():  # from here on a ValueError is no refusal of the configuration
        try:
            if local:
                run_locally(jobs, program, fail_fast)
            else:
                run_with_launcher(jobs, config, run_job, launcher)
        except Interrupted:
            if not local:
                print(f"{launcher}: jobs that were submitted continue", file=sys.stderr)
            raise
        finally:
            print_results(jobs)
    failed = {job.exit_status for job in jobs if job.status not in ("finished", "skipped")}
    raise SystemExit(EXIT_BUSY if failed == {EXIT_BUSY} else EXIT_FAILED if failed else 0)


def checked_jobs(config: DictConfig) -> list[SweepJob]:
    """Check the jobs of a sweep. If some cannot be run, print a line for each and exit."""
    loader, config_name = GlobalHydra.instance().config_loader(), config.hydra.job.config_name
    params = dict(config.hydra.sweeper.params or {})  # those of a preset: {"task": "add,mul"}
    cli_overrides = [override for override in compose.job_overrides(config.hydra) if not override.startswith("item=")]
    all_jobs, item = expand_sweep(loader, params, cli_overrides), config.get("item")
    if not all_jobs:  # a glob matched nothing
        raise UserError("-m: makes no job; expected at least one value for each key")
    selected = {n: overrides for n, overrides in enumerate(all_jobs) if str(n) == str(item) or item is None}
    if not selected:
        numbers = f"an integer from 0 to {len(all_jobs) - 1}, for one of {len(all_jobs)} jobs"
        raise bad_value("item", item, numbers if len(all_jobs) > 1 else "0, the only job")
    common = set.intersection(*map(set, selected.values())) if len(selected) > 1 else set()
    jobs = [
        SweepJob(number, overrides, " ".join(one for one in overrides if one not in common))
        for number, overrides in selected.items()
    ]
    folders: set[Path] = set()
    for job in jobs:
        try:
            with catch_signals(), compose.explain_hydra_errors(config_name, job.overrides):
                composed = loader.load_sweep_config(config, job.overrides)
                if composed.hydra.sweeper.params and not params:
                    experiment = f"experiment={composed.hydra.runtime.choices.get('experiment')}"
                    raise UserError(f"{experiment}: is a sweep of its own; expected one experiment per command")
                job.checked = compose.checked_job(config_name, composed, sys.argv[1:])
            if isinstance(job.checked, ProbeJob):
                job.checked.reserve_folders(folders)
            elif job.finished and not job.checked.overwrite:
                job.status = "skipped"
        except Exception as error:  # whatever is wrong with one, all are looked at, and none is started
            job.fail(error)
    if any(job.failure for job in jobs):
        print(f"none of the {len(jobs)} jobs was started", file=sys.stderr)
        raise SystemExit(EXIT_FAILED)
    return jobs


def run_locally(jobs: Sequence[SweepJob], program: Program, fail_fast: bool) -> None:
    for job in jobs:
        print(job.title)
        try:
            with catch_signals():
                program(job.checked)
            job.succeed()
        except Exception as error:
            job.fail(error)
        if job.failure and fail_fast:
            return


def run_with_launcher(jobs: Sequence[SweepJob], config: DictConfig, run_job: TaskFunction, name: str) -> None:
    """Run the jobs in processes of the launcher. It raises if one is killed, while others may continue."""
    try:
        context = HydraContext(GlobalHydra.instance().config_loader(), Callbacks(config))
        launcher = Plugins.instance().instantiate_launcher(context, run_job, config)
        results = launcher.launch([job.overrides for job in jobs], initial_job_idx=0)
    except Exception as error:
        error.add_note(f"{USER_CODE_NOTE}{name}")
        print(f"error: {line_and_status(error)[0]}", file=sys.stderr)
        for job in jobs:
            if job.finished:
                job.succeed()
        return
    for job, result in zip(jobs, results, strict=True):
        try:
            with redirect_stderr(io.StringIO()):  # Hydra announces the error of a failed job there
                _ = result.return_value
            job.succeed()
        except Exception as error:
            job.fail(error)


def print_results(jobs: Sequence[SweepJob]) -> None:
    """Print a table of the jobs, with the accuracies of those that trained, and a line for each failure."""
    table = pd.DataFrame({"job": [job.number for job in jobs], "": [job.status for job in jobs]})
    accuracies = [job.accuracy for job in jobs]
    if any(accuracies):
        table["validation [95%]"] = accuracies
    print(format_table(table.assign(overrides=[job.varying_overrides for job in jobs])))
    for job in jobs:
        if job.failure:
            print(f"job {job.number}: {job.failure}")


def expand_sweep(loader: ConfigLoader, params: Mapping[str, Any], cli_overrides: Sequence[str]) -> list[list[str]]:
    """The overrides of every job: the product of the values of each key, with the last key fastest.

    Typed overrides, ``["seed=0,1"]``, take precedence over the ``params`` of a preset, ``{"task": "add,mul"}``.
    """
    words = [*(f"{key}={value}" for key, value in params.items()), *cli_overrides]
    overrides = OverridesParser.create(config_loader=loader).parse_overrides(words)
    (jobs,) = BasicSweeper.split_arguments(overrides, max_batch_size=None)
    return jobs
