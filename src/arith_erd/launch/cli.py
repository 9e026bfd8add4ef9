"""Command-line programs over ``conf/``: one job, or with ``-m`` a sweep of them."""

import os
import sys
from collections.abc import Callable
from typing import Any, cast

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig

from ..config.compose import CONF, accept, refusal
from ..errors import UserError, first_line
from ..system.requeue import requeue
from ..system.signals import Preempted, signals_caught
from . import help, slurm, sweep

Program = Callable[[Any], None]
"""Takes a `Job`, or a `ProbeJob`."""


def entry_point(config_name: str) -> Callable[[Program], Callable[[], None]]:
    """Turn a function of a job into a command-line program over ``conf/``.

    A `UserError` ends the program with its one line and status 1. A sweep starts when all its jobs have been checked;
    one that fails then, with whatever error, leaves the others running, a table at the end says what became of each,
    and the status is 1 if any failed. A signal ends the program, or the whole sweep, as `signals` says.

    Args:
        config_name: of the primary configuration, ``train`` or ``probe``.
    """

    def decorate(program: Program) -> Callable[[], None]:
        def job(composed: DictConfig) -> None:
            number = HydraConfig.get().job.num if HydraConfig.get().mode == RunMode.MULTIRUN else 0
            with signals_caught():  # again, for a job that a launcher runs in a process of its own
                try:
                    program(accept(config_name, composed, cast(DictConfig, HydraConfig.get())))
                except Preempted as stop:
                    if sweep.current is None:  # in a process that a launcher started
                        requeue(stop.signal)
                    raise
                except Exception as error:
                    if sweep.current is None or not _ends_here(error):
                        raise
                    sweep.current.failed(number, error)
                    if composed.get("fail_fast", False):
                        sys.exit(1)
                else:
                    if sweep.current is not None:
                        sweep.current.done.add(number)

        def main() -> None:
            os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # exceptions come here, not to Hydra's own printer
            help.register()
            command = sweep.current = sweep.Sweep(config_name)
            with signals_caught():
                try:
                    _launch(command, job)
                except Preempted as stop:
                    command.end()
                    if command.slurm_folder and (ids := slurm.submitted(command.slurm_folder)):
                        print(
                            f"{stop.signal.name}: the jobs go on; to end them: scancel {' '.join(ids)}", file=sys.stderr
                        )
                        raise
                    print(f"{stop.signal.name}: stopped; the same command goes on from here", file=sys.stderr)
                    requeue(stop.signal)
                    raise
                except SystemExit:
                    command.end()
                    raise
                sys.exit(command.end())

        return main

    return decorate


def _launch(command: sweep.Sweep, job: Callable[[DictConfig], None]) -> None:
    """Let Hydra compose and run what the command line says; what it raises, a job elsewhere included, is a line."""
    try:
        hydra.main(version_base="1.3", config_path=str(CONF), config_name=command.config_name)(job)()
        command.returned = True
    except Exception as error:
        if command.jobs:
            print(f"error: {first_line(error)}", file=sys.stderr)
            if command.slurm_folder:
                slurm.wait_for_all(command.slurm_folder)
            sys.exit(1)
        if isinstance(error, HydraException) or (isinstance(error, ValueError) and not HydraConfig.initialized()):
            sys.exit(f"error: {refusal(command.config_name, error, sys.argv[1:])}")
        raise  # a fault of ours, not of the configuration


def _ends_here(error: Exception) -> bool:
    """Whether a job's error is told in this process: a job elsewhere, and a fault of ours without ``-m``, raise it."""
    hydra_config = HydraConfig.get()
    if hydra_config.mode == RunMode.RUN:
        return isinstance(error, UserError)
    return str(hydra_config.launcher._target_).endswith(".BasicLauncher")
