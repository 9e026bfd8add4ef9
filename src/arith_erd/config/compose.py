"""Make a `Job` from ``conf/``: Hydra composes, `read_job` checks and builds, errors are one line. Loads no torch.

We use Hydra's ``compose``, which has no side effects. ``hydra.main`` would make log handlers and callbacks from the
node ``hydra``, print its own errors, and not start under Python 3.14. We read parts of that node, such as the commands
of a Slurm job, so files from elsewhere may not set them (`_require_harmless`).
"""

import json
import os
import re
import shlex
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from itertools import product
from operator import methodcaller
from pathlib import Path
from typing import Any, Literal, cast, get_args, overload
from unittest.mock import patch

import hydra
import yaml
from hydra import version
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ..bundled import CONF, load_option
from ..errors import UserError, bad_value, counted, first_line, nearest, no_such_key, unknown_name
from ..runs.identity import flatten
from ..system.files import MAX_YAML_DEPTH, require_plain_yaml
from ..system.isolation import HYDRA, isolated
from .class_spec import trust
from .job import Job, ProbeJob, read_job, read_probe_job
from .run_names import non_default_probe_options

ConfigName = Literal["train", "probe"]
RECIPE_GROUPS = ("optimizer", "scheduler", "loss")  # each fills the key of the same name in ``model``
OPTION_GROUPS = ("task", "split", *RECIPE_GROUPS, "model", "logger", "probe")  # groups whose options define keys
PRESET_GROUPS = ("ablation", "experiment", "figure", "scale")  # groups whose options only set keys
FLOAT_KEYS = ("model.gradient_clip", "trainer.stop_at")  # keys that take real numbers though their default is null
NO_PRESET = (None, "none", "full")  # options of `PRESET_GROUPS` that set nothing
HELP_WIDTH = 80  # columns of the list of options in ``--help``
SWEEP_KEYS = r"hydra\.sweeper\.params\.(?![+~]*(hydra|trust|overwrite)\b)[^@]*"  # keys that any file may set


@contextmanager
def hydra_over_conf(config_name: str = "train", overrides: Sequence[str] = ()) -> Iterator[None]:
    """Within the block Hydra reads ``conf/``, whatever the caller's Hydra reads. Its errors become a `UserError`.

    We check the folders that ``overrides`` add, since ``hydra.searchpath=[FOLDER]`` lets Hydra read them, too.
    """
    base, global_hydra = version.VersionBase.instance(), GlobalHydra.instance()
    with HYDRA, patch.object(base, "version_base"), patch.object(global_hydra, "hydra", None):
        hydra.initialize_config_dir(str(CONF), "arith_erd", version_base="1.3")
        with explain_hydra_errors(config_name, overrides):
            for folder in search_path(overrides):
                scheme, separator, path = folder.rpartition("://")
                if scheme == "file" or not separator:  # others are installed packages
                    _require_harmless(Path(path))
            yield


def composed(config_name: str, overrides: Sequence[str]) -> DictConfig:
    """Hydra's composition, including the node ``hydra``."""
    return hydra.compose(config_name, list(overrides), return_hydra_config=True)


def parsed(overrides: Sequence[str]) -> list[Override]:
    return OverridesParser.create().parse_overrides(list(overrides))


def search_path(overrides: Sequence[str]) -> list[str]:
    """The folders of ``hydra.searchpath=[FOLDER,..]``."""
    values = (one.value() for one in parsed(overrides) if one.get_key_element() == "hydra.searchpath")
    folders = next(values, [])  # Hydra reads the first, too
    return cast(list[str], folders) if isinstance(folders, list) else []


