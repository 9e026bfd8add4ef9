"""From ``conf/`` to a `Job`: Hydra composes, `read_job` checks and builds. Loads no torch."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, overload

import hydra
import yaml
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from ..errors import UserError, bad_value
from .build import trust
from .explain import GROUPS, PRESETS, RECIPE, explain
from .groups import Model, Training
from .job import Job, ProbeJob
from .read import read_job, read_probe_job
from .rules import SWITCH, as_real, leaves, no_such_key, reals

_INSTALLED = Path(__file__).parents[1] / "conf"  # inside a wheel
CONF = _INSTALLED if _INSTALLED.is_dir() else Path(__file__).parents[3] / "conf"
ConfigName = Literal["train", "probe"]
REALS = reals("model", Model) | reals("trainer", Training)
"""Keys that take real numbers, whatever their default."""


@overload
def compose(config_name: Literal["train"] = ..., overrides: Sequence[str] = ...) -> Job: ...
@overload
def compose(config_name: Literal["probe"], overrides: Sequence[str] = ...) -> ProbeJob: ...
def compose(config_name: ConfigName = "train", overrides: Sequence[str] = ()) -> Job | ProbeJob:
    """Compose a job as the command line does.

    >>> job = compose("train", ["task=mul", "seed=0-4"])
    >>> job.seeds, job.task.name, job.trainer.max_epochs
    ((0, 1, 2, 3, 4), 'mul', 250)

    Args:
        config_name: ``train``, or ``probe`` for what ``probe.py`` takes.
        overrides: as typed after ``python train.py``.

    Raises:
        UserError: with the message of the command line.
    """
    try:
        with hydra_over_conf():
            composed = hydra.compose(config_name, list(overrides), return_hydra_config=True)
            own, hydra_node = without_hydra(composed)
            return accept(config_name, own, hydra_node)
    except (HydraException, ValueError) as error:
        raise refusal(config_name, error, overrides) from error


def refusal(config_name: str, error: Exception, overrides: Sequence[str]) -> UserError:
    """Hydra's error as a `UserError`.

    Args:
        config_name: ``train`` or ``probe``.
        error: of Hydra.
        overrides: what was typed.
    """
    return UserError(explain(error, lambda: _keys_beside(config_name, overrides)))


def without_hydra(composed: DictConfig) -> tuple[DictConfig, DictConfig]:
    """A composed configuration without Hydra's own node, and that node."""
    own = composed.copy()
    with open_dict(own):
        del own["hydra"]
    return own, composed.hydra


def accept(config_name: str, composed: DictConfig, hydra_node: DictConfig) -> Job | ProbeJob:
    """The job of a configuration that Hydra has composed.

    Args:
        config_name: ``train`` or ``probe``.
        composed: without Hydra's own node.
        hydra_node: that node, with the options that were chosen and the overrides that were typed.

    Raises:
        UserError: if it is not one that could be run.
    """
    choices = hydra_node.runtime.choices
    for group, option in choices.items():
        if option and (".." in str(option).split("/") or str(option).startswith("/")):
            raise bad_value(group, option, f"one of the files in conf/{group}/")
    written: Any = OmegaConf.to_container(hydra_node.overrides.task, resolve=False)
    for key, _, value in (str(override).partition("=") for override in written):
        if key in (*GROUPS, *PRESETS) and value.startswith("["):  # Hydra would take the last one
            raise bad_value(key, value, f"one option, or with -m a job of each: {key}={value.strip('[]')}")
    # Compositions to compare with look for options where this one did.
    search = tuple(override for override in hydra_node.overrides.hydra if override.startswith("hydra.searchpath="))
    _require_known_keys(config_name, composed, choices, search)
    _write_reals(config_name, composed, choices, search)
    if choices.get("model"):
        _require_whole_recipe(config_name, composed, choices, search)
    config = resolve(composed)
    typed = tuple(hydra_node.overrides.task)
    _trust(config.pop("trust"), typed)
    if config_name == "probe":
        return read_probe_job(config, typed)
    overwrite = SWITCH("overwrite", config.pop("overwrite"))
    return replace(read_job(config), overwrite=overwrite)


def _trust(packages: Any, typed: Sequence[str]) -> None:
    """Allow the classes of packages, if the command line says so."""
    if not isinstance(packages, list):
        raise bad_value("trust", packages, "names of packages, as trust=[my_package]")
    if packages and not any(override.startswith("trust=") for override in typed):
        raise bad_value("trust", packages, "on the command line, not in a file")
    trust(*packages)


def resolve(composed: DictConfig) -> dict[str, Any]:
    """A composed configuration as plain dictionaries, interpolations resolved."""
    try:
        plain = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise UserError(f"{error.full_key or 'configuration'}: {str(error).splitlines()[0]}") from error
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


@contextmanager
def hydra_over_conf() -> Iterator[None]:
    """Hydra initialised over ``conf/`` during the block; what was initialised before is so again after it."""
    before = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
            yield
    finally:
        GlobalHydra.instance().hydra = before


