"""What we take from Hydra: it composes ``conf/``, expands sweeps and knows the keys; its errors are one line.

We use Hydra's ``compose``, which has no side effects. ``hydra.main`` would make log handlers and callbacks from the
node ``hydra``, print its own errors, and not start under Python 3.14. We read parts of that node, such as the commands
of a Slurm job, so files from elsewhere may not set them (`_require_harmless`).
"""

import json
import os
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from itertools import product
from operator import methodcaller
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import hydra
import yaml
from hydra import version
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override, Quote, QuotedString
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ..bundled import CONF, load_option
from ..errors import UserError, bad_value, excerpt, first_line, no_such_key, unknown_name
from ..runs.identity import flatten
from ..system.files import MAX_YAML_DEPTH, require_small_yaml
from ..system.isolation import HYDRA

RECIPE_GROUPS = ("optimizer", "scheduler", "loss")  # each fills the key of the same name in ``model``
OPTION_GROUPS = ("task", "split", *RECIPE_GROUPS, "model", "logger", "probe")  # groups whose options define keys
PRESET_GROUPS = ("ablation", "experiment", "figure", "scale")  # groups whose options only set keys
FLOAT_KEYS = ("model.gradient_clip", "trainer.stop_at")  # keys that take real numbers though their default is null
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
    values = (override.value() for override in parsed(overrides) if override.get_key_element() == "hydra.searchpath")
    folders = next(values, [])  # Hydra reads the first, too
    if not isinstance(folders, list):
        raise bad_value("hydra.searchpath", folders, f"a list of folders, hydra.searchpath=[{folders}]")
    return cast(list[str], folders)


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
            if path.suffix == ".yaml" and not path.is_dir() and (sets := _hydra_keys_set_by(path, relative)):
                accepted = "only hydra.sweeper.params in a file, and other keys of hydra on the command line"
                raise UserError(f"{relative}: sets {sets[0]}; expected {accepted}")


def _hydra_keys_set_by(path: Path, relative: Path) -> list[str]:
    """The keys of Hydra that a file sets, except parameters of a sweep, or other ways in which it reaches them."""
    require_small_yaml(path)
    try:
        config = OmegaConf.to_container(OmegaConf.load(path))  # as Hydra reads it, interpolations as text
    except (OmegaConfBaseException, UnicodeError) as error:
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
def known_keys(config_name: str, *overrides: str) -> Mapping[str, Any]:
    """The keys that exist if only these options are chosen, with values. Of Hydra's keys only those of the launcher."""
    keys = _keys(composed(config_name, overrides))
    return {key: value for key, value in keys.items() if not re.match(r"hydra\.(?!launcher\.)", key)}


def require_key(config_name: str, overrides: Sequence[str], key: str) -> None:
    """Raise a `UserError` unless a composition has a key, or a group, with a value."""
    composition = composed(config_name, overrides)
    if OmegaConf.select(composition, key) is None:
        raise no_such_key(key, [known for known in _keys(composition) if not known.startswith("hydra.")])


def _chosen_option(hydra_node: DictConfig, group: str) -> dict[str, Any]:
    """The keys that a group's chosen option sets, wherever Hydra finds its file; empty if it inherits from another."""
    file = f"{group}/{hydra_node.runtime.choices.get(group)}.yaml"
    paths = (Path(source.path, file) for source in hydra_node.runtime.config_sources if source.schema == "file")
    keys = next((_keys(OmegaConf.load(path)) for path in paths if path.is_file()), {})
    return {} if "defaults" in keys else keys


def _options_with(key: str) -> list[str]:
    """The options of a group that have a key: ``["logger=wandb"]`` for ``logger.mode``."""
    inner = key.removeprefix("model.")
    group, _, option = (inner if inner.partition(".")[0] in RECIPE_GROUPS else key).partition(".")
    names = [file.stem for file in sorted((CONF / group).glob("*.yaml"))]
    return [f"{group}={name}" for name in names if option in dict(flatten(load_option(group, name)))]


def require_known_keys(composition: DictConfig, hydra_node: DictConfig, known: Mapping[str, Any]) -> None:
    """Raise a `UserError` for keys that ``+`` or a preset added to the chosen groups, and keys that ``~`` removed.

    If ``scale=`` sets sizes that the chosen network lacks, such as heads, it removes them instead.
    """
    keys, choices = _keys(composition), hydra_node.runtime.choices
    for group in (*RECIPE_GROUPS, "net"):
        if isinstance(option := keys.get(f"model.{group}"), str):
            raise bad_value(f"model.{group}", option, f"{'model' if group == 'net' else group}={option}")
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