def _require_harmless(folder: Path) -> None:
    """Raise a `UserError` if a YAML file of a folder could configure Hydra, or expands to too many values.

    It may set parameters of a sweep, but not the keys that work only on the command line.
    """
    if not folder.is_dir():
        raise bad_value("hydra.searchpath", folder, "a folder")
    seen = set[str]()
    for root, folders, files in os.walk(folder, followlinks=True):  # Hydra follows links, too
        if (real := os.path.realpath(root)) in seen:
            folders.clear()
        seen.add(real)
        names = [*folders, *(name for name in files if name.endswith(".yaml"))]
        for path in (Path(root, name) for name in names):
            relative = path.relative_to(folder)
            if "hydra" in path.name.lower():  # its package would be Hydra's
                raise UserError(f"{relative}: expected another name; only conf/ has options of Hydra")
            if path.suffix == ".yaml" and not path.is_dir() and (sets := _sets_of_hydra(path, relative)):
                accepted = "only hydra.sweeper.params in a file, and other keys of hydra on the command line"
                raise UserError(f"{relative}: sets {sets[0]}; expected {accepted}")


def _sets_of_hydra(path: Path, relative: Path) -> list[str]:
    """The keys of Hydra that a file sets, except parameters of a sweep, or other ways in which it reaches them."""
    require_plain_yaml(path)
    try:
        config = OmegaConf.to_container(OmegaConf.load(path))  # as Hydra reads it, interpolations as text
    except (OmegaConfBaseException, UnicodeError, yaml.YAMLError) as error:
        raise UserError(f"{relative}: {first_line(error)}") from error
    if not isinstance(config, dict):
        raise UserError(f"{relative}: expected a group of keys")
    headers = (line.strip() for line in path.read_text("utf-8").splitlines())
    packages = [line.split()[-1] for line in headers if re.match(r"#\s*@package\s.*hydra", line)]
    defaults = ["hydra by its defaults"] * ("hydra" in str(config.get("defaults")))
    keys = [
        key
        for key in dict(flatten(cast(dict[str, Any], config)))
        if key.split(".")[0] == "hydra" and not re.fullmatch(SWEEP_KEYS, key)
    ]
    return packages + defaults + keys


def resolve(composition: DictConfig) -> dict[str, Any]:
    """A composed configuration as plain dictionaries, with interpolations resolved."""
    try:
        return cast(dict[str, Any], OmegaConf.to_container(composition, resolve=True, throw_on_missing=True))
    except OmegaConfBaseException as error:
        raise UserError(f"{error.full_key or 'configuration'}: {str(error).splitlines()[0]}") from error


def _keys(composition: Any) -> dict[str, Any]:
    """Every dotted key of a composition, with its value before interpolation."""
    plain: Any = OmegaConf.to_container(composition)
    return dict(flatten(plain))


@cache
def _known_keys(config_name: str, *overrides: str) -> Mapping[str, Any]:
    """The keys that exist if only these options are chosen, with values. Of Hydra's keys only those of the launcher."""
    keys = _keys(composed(config_name, overrides))
    return {key: value for key, value in keys.items() if not re.match(r"hydra\.(?!launcher\.)", key)}


def _chosen_option(hydra_node: DictConfig, group: str) -> dict[str, Any]:
    """The keys that a group's chosen option sets, wherever Hydra finds its file; empty if it inherits from another."""
    file = f"{group}/{hydra_node.runtime.choices.get(group)}.yaml"
    paths = (Path(source.path, file) for source in hydra_node.runtime.config_sources if source.schema == "file")
    keys = next((_keys(OmegaConf.load(path)) for path in paths if path.is_file()), {})
    return {} if "defaults" in keys else keys


def _options_with(key: str) -> list[str]:
    """The options of a group that have a key: ``["logger=wandb"]`` for ``logger.mode``."""
    inner = key.removeprefix("model.")
    group, _, option = (inner if inner.startswith(tuple(f"{name}." for name in RECIPE_GROUPS)) else key).partition(".")
    names = [file.stem for file in sorted((CONF / group).glob("*.yaml"))]
    return [f"{group}={name}" for name in names if option in dict(flatten(load_option(group, name)))]


