"""Make a `Job` from ``conf/``: Hydra composes, `read_job` checks and builds, errors are one line. Loads no torch."""

import difflib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal, overload

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from ..errors import UserError, bad_value, first_line, no_such_key
from ..runs.directory import leaves
from .guard import hydra_over_conf, is_typed, trust_typed
from .job import Job, ProbeJob, read_job, read_probe_job
from .names import CONF as CONF
from .names import load_option, probe_options

ConfigName = Literal["train", "probe"]
RECIPE = ("optimizer", "scheduler", "loss")  # groups that fill the key of their name in ``model``
GROUPS = ("task", "split", *RECIPE, "model", "logger", "probe")  # groups whose options define keys
PRESETS = ("ablation", "experiment", "figure", "scale")  # groups whose options only set keys
REALS = ("model.gradient_clip", "trainer.stop_at")  # keys that take real numbers though their default is null
PLAIN = (None, "none", "full")  # options of `PRESETS` that set nothing
SEARCH = "pip install -e '.[optuna]'"
PLUGINS = {  # of the launchers in conf/hydra/launcher/: how to get the plugin that each needs
    "slurm": "pip install -c requirements.lock -e '.[slurm]'",
    "ray_gpus": "pip install -c requirements.ray.lock -e '.[ray]', in an environment of its own",
}


def resolve(composed: DictConfig) -> dict[str, Any]:
    """A composed configuration as plain dictionaries, with interpolations resolved."""
    try:
        plain: Any = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise UserError(f"{error.full_key or 'configuration'}: {str(error).splitlines()[0]}") from error
    return {str(key): value for key, value in plain.items()}


def _keys(composed: DictConfig) -> dict[str, Any]:
    """Every dotted key of a composition, with its value before interpolation."""
    plain: Any = OmegaConf.to_container(composed)
    return dict(leaves(plain))


@cache
def _composed(config_name: str, *overrides: str) -> Mapping[str, Any]:
    """The keys that exist if only these options are chosen, with values; of Hydra's own, only the launcher's."""
    whole = hydra.compose(config_name, list(overrides), return_hydra_config=True)
    return {
        k: value for k, value in _keys(whole).items() if not k.startswith("hydra.") or k.startswith("hydra.launcher.")
    }


def _chosen_option(group: str, name: Any) -> Any:
    """The content of an option's file, from wherever Hydra finds it; None if it inherits from another file."""
    for source in GlobalHydra.instance().config_loader().get_sources():
        if source.is_config(f"{group}/{name}"):
            config = source.load_config(f"{group}/{name}").config
            return None if "defaults" in config else OmegaConf.to_container(config)
    return None