def _defaults(config_name: str, choices: Mapping[str, Any], search: tuple[str, ...]) -> Mapping[str, Any]:
    """Every key, with its value, that exists when these options of the groups are chosen and nothing else is set."""
    return _composed(config_name, *search, *(f"{group}={choices[group]}" for group in GROUPS if choices.get(group)))


@cache
def _composed(config_name: str, *overrides: str) -> Mapping[str, Any]:
    return dict(leaves(_plain(hydra.compose(config_name, list(overrides)))))


def _keys_beside(config_name: str, overrides: Sequence[str]) -> frozenset[str]:
    """Every key that could have been typed beside these overrides, those of Hydra's launcher included."""
    kept = (*GROUPS, "hydra/launcher", "hydra.searchpath")
    chosen = [o for o in overrides if o.split("=")[0] in kept and "," not in o]
    with hydra_over_conf():
        whole = hydra.compose(config_name, chosen, return_hydra_config=True)
        keys = [key for key, _ in leaves(_plain(whole))]
    own = {key for key in keys if not key.startswith("hydra.") or key.startswith("hydra.launcher.")}
    return frozenset(own.union(RECIPE))  # groups that are no key of their own


def _plain(composed: DictConfig) -> dict[str, Any]:
    plain = OmegaConf.to_container(composed)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _require_known_keys(
    config_name: str, composed: DictConfig, choices: Mapping[str, Any], search: tuple[str, ...]
) -> None:
    """Refuse keys that a ``+`` or an ablation added to what the chosen groups define, and keys that a ``~`` took."""
    known = _defaults(config_name, choices, search).keys()
    given = dict(leaves(_plain(composed)))
    for key, value in given.items():
        if key in known:
            continue
        ablation = choices.get("ablation")
        ours = CONF / "ablation" / f"{ablation}.yaml"  # else it is in the folder that --config-dir names
        if ours.is_file() and key in dict(leaves(yaml.safe_load(ours.read_text()))):
            raise UserError(f"ablation={ablation}: sets {key}={value}, which model={choices['model']} does not have")
        if not any(k.startswith(f"{key}.") for k in known):
            raise no_such_key(key, known)
    if missing := sorted(known - given.keys()):
        raise UserError(f"{missing[0]}: missing; expected a value for it")


def _write_reals(config_name: str, composed: DictConfig, choices: Mapping[str, Any], search: tuple[str, ...]) -> None:
    """Make 1 of a real number 1.0, and -0.0 of it 0.0, as its default would be written, so that both are one run."""
    known = _defaults(config_name, choices, search)
    for key, value in leaves(_plain(composed)):
        default = known.get(key)
        if key in REALS or type(default) is float:
            real = as_real(value)
        elif isinstance(default, list) and isinstance(value, list) and all(type(x) is float for x in default):
            real = [as_real(x) for x in value]
        else:
            continue
        if repr(real) != repr(value):
            OmegaConf.update(composed, key, real)


def _require_whole_recipe(
    config_name: str, composed: DictConfig, choices: Mapping[str, Any], search: tuple[str, ...]
) -> None:
    """Refuse an optimizer, a scheduler or a loss whose keys come from two files: half of each would be trained with."""
    given = _plain(composed)["model"]
    options = {group: choices[group] for group in RECIPE if choices.get(group)}
    typed_options = (f"{group}={option}" for group, option in options.items())
    for group, chosen in _recipe(config_name, *search, *typed_options).items():
        key, typed = f"model.{group}", given.get(group)
        if not isinstance(typed, dict | None):
            continue  # refused by its reader
        if _keys_of(typed) != _keys_of(chosen):
            raise UserError(
                f"{group}={options[group]}: model={choices['model']} sets {key} itself; expected its file in "
                f"conf/model/ to choose instead: override /{group}@_global_.{group}: {options[group]}"
            )
        if typed and chosen and typed["_target_"] != chosen["_target_"]:
            _require_options_of(config_name, group, typed, search)


def _require_options_of(config_name: str, group: str, typed: Mapping[str, Any], search: tuple[str, ...]) -> None:
    """Refuse a class with the options of another class, where an option of the group has its own."""
    loader = GlobalHydra.instance().config_loader()
    for option in loader.get_group_options(group, config_name=config_name, overrides=list(search)):
        own = _recipe(config_name, *search, f"{group}={option}")[group]
        if own and own["_target_"] == typed["_target_"] and _keys_of(own) != _keys_of(typed):
            accepted = f"{group}={option}, which has the options of that class"
            raise bad_value(f"model.{group}._target_", typed["_target_"], accepted)


@cache
def _recipe(config_name: str, *options: str) -> dict[str, Any]:
    """What options of `RECIPE` say by themselves, by group."""
    alone = _plain(hydra.compose(config_name, ["~model", *options])).get("model", {})
    return {group: alone[group] for group in RECIPE if group in alone}


def _keys_of(group: Mapping[str, Any] | None) -> frozenset[str] | None:
    return None if group is None else frozenset(group)