def _require_known_keys(composition: DictConfig, hydra_node: DictConfig, known: Mapping[str, Any]) -> None:
    """Raise a `UserError` for keys that ``+`` or a preset added to the chosen groups, and keys that ``~`` removed.

    If ``scale=`` sets sizes that the chosen network lacks, such as heads, it removes them instead.
    """
    keys, choices = _keys(composition), hydra_node.runtime.choices
    open_groups = tuple(f"{key}." for key, value in known.items() if value is None)  # these may hold any keys
    scale, ablation = (_chosen_option(hydra_node, group) for group in ("scale", "ablation"))
    for key, value in keys.items():
        if key in known or key.startswith(open_groups) or any(k.startswith(f"{key}.") for k in known):
            continue
        if key in ablation:
            accepted = f"expected ablation=none, or a model that has this key; model={choices['model']} does not"
            raise UserError(f"ablation={choices['ablation']}: sets {key}={value}; {accepted}")
        if not key.startswith("model.net.") or scale.get(key, ...) != value:
            raise no_such_key(key, known)
        del composition.model.net[key.removeprefix("model.net.")]
    present = {*keys, *(group[:-1] for group in open_groups if any(key.startswith(group) for key in keys))}
    if missing := sorted(known.keys() - present):
        raise UserError(f"{missing[0]}: missing; expected a value for it")


def _as_float(value: Any) -> Any:
    """1 -> 1.0 and -0.0 -> 0.0; other values, and integers that are too large, stay as they are."""
    if isinstance(value, list):
        return [_as_float(x) for x in value]
    number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    return value + 0.0 if number else value


def _write_floats(composition: DictConfig, defaults: Mapping[str, Any]) -> None:
    """Write 1 as 1.0, and -0.0 as 0.0, for real-valued keys, so that equal values give the same run."""
    for key, value in _keys(composition).items():
        default = defaults.get(key)
        reals = {type(x) for x in default} == {float} if isinstance(default, list) else type(default) is float
        if (reals or key in FLOAT_KEYS) and repr(real := _as_float(value)) != repr(value):
            OmegaConf.update(composition, key, real)


def help_text(config_name: str, overrides: Sequence[str]) -> str:
    """The text of ``--help``. A line for each group has its name and its options, also those in the user's folders."""
    node = composed(config_name, overrides).hydra
    chosen = list(node.runtime.choices)[::-1]  # in the order of the defaults list, which Hydra reverses
    options_of = partial(GlobalHydra.instance().config_loader().get_group_options, overrides=list(overrides))
    options = {group: options_of(group) for group in chosen if not group.startswith("hydra/")}
    # List only our launchers: those of Hydra and its plugins have no defaults for our runs.
    options["hydra/launcher"] = sorted(path.stem for path in (CONF / "hydra" / "launcher").glob("*.yaml"))
    indent = max(map(len, options)) + 4
    wrapper = textwrap.TextWrapper(HELP_WIDTH, subsequent_indent=" " * indent, break_on_hyphens=False)
    lines = (wrapper.fill(f"  {group}".ljust(indent) + "  ".join(names)) for group, names in options.items())
    return cast(str, node.help.template).replace("{options}", "\n".join(lines))


# Sweeps


def require_single_job(config: DictConfig) -> None:
    """Raise a `UserError` for settings that need a sweep, which ``-m`` starts."""
    hydra_node = config.hydra
    launcher = hydra_node.runtime.choices["hydra/launcher"]
    if launcher != "basic":  # Hydra would ignore it, and train on the login node
        raise UserError(f"hydra/launcher={launcher}: expected -m too, also for a single job")
    if own := [one for one in hydra_node.overrides.hydra if not one.startswith("hydra.searchpath=")]:
        raise UserError(f"{own[0]}: expected -m too; a single run uses nothing of Hydra's own")
    if config.get("job_index") is not None:
        raise UserError(f"job_index={config.job_index}: expected -m too; it chooses one job of a sweep")
    if params := hydra_node.sweeper.params:
        overrides = job_overrides(hydra_node)
        jobs = counted(len(expand_sweep(params, overrides)), "job")
        if jobs != "1 job" or {*params} - {one.get_key_element() for one in parsed(overrides)}:
            command = shlex.join(["-m", *overrides])
            experiment = f"experiment={hydra_node.runtime.choices.get('experiment')}"
            raise UserError(f"{experiment}: a sweep of {jobs}; expected -m: python train.py {command}")