def _drop_sizes(composed: DictConfig, choices: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Remove options of ``scale=`` that the chosen network lacks, such as heads."""
    net = OmegaConf.select(composed, "model.net")
    for key, value in leaves(_chosen_option("scale", choices.get("scale")) or {}):
        option = key.removeprefix("model.net.")
        if option != key and key not in known and net.get(option) == value:
            with open_dict(net):
                del net[option]


def _require_known_keys(composed: DictConfig, choices: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Raise a `UserError` for keys that ``+`` or a preset added to the chosen groups, and keys that ``~`` removed."""
    keys = _keys(composed)
    own = tuple(f"{key}." for key, value in known.items() if value is None)  # may be a group with keys of its own
    for key, value in keys.items():
        if key in known or key.startswith(own) or any(k.startswith(f"{key}.") for k in known):
            continue
        ablation = choices.get("ablation")
        if key in dict(leaves(_chosen_option("ablation", ablation) or {})):
            accepted = f"expected ablation=none, or a model that has this key; model={choices['model']} does not"
            raise UserError(f"ablation={ablation}: sets {key}={value}; {accepted}")
        raise no_such_key(key, known)
    there = {*keys, *(group[:-1] for group in own if any(key.startswith(group) for key in keys))}
    if missing := sorted(known.keys() - there):
        raise UserError(f"{missing[0]}: missing; expected a value for it")


def _as_real(value: Any) -> Any:
    """1 -> 1.0 and -0.0 -> 0.0; other values, and integers that are too large, stay as they are."""
    if isinstance(value, list):
        return [_as_real(x) for x in value]
    number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    return value + 0.0 if number else value


def _write_reals(composed: DictConfig, defaults: Mapping[str, Any]) -> None:
    """Write 1 as 1.0 and -0.0 as 0.0 for real-valued keys, so that equal values give the same run."""
    for key, value in _keys(composed).items():
        default = defaults.get(key)
        reals = {type(x) for x in default} == {float} if isinstance(default, list) else type(default) is float
        if (reals or key in REALS) and repr(real := _as_real(value)) != repr(value):
            OmegaConf.update(composed, key, real)


# Errors of Hydra


def as_text(value: str) -> str:
    """A text as Hydra reads it, with quotes where Hydra needs them: ``'a=b'``."""
    plain = re.fullmatch(r"[\w/.:%+@*?| -]*", value, re.ASCII) and value == value.strip()
    if plain and not re.fullmatch(r"null|true|false|[+-]?(nan|inf|\.?\d[\d_.e+-]*)", value, re.IGNORECASE):
        return value
    escaped = re.sub(r"(\\*)('|$)", lambda end: 2 * end[1] + ("\\'" if end[2] else ""), value)
    return f"'{escaped}'"


def _unread(override: str) -> str:
    key, equals, value = override.partition("=")
    if not equals:
        return f"{override}: expected KEY=VALUE, such as task=add"
    if value.startswith(("'", '"')) or any(
        value.count(left) != value.count(right) for left, right in ("()", "[]", "{}")
    ):
        return f"{override}: expected brackets and quotes in pairs; a text that contains some goes in quotes itself"
    return f'{override}: expected "{key}={as_text(value)}", since Hydra reads some characters only in quotes'


def _options_with(key: str) -> list[str]:
    """The options of a group that have a key: ``["logger=wandb"]`` for ``logger.mode``."""
    inner = key.removeprefix("model.")
    group, _, option = (inner if inner.startswith(tuple(f"{name}." for name in RECIPE)) else key).partition(".")
    names = [file.stem for file in sorted((CONF / group).glob("*.yaml"))]
    return [f"{group}={name}" for name in names if option in dict(leaves(load_option(group, name)))]


def explain_hydra(error: Exception, config_name: str, overrides: Sequence[str]) -> str:
    """Hydra's message as one line, with a better hint for misspelt keys and options."""
    text = str(error).strip()
    if text.startswith("Config group override must be"):  # Hydra does not say which
        return f"null for a group: expected one of its options for each of {', '.join(GROUPS)}, such as task=add"
    if plugin := re.search(r"In 'hydra/launcher/(\w+)': Could not load", text):
        return f"hydra/launcher={plugin[1]}: its plugin is not installed; {PLUGINS.get(plugin[1], 'install it')}"
    if "'hydra/sweeper/sampler/" in text:
        return f"hydra/sweeper=search: its plugin is not installed; {SEARCH}"
    if "INTERVAL_SWEEP" in text:
        return "interval: expected hydra/sweeper=search, which draws values from it"
    if isinstance(error, OverrideParseException):
        return _unread(error.override)
    if ambiguous := re.match(r"Ambiguous value for argument '([^=]+)=(.*)'$", text, re.MULTILINE):
        key, value = ambiguous.groups()
        text = f"\"{key}='{value}'\""
        other = "" if key in (*GROUPS, *PRESETS) else f"; or {key}=[{value}], a list; or {text}, a text"
        return f"{key}={value}: expected -m too, for a job of each value{other}"
    if option := re.search(r"Could not find '([^']+)/([^'/]+)'", text):
        names = re.findall(r"^\t(\S+)$", text, re.MULTILINE)
        close = difflib.get_close_matches(option[2], names, n=1)
        names = sorted(names, key=lambda name: name not in close)  # the nearest one first
        return str(bad_value(option[1], option[2], f"one of {', '.join(names)}" if len(names) > 1 else names[0]))
    if misspelt := re.search(r"Could not override '([^']+)'", text):
        key = misspelt[1]
        if key in GROUPS:
            return f"{key}={{...}}: expected one of its options, the files of conf/{key}/"
        in_launcher = key.startswith("hydra.launcher.")
        known = _keys_beside(config_name, overrides)
        keys = {k for k in known if k.startswith("hydra.launcher.") == in_launcher}
        if inside := sorted(k for k in keys if k.startswith(f"{key}.")):
            return f"{key}={{...}}: names a key that does not exist; expected {' or '.join(inside)}"
        if any(k.partition(".")[0] == key.partition(".")[0] for k in keys) and (having := _options_with(key)):
            return f"{key}: no such key here; {' and '.join(having)} {'has' if len(having) == 1 else 'have'} it"
        return str(no_such_key(key, keys))
    cause = f": {first_line(error.__cause__)}" if isinstance(error.__cause__, OmegaConfBaseException) else ""
    return text.split("Config search path")[0].strip() + cause


def _keys_beside(config_name: str, overrides: Sequence[str]) -> set[str]:
    """Every key that can be typed together with these overrides."""
    option = rf"(({'|'.join(GROUPS)}|hydra/launcher)=[\w-]+|hydra\.searchpath=.*)"
    known = _composed(config_name, *(override for override in overrides if re.fullmatch(option, override)))
    return {*known, *RECIPE}  # groups that are no key of their own


@contextmanager
def explained_errors(config_name: str, overrides: Sequence[str]) -> Iterator[None]:
    """Hydra's errors within the block become a `UserError`; ``overrides`` are typed after ``python train.py``.

    Hydra must be initialised around the block, since hints use other options of the same search path.
    """
    for override in overrides:
        if override.startswith("~") and (group := override[1:].partition("=")[0]) in GROUPS:
            raise UserError(
                f"{override}: a job needs a {group}; expected one of its options, the files of conf/{group}/"
            )
    try:
        yield
    except (HydraException, ValueError) as error:
        raise UserError(explain_hydra(error, config_name, overrides)) from error


# From a composition to a job


def without_hydra(composed: DictConfig) -> tuple[DictConfig, DictConfig]:
    """Split a composed configuration into the part without Hydra's own node, and that node."""
    own = composed.copy()
    with open_dict(own):
        del own["hydra"]
    return own, composed.hydra


def checked_job(config_name: str, composed: DictConfig, hydra_node: DictConfig, typed: Sequence[str]) -> Job | ProbeJob:
    """Check a composed configuration, without its ``hydra`` node, and make a job of it.

    ``typed`` are the words of the command line; only they may set ``trust`` and ``overwrite``.
    """
    choices = hydra_node.runtime.choices
    overrides: Any = OmegaConf.to_container(hydra_node.overrides.task, resolve=False)
    for group, option in choices.items():
        if option and (".." in str(option).split("/") or str(option).startswith("/")):
            raise bad_value(group, option, f"one of the files in conf/{group}/")
    inside = any(choices.get(group) not in PLAIN for group in PRESETS)  # most only choose options and seeds
    for key, _, value in (override.partition("=") for override in overrides):
        if key in (*GROUPS, *PRESETS) and value.startswith("["):  # Hydra would take the last one
            raise bad_value(key, value, f"one option, or -m for a job of each: {key}={value.strip('[]')}")
        if key == "epochs" and value[:1] != "{":
            raise bad_value(key, value, f"{{TASK: EPOCHS}}; for this run use trainer.max_epochs={value}")
        inside = inside or "." in key or key.startswith(("+", "~"))
    defaults: Mapping[str, Any] = {}
    if inside:
        # Look for options where this composition did.
        search = tuple(word for word in hydra_node.overrides.hydra if word.startswith("hydra.searchpath="))
        known = _composed(config_name, *search, *(f"{key}={choices[key]}" for key in GROUPS if choices.get(key)))
        defaults = {key: value for key, value in known.items() if not key.startswith("hydra.")}
        _drop_sizes(composed, choices, defaults)
        _require_known_keys(composed, choices, defaults)
    _write_reals(composed, defaults)
    config = resolve(composed)
    trust_typed(config.pop("trust"), typed)
    if config.get("overwrite") and not is_typed("overwrite", typed):  # it deletes a run
        raise bad_value("overwrite", config["overwrite"], "on the command line, not in a file")
    if config_name == "probe":
        given = dict(leaves({"probe": config["probe"]}))
        return read_probe_job(config, overrides, probe_options(given, defaults) if defaults else "")
    return read_job(config, config.pop("overwrite"))


@overload
def compose(config_name: Literal["train"] = ..., overrides: Sequence[str] = ...) -> Job: ...
@overload
def compose(config_name: Literal["probe"], overrides: Sequence[str] = ...) -> ProbeJob: ...
def compose(config_name: ConfigName = "train", overrides: Sequence[str] = ()) -> Job | ProbeJob:
    """Compose a job as the command line does, with the same `UserError`; ``overrides`` are the words typed there.

    >>> job = compose("train", ["task=mul", "seed=0-4"])
    >>> job.seeds, job.task.name, job.trainer.max_epochs
    ((0, 1, 2, 3, 4), 'mul', 250)
    """
    with hydra_over_conf(), explained_errors(config_name, overrides):
        composed = hydra.compose(config_name, list(overrides), return_hydra_config=True)
        return checked_job(config_name, *without_hydra(composed), overrides)
