"""Command-line programs over ``conf/``: one job, or with ``-m`` a sweep of them."""

import os
import sys
from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from hydra._internal.utils import get_args_parser
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from .. import __version__
from ..config import compose
from ..config.job import Job, ProbeJob
from ..config.sweep import require_single_job
from ..errors import UserError, bad_value
from ..system.cli_errors import one_line_errors
from ..system.signals import catch_signals
from .sweep import Program, sweep

REFUSED_OPTIONS = ("config_path", "config_name", "experimental_rerun")  # options that would run something else


def entry_point(config_name: compose.ConfigName) -> Callable[[Program], Callable[[], None]]:
    """Turn a function of a job into a command-line program over ``conf/``, with an exit status of `cli_errors`."""

    def decorate(program: Program) -> Callable[[], None]:
        def main() -> None:
            os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # exceptions come here, not to Hydra's own printer
            OmegaConf.register_new_resolver("options", compose.option_lines, replace=True)  # for ``--help``
            with one_line_errors(), catch_signals():
                single_job = _handle_command_line(config_name, program)
                if single_job is not None:
                    program(single_job)

        return main

    return decorate


def _handle_command_line(config_name: compose.ConfigName, program: Program) -> Job | ProbeJob | None:
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
            if (sweeper := config.hydra.runtime.choices["hydra/sweeper"]) != "basic":
                raise bad_value("hydra/sweeper", sweeper, "basic; docs/how-to/search.md has a search by Optuna")
            sweep(config, program, _own_command(config, options.config_dir))
        else:  # Hydra's own settings, such as folders and logs, have no effect
            config = our_hydra.compose_config(config_name, overrides, RunMode.RUN)
            require_single_job(config)
            return compose.checked_job(config_name, config, overrides)
    return None


def args_parser() -> ArgumentParser:
    """Hydra's parser. One of its help texts is an object (hydra-core 1.3.8), which Python 3.14 refuses."""
    add_argument = ArgumentParser.add_argument

    def with_text(self: ArgumentParser, *names: str, help: object = None, **options: Any) -> Any:
        return add_argument(self, *names, help=help if isinstance(help, str) else "See docs/how-to", **options)

    with patch.object(ArgumentParser, "add_argument", with_text):
        return get_args_parser()


def _own_command(config: DictConfig, config_dir: str | None) -> list[str]:
    """The command line of this program, without the overrides of a job."""
    program = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1]  # as train.py, or -m arith_erd.training
    folder = [] if config_dir is None else ["--config-dir", config_dir]
    search_path = [one for one in config.hydra.overrides.hydra if one.startswith("hydra.searchpath=")]
    return [sys.executable, *program, *folder, *search_path]