def expand_sweep(params: Mapping[str, Any], overrides: Sequence[str]) -> list[list[str]]:
    """The overrides of every job: the product of the values of each key, with the last key fastest.

    Typed overrides, ``["seed=0,1"]``, take precedence over the ``params`` of a preset, ``{"task": "add,mul"}``.
    """
    loader, values = GlobalHydra.instance().config_loader(), dict[str, list[str]]()
    for one in parsed([*(f"{key}={value}" for key, value in params.items()), *overrides]):
        if one.is_hydra_override():
            continue
        key, value = one.get_key_element(), one.value()
        if isinstance(value, Glob):
            options = value.filter(loader.get_group_options(one.key_or_group, overrides=list(overrides)))
        elif one.is_interval_sweep():
            why = "nothing here draws them; docs/how-to/search.md searches with Optuna"
            raise UserError(f"{one.input_line}: expected values, since {why}")
        else:
            options = [*one.sweep_string_iterator()] if one.is_sweep_override() else [one.get_value_element_as_str()]
        values[key] = [f"{key}={option}" for option in options]
    return [list(job) for job in product(*values.values())]


# Errors of Hydra


def hydra_quoted(value: str, always: bool = False) -> str:
    """A text as Hydra reads it, with quotes where Hydra needs them: ``'a=b'``."""
    plain = not always and re.fullmatch(r"[\w/.:%+@*?| -]*", value, re.ASCII) and value == value.strip()
    if plain and not re.fullmatch(r"null|true|false|[+-]?(nan|inf|\.?\d[\d_.e+-]*)", value, re.IGNORECASE):
        return value
    escaped = re.sub(r"(\\*)('|$)", lambda end: 2 * end[1] + ("\\'" if end[2] else ""), value)
    return f"'{escaped}'"


def hydra_value(value: object, nested: bool = False) -> str:
    """A value as Hydra reads it: text, numbers (NumPy's too), true, false, null, and lists and dictionaries of them."""
    if isinstance(value, str | Path):
        return hydra_quoted(str(value), nested)
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{hydra_value(str(key))}:{hydra_value(x, True)}' for key, x in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join(hydra_value(x, True) for x in value)}]"
    try:
        return json.dumps(value, ensure_ascii=False, default=methodcaller("tolist"))
    except (TypeError, ValueError, AttributeError):
        accepted = "numbers, text, true, false, null, or lists and dictionaries of them"
        raise bad_value("overrides", f"a {type(value).__name__}", accepted) from None


