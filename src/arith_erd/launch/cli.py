"""Command-line programs over ``conf/``: one job, or with ``-m`` a sweep of them."""

import os
import shlex
import sys
import textwrap
from collections.abc import Callable
from typing import Any, cast

from hydra._internal.utils import get_args_parser
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.object_type import ObjectType
from hydra.types import RunMode, TaskFunction
from omegaconf import DictConfig, OmegaConf

from ..config.compose import CONF, ConfigName, checked_job, explained_errors
from ..config.guard import hydra_over_conf
from ..errors import UserError
from ..system.cli_errors import one_line_errors
from ..system.signals import signals_caught
from . import sweep

Program = Callable[[Any], Any]
"""Takes a `Job` or a `ProbeJob`, and returns the objective of a search."""
WIDTH = 80  # of the list of options in ``--help``
REFUSED = ("config_path", "config_name", "experimental_rerun")  # options that would run something else


def entry_point(config_name: ConfigName) -> Callable[[Program], Callable[[], None]]:
    """Turn a function of a job into a command-line program over ``conf/``.

    Every exception becomes one line, with an exit status that `system.cli_errors` documents. A sweep starts after all
    its jobs have been checked. If a job fails, the others continue. A signal ends all.
    """

    def decorate(program: Program) -> Callable[[], None]:
        def main() -> None:
            os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # exceptions come here, not to Hydra's own printer
            OmegaConf.register_new_resolver("options", options, replace=True)  # for the help texts in ``conf/``
            raised: list[Exception] = []
            typed = tuple(sys.argv[1:])  # part of the job, so that a launcher takes it to the job's process

            def job(composed: DictConfig) -> Any:
                hydra_node = cast(DictConfig, HydraConfig.get())
                single = hydra_node.mode == RunMode.RUN
                try:
                    with signals_caught():  # also in the process of a launcher
                        if single:
                            with explained_errors(config_name, typed):
                                _require_single(composed, hydra_node)
                        return program(checked_job(config_name, composed, hydra_node, typed))
                except Exception as error:
                    if not single:
                        raise  # to the sweep
                    raised.append(error)  # else Hydra would announce it
                    return None

            with one_line_errors(), signals_caught():
                _start(config_name, job)
                if raised:
                    raise raised[0]

        return main

    return decorate


def _start(config_name: ConfigName, job: TaskFunction) -> None:
    """Let Hydra carry out the command line: call ``job`` with the composed configuration, start a sweep, or print."""
    parser = get_args_parser()
    given, unknown = parser.parse_known_args()
    if unknown and unknown[0].startswith("-"):
        accepted = "overrides without dashes, such as model=nanogpt; --help lists them"
        raise UserError(f"{unknown[0]}: no such option; expected {accepted}")
    if unknown:
        raise UserError(f"{unknown[0]}: expected all KEY=VALUE together, before options such as -m")
    if refused := [option.replace("_", "-") for option in REFUSED if getattr(given, option)]:
        raise UserError(f"--{refused[0]}: expected --config-dir, a folder of more options")
    # For what only prints too: composing starts the logging.
    with hydra_over_conf(given.config_dir) as our_hydra, explained_errors(config_name, given.overrides):
        if given.help:
            our_hydra.app_help(config_name, parser, given)
        elif given.hydra_help:
            our_hydra.hydra_help(config_name, parser, given)
        elif given.cfg:
            our_hydra.show_cfg(config_name, given.overrides, given.cfg, given.package, given.resolve)
        elif given.info:
            our_hydra.show_info(given.info, config_name, given.overrides)
        elif given.shell_completion:
            our_hydra.shell_completion(config_name, given.overrides)
        elif given.multirun or "hydra.mode=MULTIRUN" in given.overrides:
            our_hydra.multirun(config_name, job, [*given.overrides, "hydra.mode=MULTIRUN"])
        else:
            our_hydra.run(config_name, job, [*given.overrides, "hydra.mode=RUN"])


def _require_single(composed: DictConfig, hydra_node: DictConfig) -> None:
    """Raise a `UserError` for settings that need a sweep, which ``-m`` starts."""
    launcher = hydra_node.runtime.choices["hydra/launcher"]
    if launcher != "basic":  # Hydra would not ask it, and a login node would train
        raise UserError(f"hydra/launcher={launcher}: expected -m too, also for a single job")
    if composed.get("item") is not None:
        raise UserError(f"item={composed.item}: expected -m too; it is one job of a sweep")
    if params := hydra_node.sweeper.params:
        typed = list(hydra_node.overrides.task)
        jobs = sweep.expand(GlobalHydra.instance().config_loader(), params, typed)
        if len(jobs) > 1:
            command = shlex.join(["-m", *typed])
            experiment = f"experiment={hydra_node.runtime.choices.get('experiment')}"
            raise UserError(f"{experiment}: a sweep of {len(jobs)} jobs; expected -m: python train.py {command}")


def options(*, _root_: DictConfig) -> str:
    """A line of ``--help`` for each group: its name and its options, including those of ``--config-dir``."""
    loader = GlobalHydra.instance().config_loader()
    chosen = list(_root_.hydra.runtime.choices)[::-1]  # in the order of the defaults list, which Hydra reverses
    groups = [group for group in chosen if not group.startswith("hydra/")]
    listed = {group: loader.get_group_options(group, ObjectType.CONFIG) for group in groups}
    # Of the launchers only ours: Hydra and its plugins bring others, which have no defaults for our runs.
    listed["hydra/launcher"] = sorted(path.stem for path in (CONF / "hydra" / "launcher").glob("*.yaml"))
    indent = max(map(len, listed)) + 4
    lines = textwrap.TextWrapper(WIDTH, subsequent_indent=" " * indent, break_on_hyphens=False)
    return "\n".join(lines.fill(f"  {group}".ljust(indent) + "  ".join(names)) for group, names in listed.items())
