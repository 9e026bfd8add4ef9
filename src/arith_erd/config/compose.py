"""Make a `Job` from ``conf/``: Hydra composes, `read_job` checks and builds, errors are one line. Loads no torch."""

import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast, get_args, overload

from omegaconf import DictConfig, OmegaConf

from ..errors import ArgumentsError, UserError, bad_value, counted, nearest
from ..runs.identity import flatten
from ..system.isolation import isolated
from . import hydra_conf
from .class_spec import trust
from .hydra_conf import OPTION_GROUPS, PRESET_GROUPS, RECIPE_GROUPS
from .job import Job, ProbeJob, read_job, read_probe_job
from .run_names import non_default_probe_options

ConfigName = Literal["train", "probe"]
NO_PRESET = (None, "none", "full")  # options of `PRESET_GROUPS` that set nothing


def job_overrides(hydra_node: DictConfig) -> list[str]:
    """The chosen overrides, except options of Hydra: ``["task=mul", "out='${probe.name}'"]``."""
    return cast(list[str], OmegaConf.to_container(hydra_node.overrides.task, resolve=False))


def require_single_job(config: DictConfig) -> None:
    """Raise a `UserError` for settings that need a sweep, which ``-m`` starts."""
    hydra_node = config.hydra
    launcher = hydra_node.runtime.choices["hydra/launcher"]
    if launcher != "basic":  # Hydra would ignore it, and train on the login node
        raise UserError(f"hydra/launcher={launcher}: expected -m too, also for a single job")
    if own := [override for override in hydra_node.overrides.hydra if not override.startswith("hydra.searchpath=")]:
        raise UserError(f"{own[0]}: expected -m too; a single run uses nothing of Hydra's own")
    for key, default in (("job_index", None), ("fail_fast", False), ("wait", True)):
        if key in config and config[key] != default:
            raise UserError(f"{key}={hydra_conf.hydra_value(config[key])}: expected -m too; it is a setting of a sweep")
    if params := hydra_node.sweeper.params:
        overrides = job_overrides(hydra_node)
        jobs = counted(len(hydra_conf.expand_sweep(params, overrides)), "job")
        if jobs != "1 job" or {*params} - {override.get_key_element() for override in hydra_conf.parsed(overrides)}:
            command = shlex.join(["-m", *overrides])
            experiment = f"experiment={hydra_node.runtime.choices.get('experiment')}"
            raise UserError(f"{experiment}: a sweep of {jobs}; expected -m: python train.py {command}")


def require_clear_overrides(hydra_node: DictConfig) -> None:
    """Raise a `UserError` for an override that Hydra takes, but that would not do what it seems to say."""
    choices = hydra_node.runtime.choices
    for group, option in choices.items():
        if option and (".." in str(option).split("/") or str(option).startswith("/")):
            raise bad_value(group, option, f"one of the files in conf/{group}/")
    for key, _, value in (override.partition("=") for override in job_overrides(hydra_node)):
        if key in (*OPTION_GROUPS, *PRESET_GROUPS) and value.startswith("["):  # Hydra would take the last one
            several = f"one option, or -m for one job each: {key}={value.strip('[]')}"
            raise bad_value(key, value, "one logger; the CSV files are written anyway" if key == "logger" else several)
        group, _, last = key.lstrip("+").partition(".")
        if last == "name" and group in (*OPTION_GROUPS, "ablation"):  # a report would mistake the run for another
            raise bad_value(key, value, f"{group}=OPTION, or a file of that name in your own --config-dir")
        if key == "probe" and (figure := choices.get("figure")):
            raise bad_value(key, value, f"no probe= beside figure={figure}, which chooses the probe")
        if key == "epochs" and value[:1] != "{":
            raise bad_value(key, value, f"{{TASK: EPOCHS}}; for this run use trainer.max_epochs={value}")


def default_values(config_name: str, hydra_node: DictConfig) -> Mapping[str, Any]:
    """The keys of the chosen options with their values; to save time none if nothing can have added or set a key."""
    choices = hydra_node.runtime.choices
    keys = [override.partition("=")[0] for override in job_overrides(hydra_node)]
    has_preset = any(choices.get(group) not in NO_PRESET for group in PRESET_GROUPS)
    if not has_preset and not any("." in key or key.startswith(("+", "~")) for key in keys):
        return {}
    # Search the same folders as this composition.
    search = [word for word in hydra_node.overrides.hydra if word.startswith("hydra.searchpath=")]
    chosen = [f"{group}={choices[group]}" for group in OPTION_GROUPS if choices.get(group)]
    known = hydra_conf.known_keys(config_name, *search, *chosen)
    return {key: value for key, value in known.items() if not key.startswith("hydra.")}