def hydra_message(error: Exception, config_name: str, overrides: Sequence[str]) -> str:
    """Hydra's message as one line, with the nearest key or option if one is misspelt."""
    text = str(error).strip()
    if isinstance(error, OverrideParseException):
        key, _, value = error.override.partition("=")
        if key.startswith("-"):
            return f"{error.override}: expected KEY=VALUE, without dashes"
        hint = f'"{key}={hydra_quoted(os.path.expanduser(value))}", since Hydra reads some characters only in quotes'
        return f"{error.override}: expected KEY=VALUE, such as {hint if value else 'task=add'}"
    if isinstance(error, RecursionError):
        return f"{' '.join(overrides)}: expected files of YAML without loops, at most {MAX_YAML_DEPTH} levels deep"
    if isinstance(error, UnicodeDecodeError):
        return f"{' '.join(overrides)}: expected files of UTF-8; one of them has an {error.reason} at {error.start}"
    if again := re.match(r"Multiple values for ([\w/]+)\.", text):
        return f"+{again[1]}: is set already; expected {again[1]}=OPTION"
    if plugin := re.search(r"In '(hydra/\w+)/(\w+)': Could not", text):
        return f"{plugin[1]}={plugin[2]}: its plugin is not installed; conf/{plugin[1]}/{plugin[2]}.yaml says how"
    if several := re.match(r"Ambiguous value for argument '([^=]+)=(.*)'$", text, re.MULTILINE):
        key, value = several.groups()
        return f'{key}={value}: expected -m too, for one job per value, or one text, "{key}={hydra_quoted(value)}"'
    if option := re.search(r"Could not find '((?:hydra/)?[^'/]+)/([^']*)'", text):
        names = re.findall(r"^\t(\S+)$", text, re.MULTILINE)
        return str(unknown_name(option[1], option[2], names))
    if misspelt := re.search(r"Could not override '([^']+)'", text):
        key = misspelt[1]
        groups = "|".join((*OPTION_GROUPS, *PRESET_GROUPS))
        key_adding = rf"(({groups}|hydra/launcher)=[\w-]+|hydra\.searchpath=.*)"  # these add keys
        known = _known_keys(config_name, *(override for override in overrides if re.fullmatch(key_adding, override)))
        if key in OPTION_GROUPS or any(k.startswith(f"{key}.") for k in known):
            return f"{key}={{...}}: expected one of its options, or KEY=VALUE for each of its keys"
        if (options := _options_with(key)) and f"model.{key}" not in known:
            return f"{key}: no such key here; {' and '.join(options)} {'has' if len(options) == 1 else 'have'} it"
        return str(no_such_key(key, {*known, *RECIPE_GROUPS, *PRESET_GROUPS}))
    cause = f": {first_line(error.__cause__)}" if isinstance(error.__cause__, OmegaConfBaseException) else ""
    return text.split("Config search path")[0].strip() + cause


@contextmanager
def explain_hydra_errors(config_name: str, overrides: Sequence[str]) -> Iterator[None]:
    """Turn Hydra's errors in the block into a `UserError`. Use it within `hydra_over_conf`, for the hints."""
    for override in overrides:
        group, _, value = override.removeprefix("~").partition("=")
        no_name = re.fullmatch(r"[\w.+-]+", value) and hydra_quoted(value) != value  # null, or a number
        if group in (*OPTION_GROUPS, *PRESET_GROUPS) and (override.startswith("~") or no_name):
            raise UserError(f"{override}: expected one of the options of {group}, the files of conf/{group}/")
        if group.startswith(sweep := "hydra.sweeper.params."):
            raise UserError(f"{override}: expected the key itself, {group.removeprefix(sweep)}={value}, with -m")
    try:
        yield
    except (HydraException, ValueError, RecursionError, yaml.YAMLError) as error:
        raise UserError(hydra_message(error, config_name, overrides)) from error


# From a composition to a job


def job_overrides(hydra_node: DictConfig) -> list[str]:
    """The chosen overrides, except options of Hydra: ``["task=mul", "out='${probe.name}'"]``."""
    return cast(list[str], OmegaConf.to_container(hydra_node.overrides.task, resolve=False))


