"""Restrict which of Hydra's own settings a file may change, and which packages are trusted.

Hydra acts on its own node, ``hydra``, as soon as it has composed a configuration: it makes callbacks and log handlers,
changes folders and sets environment variables. So that node is checked file by file while it is composed.
"""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hydra import version
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ..errors import UserError, bad_value, first_line
from .build import trust
from .names import CONF

OURS = ("train", "probe", "program")
"""Files of ``conf/`` that may configure Hydra, beside those in ``conf/hydra/`` and in installed packages."""


class CheckedLoader(ConfigLoaderImpl):
    """Raises a `UserError`, with file and key, if another file than `OURS` configures Hydra.

    Such a file, an experiment for example, may set ``hydra.sweeper.params`` only. Any ``hydra.KEY=VALUE`` may be typed.
    """

    def _load_single_config(self, default: Any, repo: Any) -> Any:
        path = default.config_path
        try:
            loaded = super()._load_single_config(default, repo)
        except OmegaConfBaseException as error:
            raise UserError(f"{path}.yaml: {first_line(error)}") from error
        in_a_package = not loaded.path.startswith("file://")
        ours = (path in OURS or path.startswith("hydra/")) and ".." not in path.split("/")
        if not in_a_package and not (ours and loaded.path == f"file://{CONF}"):
            for key in _hydra_keys(loaded.config):
                raise UserError(
                    f"{path}.yaml: sets {key}; expected only hydra.sweeper.params in a file, and other keys of hydra "
                    "on the command line"
                )
        return loaded


@contextmanager
def hydra_over_conf(config_dir: str | None = None) -> Iterator[Hydra]:
    """Within the block Hydra reads ``conf/`` and a folder of more options; afterwards its earlier state is restored.

    It replaces ``hydra.main``, which always uses its own loader and composes twice.
    """
    search_path = create_config_search_path(str(CONF))
    if config_dir is not None:
        if not os.path.isdir(config_dir):
            raise bad_value("--config-dir", config_dir, "a folder")
        # As Hydra does: before its own schemas, which come last.
        search_path.prepend("command-line", f"file://{os.path.abspath(config_dir)}", SearchPathQuery("schema"))
    version.setbase("1.3")
    everywhere = GlobalHydra.instance()
    before, everywhere.hydra = everywhere.hydra, Hydra("arith_erd", CheckedLoader(search_path))
    try:
        yield everywhere.hydra
    finally:
        everywhere.hydra = before


def _hydra_keys(config: Any) -> list[str]:
    """The keys of Hydra's node that a file sets, except sweep parameters that change only a job."""
    plain: Any = OmegaConf.to_container(config)  # interpolations stay text, which is refused here
    node, path = plain.get("hydra", {}) if isinstance(plain, dict) else {}, "hydra"
    for fine in (r"sweeper", r"params", r"(?![+~]*(hydra|trust|overwrite)\b).*"):
        if not isinstance(node, dict):
            return [path]
        if found := [f"{path}.{key}" for key in node if not re.fullmatch(fine, str(key), re.DOTALL)]:
            return found
        node, path = node.get(fine, {}), f"{path}.{fine}"
    return []


def trust_typed(packages: Any, typed: Sequence[str]) -> None:
    """Trust ``packages``, the composed value of ``trust``, if it was typed; a `UserError` if only a file set it.

    A typed value replaces that of files. Packages in the current folder are found too, after installed ones:
    ``arith-train`` does not look there by itself.
    """
    if not isinstance(packages, list):
        raise bad_value("trust", packages, "names of packages, such as trust=[my_package]")
    if packages and not is_typed("trust", typed):
        raise bad_value("trust", packages, "on the command line, not in a file")
    if packages and not sys.flags.safe_path and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    trust(*packages)


def is_typed(key: str, typed: Sequence[str]) -> bool:
    """Whether one of the typed words, such as ``trust=[json]``, sets a key."""
    return any(re.match(rf"\+*{key}=", word) for word in typed)