def checked_config(
    config_name: str, composition: DictConfig, cli_overrides: Sequence[str]
) -> tuple[dict[str, Any], str]:
    """A composition as plain values, with checked keys, and the probe's options that differ from its defaults.

    Only ``cli_overrides`` may set ``trust`` and ``overwrite``: one runs code, the other deletes a run.
    """
    hydra_node = composition.hydra
    composition = OmegaConf.masked_copy(composition, [str(key) for key in composition if key != "hydra"])
    require_clear_overrides(hydra_node)
    if defaults := default_values(config_name, hydra_node):
        hydra_conf.require_known_keys(composition, hydra_node, defaults)
    if "name" not in (composition.get("task") or {}):  # other keys refer to it
        task = hydra_node.runtime.choices.get("task")
        raise UserError(f"task={task}: its file lacks a name; expected name: NAME and _target_: CLASS")
    hydra_conf.write_floats(composition, defaults)
    config = hydra_conf.resolve(composition)
    for key in ("trust", "overwrite"):
        if config.get(key) and not any(re.match(rf"\+*{key}=", word) for word in cli_overrides):
            raise bad_value(key, config[key], "on the command line, not in a file")
    if (packages := config.pop("trust")) != []:
        if not sys.flags.safe_path and os.getcwd() not in sys.path:  # ``arith-train`` does not look there by itself
            sys.path.append(os.getcwd())
        trust(*packages if isinstance(packages, list) else [packages])
    options = dict(flatten({"probe": config.get("probe")}))
    return config, non_default_probe_options(options, defaults) if config_name == "probe" and defaults else ""


def checked_job(config_name: str, composition: DictConfig, cli_overrides: Sequence[str]) -> Job | ProbeJob:
    """The job of a composition, as in `checked_config`; a `UserError` if it could not run."""
    config, options = checked_config(config_name, composition, cli_overrides)
    if config_name == "probe":
        return read_probe_job(config, job_overrides(composition.hydra), options)
    return read_job(config, config.pop("overwrite"))


Overrides = Sequence[str] | Mapping[str, Any] | None
"""Overrides as typed, ``["task=mul"]``, or as values, ``{"task": "mul"}``; None for none."""


def typed_overrides(overrides: Overrides) -> list[str]:
    if isinstance(overrides, Mapping):
        overrides = [f"{key}={hydra_conf.hydra_value(value)}" for key, value in overrides.items()]
    words = overrides or []
    if isinstance(words, str) or not isinstance(words, Sequence) or not all(isinstance(word, str) for word in words):
        accepted = "a list of overrides, such as ['data.batch_size=32'], or a dictionary, {'data.batch_size': 32}"
        raise UserError(f"overrides: received {overrides!r}; expected {accepted}")
    return list(words)


def arguments_error(function: str, taken: Sequence[str], given: Mapping[str, Any], problem: str) -> ArgumentsError:
    """An error for an unknown argument; it suggests an argument or ``overrides={'model.optimizer.lr': 0.001}``."""
    name, keys = next((name for name in given if name not in taken), ""), list[str]()
    if "overrides" in taken:
        with hydra_conf.hydra_over_conf():
            known = hydra_conf.known_keys("train")
        keys = [key for key in known if key not in ("seed", "runs_dir", "trainer.max_epochs")]
        keys += [*OPTION_GROUPS, *RECIPE_GROUPS]
    near = nearest(name, (*taken, *keys))
    if near in keys and near not in taken:
        group, _, last = near.partition(".")
        own = last and group in ("task", "split")
        near = f"{last} of your {group}" if own else f"overrides={{{near!r}: {given[name]!r}}}"
    hint = f"did you mean {near}?" if near else f"expected {', '.join(taken)}"
    return ArgumentsError(f"{function}: {problem}; {hint}")


def compose_config(overrides: Sequence[str]) -> dict[str, Any]:
    """The resolved configuration of ``train.py`` with these overrides, its values not yet checked."""
    with hydra_conf.hydra_over_conf("train", overrides):
        return checked_config("train", hydra_conf.composed("train", overrides), overrides)[0]


@overload
def compose(config_name: Literal["train"] = ..., overrides: Overrides = ...) -> Job: ...
@overload
def compose(config_name: Literal["probe"], overrides: Overrides = ...) -> ProbeJob: ...
@isolated()
def compose(config_name: ConfigName = "train", overrides: Overrides = ()) -> Job | ProbeJob:
    """Compose a job as the command line does, with the same `UserError`. ``overrides`` are the words typed there.

    They can also be a dictionary of values, ``{"task": "mul"}``.

    >>> job = compose("train", ["task=mul", "seed=0-4"])
    >>> job.seeds, job.task.name, job.trainer.max_epochs
    ((0, 1, 2, 3, 4), 'mul', 250)
    """
    if config_name not in get_args(ConfigName):
        raise bad_value("compose: config_name", config_name, '"train" or "probe", then a list of overrides')
    overrides = typed_overrides(overrides)
    with hydra_conf.hydra_over_conf(config_name, overrides):
        return single_job(config_name, overrides)


def single_job(config_name: str, overrides: Sequence[str]) -> Job | ProbeJob:
    """The job of a command line without ``-m``. Use it within `hydra_over_conf`."""
    composition = hydra_conf.composed(config_name, overrides)
    job = checked_job(config_name, composition, overrides)
    require_single_job(composition)
    return job
