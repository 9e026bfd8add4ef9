"""Configurations: composed by Hydra, checked here, built here. Loads no torch.

Every other module takes things, not configurations. Hydra is known here, and to `cli` and `sweep`, which make programs
of functions.
"""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cache
from pathlib import Path
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from ..errors import UserError, bad_value, first_line
from ..runs import Config, require_name
from ..seeds import parse_seeds
from ..splits import Split
from ..tasks import Task
from .build import build
from .checks import HIGHEST, NAMED, NEEDS, RULES

_INSTALLED = Path(__file__).parents[1] / "conf"  # inside a wheel
CONF = _INSTALLED if _INSTALLED.is_dir() else Path(__file__).parents[3] / "conf"
# Of the launchers in conf/hydra/launcher/: how to get the plugin that each needs.
PLUGINS = {
    "slurm": "pip install -c requirements.lock -e '.[slurm]'",
    "ray_gpus": "pip install -c requirements.ray.lock -e '.[ray]', in an environment of its own",
}
GROUPS = ("task", "split", "model", "logger", "probe")


def check(config: Config) -> None:
    """Refuse values that could not be trained with, before torch is loaded and before anything is written.

    A constructor's own check comes later and is as short; this one answers in a second.

    Raises:
        UserError: naming the key, the value and what is accepted.
    """
    for group in NAMED:
        if not isinstance(config.get(group, {}), dict):
            raise bad_value(group, config[group], "a group of keys")
    flat = dict(_leaves(config))
    for key, accepts, accepted in RULES:
        if key in flat and not accepts(flat[key]):
            raise bad_value(key, flat[key], accepted)
    for key, highest in HIGHEST.items():
        if key in flat and flat[key] > highest:
            raise bad_value(key, flat[key], f"at most {highest}")
    for key in (f"{group}.name" for group in NAMED):
        if key in flat:
            require_name(key, flat[key])
    for key, value in flat.items():
        if isinstance(value, str) and not value.isprintable():
            raise bad_value(key, value, "text without control characters")
    needs = flat.get("probe.needs", [])
    if not isinstance(needs, list) or any(need not in NEEDS for need in needs):
        raise bad_value("probe.needs", needs, f"a list of {', '.join(NEEDS)}")
    if "seed" in config:
        parse_seeds(config["seed"])
    net = config.get("model", {}).get("net", {})
    if isinstance(net, dict) and net.get("d_model", 0) % net.get("num_heads", 1):
        raise bad_value("model.net.d_model", net["d_model"], f"a multiple of model.net.num_heads={net['num_heads']}")
    task: Task = build(config.get("task"), Task)  # tasks and splits are quick to make and check their own arguments
    if config.get("split"):
        build(config["split"], Split)(task.examples([0], [0]))


def resolve(config: DictConfig) -> Config:
    """A composed configuration as plain dictionaries, interpolations resolved."""
    try:
        plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise UserError(f"{error.full_key or 'configuration'}: {str(error).splitlines()[0]}") from error
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def compose(config_name: str, overrides: Sequence[str] = ()) -> Config:
    """A resolved, checked configuration without a command line, for notebooks and tests.

    ``compose("train", ["task=mul", "seed=0-4"])``

    Raises:
        UserError: as the command line would say it.
    """
    GlobalHydra.instance().clear()
    try:
        with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
            composed = hydra.compose(config_name, list(overrides), return_hydra_config=True)
            choices = composed.hydra.runtime.choices
            with open_dict(composed):
                del composed["hydra"]
            return accept(config_name, composed, choices)
    except (HydraException, ValueError) as error:
        raise UserError(explain(config_name, error, overrides)) from error


def accept(config_name: str, composed: DictConfig, choices: Mapping[str, Any]) -> Config:
    """A composed configuration, resolved, once it is known to be good; ``choices`` are the options of the groups."""
    for group, option in choices.items():
        if option and (".." in str(option).split("/") or str(option).startswith("/")):
            raise bad_value(group, option, f"one of the files in conf/{group}/")
    _require_same_keys(config_name, composed, choices)
    config = resolve(composed)
    check(config)
    return config


def _leaves(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """``{"a": {"b": 1}}`` -> ``("a.b", 1)``; lists are leaves."""
    for key, value in node.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


@cache
def _keys(config_name: str, *choices: str, launcher: bool = False) -> frozenset[str]:
    """Every key that exists when these options of the groups are chosen and nothing else is set.

    Or those of the launcher alone.
    """
    composed = hydra.compose(config_name, list(choices), return_hydra_config=launcher)
    keys = frozenset(key for key, _ in _leaves(OmegaConf.to_container(composed)))
    return frozenset(key for key in keys if key.startswith("hydra.launcher.")) if launcher else keys


def _require_same_keys(config_name: str, composed: DictConfig, choices: Mapping[str, Any]) -> None:
    """Refuse keys that a ``+`` or an ablation added to what the chosen groups define, and keys that a ``~`` took."""
    known = _keys(config_name, *(f"{group}={choices[group]}" for group in GROUPS if choices.get(group)))
    given = dict(_leaves(OmegaConf.to_container(composed)))
    for key, value in given.items():
        if key in known:
            continue
        ablation = choices.get("ablation")
        if ablation and key.split(".")[-1] in (CONF / "ablation" / f"{ablation}.yaml").read_text():
            raise UserError(f"ablation={ablation}: sets {key}={value}, which model={choices['model']} does not have")
        if not any(k.startswith(f"{key}.") for k in known):
            raise UserError(_no_such_key(key, known))
    if missing := sorted(known - given.keys()):
        raise UserError(f"{missing[0]}: missing; expected a value for it")


def _no_such_key(key: str, known: Set[str]) -> str:
    close = difflib.get_close_matches(key, known, n=3, cutoff=0.6)
    last = key.split(".")[-1]
    close += [k for k in sorted(known) if k.split(".")[-1] == last and k not in close]
    siblings = sorted(k for k in known if k.rpartition(".")[0] == key.rpartition(".")[0])
    hint = f"did you mean {' or '.join(close)}?" if close else f"expected one of {', '.join(siblings)}"
    return f"{key}: no such key; {hint}"


def explain(config_name: str, error: Exception, overrides: Sequence[str]) -> str:
    """Hydra's message, with a nearer hint where a key is misspelt: among the keys of the groups that were chosen."""
    text = str(error).strip()
    if text.startswith("Config group override must be"):  # Hydra does not say which
        return f"null for a group: expected one of its options for each of {', '.join(GROUPS)}, as task=add"
    if plugin := re.search(r"In 'hydra/launcher/(\w+)': Could not load", text):
        return f"hydra/launcher={plugin[1]}: its plugin is not installed; {PLUGINS[plugin[1]]}"
    option = re.search(r"Could not find '([^']+)/([^'/]+)'", text)
    if option is not None:
        return str(bad_value(option[1], option[2], " or ".join(re.findall(r"^\t(\S+)$", text, re.MULTILINE))))
    misspelt = re.search(r"Could not override '([^']+)'", text)
    if misspelt is None:
        cause = f": {first_line(error.__cause__)}" if isinstance(error.__cause__, OmegaConfBaseException) else ""
        return text.split("Config search path")[0].strip() + cause
    GlobalHydra.instance().clear()
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        chosen = [o for o in overrides if o.split("=")[0] in (*GROUPS, "hydra/launcher") and "," not in o]
        in_launcher = misspelt[1].startswith("hydra.launcher.")
        return _no_such_key(misspelt[1], _keys(config_name, *chosen, launcher=in_launcher))
