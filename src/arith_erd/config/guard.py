"""What files may say to Hydra itself, and which packages the command line trusts.

Hydra acts on its own node, ``hydra``, as soon as it has composed a configuration: it makes callbacks and handlers of
logs, changes folders, and sets variables of the environment. So that node is checked file by file, while it is composed.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from ..errors import UserError, bad_value
from .build import trust
from .names import CONF

OURS = ("train", "probe", "program")
"""Files of ``conf/`` that may configure Hydra, beside those in ``conf/hydra/`` and in installed packages."""


@contextmanager
def guarded() -> Iterator[None]:
    """Within the block Hydra composes no configuration in which another file than `OURS` configures Hydra.

    Such a file, an experiment for example, may set ``hydra.sweeper.params``, which are overrides of a sweep. What is
    typed as ``hydra.KEY=VALUE`` is no file, and is allowed.

    Raises:
        UserError: within the block, when Hydra composes, naming the file and the key.
    """
    load = ConfigLoaderImpl._load_single_config

    def checked(loader: ConfigLoaderImpl, default: Any, repo: Any) -> Any:
        loaded = load(loader, default, repo)
        if not _may_configure_hydra(loaded.path, default.config_path):
            _require_sweep_only(default.config_path, loaded.config)
        return loaded

    with mock.patch.object(ConfigLoaderImpl, "_load_single_config", checked):
        yield


def _may_configure_hydra(folder: str, path: str) -> bool:
    if not folder.startswith("file://"):
        return True  # an installed package
    ours = path in OURS or path.startswith("hydra/")
    return ours and ".." not in path.split("/") and folder == f"file://{CONF}"


def _require_sweep_only(path: str, config: Any) -> None:
    plain = OmegaConf.to_container(config) if OmegaConf.is_dict(config) else {}
    said = plain.get("hydra", {}) if isinstance(plain, dict) else {}
    keys = [key for key in said if key != "sweeper"] if isinstance(said, dict) else [""]
    sweeper = said.get("sweeper") or {} if not keys else {}
    keys += [f"sweeper.{key}" for key in sweeper if key != "params"] if isinstance(sweeper, dict) else ["sweeper"]
    params = sweeper.get("params") or {} if not keys else {}
    keys += [f"sweeper.params.{k}" for k in params if re.match(r"[+~]*(hydra|trust|overwrite)\b", str(k))]
    if keys:
        raise UserError(
            f"{path}.yaml: sets hydra.{keys[0]}; expected only hydra.sweeper.params in a file, and other keys of hydra "
            "on the command line"
        )


def trust_typed(packages: Any, typed: Sequence[str] | None = None) -> None:
    """Allow the classes of packages that the command line names.

    Args:
        packages: the composed value of ``trust``, which files can set too.
        typed: what was typed; None for the arguments of this process.

    Raises:
        UserError: if it is no list of packages, or a package was not typed.
    """
    if not isinstance(packages, list):
        raise bad_value("trust", packages, "names of packages, as trust=[my_package]")
    words = sys.argv[1:] if typed is None else typed
    values = [OverridesParser.create().parse_override(word).value() for word in words if re.match(r"\+*trust=", word)]
    if not all(any(package in value for value in values if isinstance(value, list)) for package in packages):
        raise bad_value("trust", packages, "on the command line, not in a file")
    trust(*packages)
