"""Command-line programs over ``conf/``: one job, or with ``-m`` a sweep of them."""

import sys
from argparse import ArgumentError, ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from typing import Any

from hydra.core.global_hydra import GlobalHydra

from .. import __version__
from ..checks import user_path
from ..config import compose, hydra_conf
from ..errors import UserError, bad_value
from ..system.cli_errors import one_line_errors
from ..system.signals import catch_signals
from .sweep import Program, sweep

SHOWN = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")


def entry_point(config_name: compose.ConfigName) -> Callable[[Program], Callable[[], None]]:
    """Turn a function of a job into a command-line program over ``conf/``; its exit status is one of `cli_errors`."""

    def decorate(program: Program) -> Callable[[], None]:
        def main() -> None:
            with one_line_errors(), catch_signals():
                options = read_command_line(sys.argv[1:])
                with hydra_conf.hydra_over_conf(config_name, options.overrides):
                    job = _handle(config_name, options, program)
                if job is not None:
                    program(job)

        return main

    return decorate


def read_command_line(words: Sequence[str]) -> Namespace:
    """The options of a command line, and its ``overrides``, to which a ``--config-dir`` is added."""
    parser = ArgumentParser(
        usage="%(prog)s [OPTION ..] [KEY=VALUE ..]", add_help=False, allow_abbrev=False, exit_on_error=False
    )
    parser.add_argument("--help", "-h", action="store_true", help="the groups and the most useful keys")
    parser.add_argument("--hydra-help", action="store_true", help="this list")
    parser.add_argument("--version", action="version", version=f"arith_erd {__version__}", help="the version")
    parser.add_argument("--multirun", "-m", action="store_true", help="one job per value in KEY=VALUE,VALUE")
    parser.add_argument("--config-dir", "-cd", metavar="DIR", help="a folder of more options, laid out like conf/")
    parser.add_argument("--cfg", "-c", choices=("job", "hydra", "all"), help="print the configuration instead")
    parser.add_argument("--resolve", action="store_true", help="with --cfg: resolve interpolations")
    parser.add_argument("--package", "-p", metavar="KEY", help="with --cfg: only what is below this key")
    shown = f"print how it is composed instead: {', '.join(SHOWN)}"
    parser.add_argument("--info", "-i", nargs="?", const="all", choices=SHOWN, metavar="WHAT", help=shown)
    parser.add_argument("--shell-completion", "-sc", action="store_true", help="with install=bash, zsh or fish")
    try:
        options, overrides = parser.parse_known_args(words)
    except ArgumentError as error:
        raise UserError(str(error).removeprefix("argument ")) from error
    if options.hydra_help:
        print(parser.format_help(), end="")
        raise SystemExit(0)
    for word in overrides:
        if word.startswith("-"):
            accepted = "overrides without dashes, such as model=nanogpt; --help lists them"
            raise UserError(f"{word}: no such option; expected {accepted}")
    if options.config_dir is not None:
        folder = user_path(options.config_dir, "--config-dir").absolute()
        if not folder.is_dir():
            raise bad_value("--config-dir", options.config_dir, "a folder")
        folders = [f"file://{folder}", *hydra_conf.search_path(overrides)]
        overrides = [override for override in overrides if not override.startswith("hydra.searchpath=")]
        overrides.append(f"hydra.searchpath={hydra_conf.hydra_value(folders)}")
    if options.multirun and (options.cfg or options.info):
        raise UserError("-m: received with --cfg or --info, which show one job; expected them without -m")
    if (options.resolve or options.package) and not options.cfg:
        raise UserError(f"{'--resolve' if options.resolve else '--package'}: expected --cfg too, such as --cfg job")
    commands = ("install=", "uninstall=", "query=")
    if options.shell_completion and not any(word.startswith(commands) for word in overrides):
        raise UserError("--shell-completion: expected install=bash too, or zsh or fish, or uninstall=SHELL")
    options.overrides = overrides
    return options


def _handle(config_name: compose.ConfigName, options: Namespace, program: Program) -> Any:
    """Do what the options ask: return a single job; or run a sweep and exit; or print."""
    overrides, our_hydra = options.overrides, GlobalHydra.instance().hydra
    assert our_hydra is not None
    if options.help:
        print(hydra_conf.help_text(config_name, overrides))
    elif options.cfg:
        if options.package:
            hydra_conf.require_key(config_name, overrides, options.package)
        our_hydra.show_cfg(config_name, overrides, options.cfg, options.package, options.resolve)
    elif options.info:
        our_hydra.show_info(options.info, config_name, overrides)
    elif options.shell_completion:
        our_hydra.shell_completion(config_name, overrides)
    elif options.multirun:
        sweep(config_name, overrides, program, _own_command(overrides))
    else:
        return compose.single_job(config_name, overrides)
    return None


def _own_command(overrides: Sequence[str]) -> list[str]:
    """The command line of this program, without the overrides of a job."""
    program = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1]  # such as train.py, or -m arith_erd.training
    return [sys.executable, *program, *(override for override in overrides if override.startswith("hydra.searchpath="))]