def write_floats(composition: DictConfig, defaults: Mapping[str, Any]) -> None:
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


def expand_sweep(params: Mapping[str, Any], overrides: Sequence[str]) -> list[list[str]]:
    """The overrides of every job: the product of the values of each key, with the last key fastest.

    Typed overrides, ``["seed=0,1"]``, take precedence over the ``params`` of a preset, ``{"task": "add,mul"}``.
    """
    loader, values = GlobalHydra.instance().config_loader(), dict[str, list[str]]()
    for override in parsed([*(f"{key}={value}" for key, value in params.items()), *overrides]):
        if override.is_hydra_override():
            continue
        key, value = override.get_key_element(), override.value()
        if isinstance(value, Glob):
            options = value.filter(loader.get_group_options(override.key_or_group, overrides=list(overrides)))
        elif override.is_interval_sweep():
            why = "nothing here draws them; docs/how-to/search.md searches with Optuna"
            raise UserError(f"{override.input_line}: expected values, since {why}")
        elif override.is_sweep_override():
            options = [*override.sweep_string_iterator()]
        else:
            options = [override.get_value_element_as_str()]
        values[key] = [f"{key}={option}" for option in options]
    return [list(job) for job in product(*values.values())]


# Errors of Hydra


def hydra_quoted(value: str, always: bool = False) -> str:
    """A text as Hydra reads it, with quotes where Hydra needs them: ``'a=b'``."""
    plain = not always and re.fullmatch(r"[\w/.:%+@*?| -]*", value, re.ASCII) and value == value.strip()
    if plain and not re.fullmatch(r"null|true|false|[+-]?(nan|inf|\.?\d[\d_.e+-]*)", value, re.IGNORECASE):
        return value
    return QuotedString(value, Quote.single).with_quotes()


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
        limits = f"at most {MAX_YAML_DEPTH} levels, also in files of YAML, without loops"
        return f"{excerpt(' '.join(overrides))}: nested too deeply; expected {limits}"
    if isinstance(error, UnicodeDecodeError):
        return f"{' '.join(overrides)}: expected files of UTF-8; one of them has an {error.reason} at {error.start}"
    if again := re.match(r"(?:Multiple values for )?([\w/]+)(?:\.| appears more than once)", text):
        return f"+{again[1]}: is set already; expected {again[1]}=OPTION"
    if plugin := re.search(r"In '(hydra/\w+)/(\w+)': Could not", text):
        return f"{plugin[1]}={plugin[2]}: its plugin is not installed; conf/{plugin[1]}/{plugin[2]}.yaml says how"
    if several := re.match(r"Ambiguous value for argument '([^=]+)=(.*)'$", text, re.MULTILINE):
        key, value = several.groups()
        return f'{key}={value}: expected -m too, for one job per value, or one text, "{key}={hydra_quoted(value)}"'
    if option := re.search(r"Could not find '((?:hydra/)?[^'/]+)/([^']*)'", text):
        names = re.findall(r"^\t(\S+)$", text, re.MULTILINE)
        return str(unknown_name(option[1], option[2], names))
    if misspelt := re.search(r"Could not (?:override|delete from config\.) '([^']+)'", text):
        key = misspelt[1]
        groups = "|".join((*OPTION_GROUPS, *PRESET_GROUPS))
        key_adding = rf"(({groups}|hydra/launcher)=[\w-]+|hydra\.searchpath=.*)"  # these add keys
        known = known_keys(config_name, *(override for override in overrides if re.fullmatch(key_adding, override)))
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
        if not group:
            raise UserError(f"{override}: expected KEY=VALUE, such as task=add")
        no_name = re.fullmatch(r"[\w.+-]+", value) and hydra_quoted(value) != value  # null, or a number
        if group in (*OPTION_GROUPS, *PRESET_GROUPS) and (override.startswith("~") or no_name):
            raise UserError(f"{override}: expected one of the options of {group}, the files of conf/{group}/")
        if group.startswith(sweep := "hydra.sweeper.params."):
            raise UserError(f"{override}: expected the key itself, {group.removeprefix(sweep)}={value}, with -m")
    try:
        yield
    except (HydraException, ValueError, RecursionError, yaml.YAMLError) as error:
        raise UserError(hydra_message(error, config_name, overrides)) from error