def checked_config(
    config_name: str, composition: DictConfig, cli_overrides: Sequence[str]
) -> tuple[dict[str, Any], str]:
    """A composition as plain values, with checked keys, and the probe's options that differ from its defaults.

    Only ``cli_overrides`` may set ``trust`` and ``overwrite``: one runs code, the other deletes a run.
    """
    hydra_node, own_keys = composition.hydra, [str(key) for key in composition if key != "hydra"]
    composition = OmegaConf.masked_copy(composition, own_keys)
    choices = hydra_node.runtime.choices
    for group, option in choices.items():
        if option and (".." in str(option).split("/") or str(option).startswith("/")):
            raise bad_value(group, option, f"one of the files in conf/{group}/")
    may_add_keys = any(choices.get(group) not in NO_PRESET for group in PRESET_GROUPS)  # mostly False, to save time
    for key, _, value in (override.partition("=") for override in job_overrides(hydra_node)):
        if key in (*OPTION_GROUPS, *PRESET_GROUPS) and value.startswith("["):  # Hydra would take the last one
            raise bad_value(key, value, f"one option, or -m for one job each: {key}={value.strip('[]')}")
        group, _, last = key.lstrip("+").partition(".")
        if last == "name" and group in (*OPTION_GROUPS, "ablation"):  # a report would mistake the run for another
            raise bad_value(key, value, f"{group}=OPTION, or a file of that name in your own --config-dir")
        if key == "probe" and (figure := choices.get("figure")):
            raise bad_value(key, value, f"no probe= beside figure={figure}, which chooses the probe")
        if key == "epochs" and value[:1] != "{":
            raise bad_value(key, value, f"{{TASK: EPOCHS}}; for this run use trainer.max_epochs={value}")
        may_add_keys = may_add_keys or "." in key or key.startswith(("+", "~"))
    defaults: Mapping[str, Any] = {}
    if may_add_keys:
        # Search the same folders as this composition.
        search = tuple(word for word in hydra_node.overrides.hydra if word.startswith("hydra.searchpath="))
        chosen = [f"{group}={choices[group]}" for group in OPTION_GROUPS if choices.get(group)]
        known = _known_keys(config_name, *search, *chosen)
        defaults = {key: value for key, value in known.items() if not key.startswith("hydra.")}
        _require_known_keys(composition, hydra_node, defaults)
    if "name" not in (composition.get("task") or {}):  # other keys refer to it
        raise UserError(f"task={choices.get('task')}: its file lacks a name; expected name: NAME and _target_: CLASS")
    _write_floats(composition, defaults)
    config = resolve(composition)
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
        overrides = [f"{key}={hydra_value(value)}" for key, value in overrides.items()]
    words = overrides or []
    if isinstance(words, str) or not isinstance(words, Sequence) or not all(isinstance(word, str) for word in words):
        accepted = "a list of overrides, such as ['data.batch_size=32'], or a dictionary, {'data.batch_size': 32}"
        raise UserError(f"overrides: received {overrides!r}; expected {accepted}")
    return list(words)


def arguments_error(function: str, taken: Sequence[str], given: Mapping[str, Any], problem: str) -> UserError:
    """An error for an unknown argument; it suggests an argument or ``overrides={'model.optimizer.lr': 0.001}``."""
    name, keys = next((name for name in given if name not in taken), ""), list[str]()
    if "overrides" in taken:
        with hydra_over_conf():
            keys = [key for key in _known_keys("train") if key not in ("seed", "runs_dir", "trainer.max_epochs")]
        keys += [*OPTION_GROUPS, *RECIPE_GROUPS]
    near = nearest(name, (*taken, *keys))
    if near in keys and near not in taken:
        group, _, last = near.partition(".")
        own = last and group in ("task", "split")
        near = f"{last} of your {group}" if own else f"overrides={{{near!r}: {given[name]!r}}}"
    hint = f"did you mean {near}?" if near else f"expected {', '.join(taken)}"
    return UserError(f"{function}: {problem}; {hint}")


def compose_config(overrides: Sequence[str]) -> dict[str, Any]:
    """The resolved configuration of ``train.py`` with these overrides, its values not yet checked."""
    with hydra_over_conf("train", overrides):
        return checked_config("train", composed("train", overrides), overrides)[0]


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
    with hydra_over_conf(config_name, overrides):
        return single_job(config_name, overrides)


def single_job(config_name: str, overrides: Sequence[str]) -> Job | ProbeJob:
    """The job of a command line without ``-m``. Use it within `hydra_over_conf`."""
    composition = composed(config_name, overrides)
    require_single_job(composition)
    return checked_job(config_name, composition, overrides)
