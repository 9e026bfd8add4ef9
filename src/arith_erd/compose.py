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

from .errors import UserError, bad_value, first_line
from .rules import RULES
from .runs import Config
from .seeds import parse_seeds

CONF = Path(__file__).parents[2] / "conf"
# Of the launchers in conf/hydra/launcher/: how to get the plugin that each needs.
PLUGINS = {
    "slurm": "pip install -c requirements.lock -e '.[slurm]'",
    "ray_gpus": "pip install -c requirements.ray.lock -e '.[ray]', in an environment of its own",
}
GROUPS = ("task", "split", "model", "logger", "probe")
TARGETS = ("arith_erd.", "torch.", "torchmetrics.", "lightning.")


def check(config: Config) -> None:
    """Refuse values that could not be trained with, before torch is loaded and before anything is written.

    A constructor's own check comes later and is as short; this one answers in a second.

    Raises:
        UserError: naming the key, the value and what is accepted.
    """
    flat = dict(_leaves(config))
    for key, accepts, accepted in RULES:
        if key in flat and not accepts(flat[key]):
            raise bad_value(key, flat[key], accepted)
    if "seed" in config:
        parse_seeds(config["seed"])
    net = config.get("model", {}).get("net", {})
    if net.get("d_model", 0) % net.get("num_heads", 1):
        raise bad_value("model.net.d_model", net["d_model"], f"a multiple of model.net.num_heads={net['num_heads']}")
    task = build(config["task"])  # tasks and splits are quick to make and check their own arguments
    if config.get("split"):
        build(config["split"])(task.examples([0], [0]))


def build(node: Config, **arguments: Any) -> Any:
    """Instantiate a node of a configuration; every `_target_` in the project goes through here.

    ``name`` and ``needs`` are for people and programs, and no arguments. What a constructor refuses becomes a
    `UserError`.

    Raises:
        UserError: if a target is no class of this package, torch, torchmetrics or lightning.
    """
    node = {key: value for key, value in node.items() if key not in ("name", "needs")}
    for target in _targets(node):
        _require_allowed(target)
    try:
        return hydra.utils.instantiate(node, **arguments)
    except hydra.errors.InstantiationException as error:
        if isinstance(error.__cause__, UserError):
            raise error.__cause__ from error
        raise UserError(f"{node.get('_target_')}: {error.__cause__ or error}") from error


def _targets(node: Any) -> Iterator[Any]:
    """Every `_target_` in a tree of dictionaries and lists."""
    if isinstance(node, dict):
        yield from (value for key, value in node.items() if key == "_target_")
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for child in children:
        yield from _targets(child)


def _require_allowed(target: Any) -> None:
    """Refuse all but classes defined where they may be; another module's name may stand in an allowed one."""
    expected = f"a class of {', '.join(prefix.rstrip('.') for prefix in TARGETS)}"
    if not str(target).startswith(TARGETS):
        raise bad_value("_target_", target, expected)
    try:
        found = hydra.utils.get_object(target)
    except (ImportError, ValueError, hydra.errors.HydraException) as error:
        raise bad_value("_target_", target, f"{expected}, but there is none of that name") from error
    if not isinstance(found, type) or not f"{found.__module__}.".startswith(TARGETS):
        raise bad_value("_target_", target, expected)


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
