"""From ``conf/`` to a `Job`: Hydra composes, `read` checks and builds. Loads no torch."""

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, overload

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from ..errors import UserError, bad_value
from .build import trust
from .explain import GROUPS, PRESETS, RECIPE, explain
from .guard import guarded
from .job import Job, ProbeJob
from .names import CONF as CONF
from .read import leaves, read_job, read_probe_job

ConfigName = Literal["train", "probe"]
REALS = {
    *("lr", "eps", "betas", "weight_decay", "momentum", "alpha", "gradient_clip", "dropout", "label_smoothing"),
    *("weight", "strict", "gamma", "max_lr", "pct_start", "final_div_factor", "fraction", "stop_at"),
}
"""Options that are real numbers, wherever they are: 1 and 1.0 are one run."""


@overload
def compose(config_name: Literal["train"] = ..., overrides: Sequence[str] = ...) -> Job: ...
@overload
def compose(config_name: Literal["probe"], overrides: Sequence[str] = ...) -> ProbeJob: ...
def compose(config_name: ConfigName = "train", overrides: Sequence[str] = ()) -> Job | ProbeJob:
    """Compose a job as the command line does, or raise its `UserError`; ``overrides`` are what is typed there.

    >>> job = compose("train", ["task=mul", "seed=0-4"])
    >>> job.seeds, job.task.name, job.trainer.max_epochs
    ((0, 1, 2, 3, 4), 'mul', 250)
    """
    with refusals(config_name, overrides), hydra_over_conf():
        composed = hydra.compose(config_name, list(overrides), return_hydra_config=True)
        return accept(config_name, *without_hydra(composed), overrides)


@contextmanager
def refusals(config_name: str, overrides: Sequence[str]) -> Iterator[None]:
    """Hydra's errors within the block become a `UserError`; the overrides are those typed after ``python train.py``."""
    try:
        yield
    except (HydraException, OmegaConfBaseException, YAMLError, ValueError) as error:
        raise UserError(explain(error, lambda: _keys_beside(config_name, overrides))) from error


def without_hydra(composed: DictConfig) -> tuple[DictConfig, DictConfig]:
    """A composed configuration without Hydra's own node, and that node."""
    own = composed.copy()
    with open_dict(own):
        del own["hydra"]
    return own, composed.hydra


def accept(
    config_name: str, composed: DictConfig, hydra_node: DictConfig, typed: Sequence[str] | None = None
) -> Job | ProbeJob:
    """The job of a configuration that Hydra has composed, without Hydra's own node, and of that node.

    ``typed`` is what the command line said, which alone may set ``trust`` and ``overwrite``; None for the arguments of
    this process. A job that could not be run raises a `UserError`.
    """
    overrides: Any = OmegaConf.to_container(hydra_node.overrides.task, resolve=False)
    for key, _, value in (override.partition("=") for override in overrides):
        if key in (*GROUPS, *PRESETS) and value.startswith("["):  # Hydra would take the last one
            raise bad_value(key, value, f"one option, or with -m a job of each: {key}={value.strip('[]')}")
    _fit_to_model(composed, hydra_node.runtime.choices)
    config = resolve(composed)
    for key in ("trust", "overwrite"):  # the one runs code, the other deletes a run
        words = sys.argv[1:] if typed is None else typed
        if config.get(key) and not any(re.match(rf"\+*{key}=", word) for word in words):
            raise bad_value(key, config[key], "on the command line, not in a file")
    _trust(config.pop("trust"))
    if config_name == "probe":
        return read_probe_job(config, overrides)
    return read_job(config, config.pop("overwrite"))


def _trust(packages: Any) -> None:
    """Allow the classes of packages that were typed, also those in the current folder, after installed ones."""
    if not isinstance(packages, list):
        raise bad_value("trust", packages, "names of packages, as trust=[my_package]")
    if packages and not sys.flags.safe_path and os.getcwd() not in sys.path:  # as `arith-train` has it
        sys.path.append(os.getcwd())
    trust(*packages)


def resolve(composed: DictConfig) -> dict[str, Any]:
    """A composed configuration as plain dictionaries, interpolations resolved."""
    try:
        plain: Any = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise UserError(f"{error.full_key or 'configuration'}: {str(error).splitlines()[0]}") from error
    return {str(key): _with_reals(str(key), value) for key, value in plain.items()}


def _with_reals(key: str, value: Any) -> Any:
    """1 -> 1.0 and -0.0 -> 0.0 at keys of `REALS`; what is too large for a real number stays as it is."""
    if isinstance(value, dict):
        return {k: _with_reals(k, child) for k, child in value.items()}
    if isinstance(value, list):
        return [_with_reals(key, item) for item in value]
    number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    return value + 0.0 if number and key in REALS else value


@contextmanager
def hydra_over_conf() -> Iterator[None]:
    """Hydra initialised over ``conf/`` during the block; what was initialised before is so again after it."""
    before = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with guarded(), hydra.initialize_config_dir(str(CONF), version_base="1.3"):
            yield
    finally:
        GlobalHydra.instance().hydra = before


def _keys_beside(config_name: str, overrides: Sequence[str]) -> set[str]:
    """Every key that could have been typed beside these overrides."""
    option = rf"(({'|'.join(GROUPS)}|hydra/launcher)=[\w-]+|hydra\.searchpath=.*)"
    options = [override for override in overrides if re.fullmatch(option, override)]
    with hydra_over_conf():
        whole: Any = OmegaConf.to_container(hydra.compose(config_name, options, return_hydra_config=True))
    return {*dict(leaves(whole)), *RECIPE}  # groups that are no key of their own


def _fit_to_model(composed: DictConfig, choices: Mapping[str, Any]) -> None:
    """Take out what ``scale=`` says of networks and the chosen one lacks, such as heads; refuse such an ablation."""
    own = _network("model", choices)
    for preset in ("scale", "ablation") if "_target_" in own else ():
        for key, value in _network(preset, choices).items():
            if key in own or composed.model.net.get(key) != value:
                continue
            if preset == "ablation":
                sets = f"ablation={choices[preset]}: sets model.net.{key}={value}"
                raise UserError(f"{sets}, which model={choices['model']} does not have")
            with open_dict(composed):
                del composed.model.net[key]


def _network(group: str, choices: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the file of the chosen option, wherever Hydra finds it, says of the network."""
    for source in GlobalHydra.instance().config_loader().get_sources():
        if source.is_config(f"{group}/{choices.get(group)}"):
            config: Any = OmegaConf.to_container(source.load_config(f"{group}/{choices[group]}").config)
            return config.get("model", config).get("net", {})
    return {}
