"""Translate Hydra's errors into one line that says what to type instead."""

import re
from collections.abc import Callable, Set

from hydra.errors import OverrideParseException
from omegaconf.errors import OmegaConfBaseException

from ..errors import bad_value, first_line, no_such_key

RECIPE = ("optimizer", "scheduler", "loss")  # groups that fill the key of their name in ``model``

GROUPS = ("task", "split", *RECIPE, "model", "logger", "probe")  # groups whose options define keys

PRESETS = ("ablation", "experiment", "figure", "scale")  # groups whose options only set keys

SEARCH = "pip install -e '.[optuna]'"

PLUGINS = {  # of the launchers in conf/hydra/launcher/: how to get the plugin that each needs
    "slurm": "pip install -c requirements.lock -e '.[slurm]'",
    "ray_gpus": "pip install -c requirements.ray.lock -e '.[ray]', in an environment of its own",
}


def explain_hydra(error: Exception, known: Callable[[], Set[str]]) -> str:
    """Hydra's message, with a nearer hint where one of the ``known`` keys or an option is misspelt."""
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
        return str(bad_value(option[1], option[2], " or ".join(re.findall(r"^\t(\S+)$", text, re.MULTILINE))))
    if misspelt := re.search(r"Could not override '([^']+)'", text):
        key = misspelt[1]
        if key in GROUPS:
            return f"{key}={{...}}: expected one of its options, the files of conf/{key}/"
        in_launcher = key.startswith("hydra.launcher.")
        keys = {k for k in known() if k.startswith("hydra.launcher.") == in_launcher}
        if inside := sorted(k for k in keys if k.startswith(f"{key}.")):
            return f"{key}={{...}}: names a key that does not exist; expected {' or '.join(inside)}"
        return str(no_such_key(key, keys))
    cause = f": {first_line(error.__cause__)}" if isinstance(error.__cause__, OmegaConfBaseException) else ""
    return text.split("Config search path")[0].strip() + cause


def _unread(override: str) -> str:
    key, equals, value = override.partition("=")
    if not equals:
        return f"{override}: expected KEY=VALUE, such as task=add"
    if value.startswith(("'", '"')) or any(
        value.count(left) != value.count(right) for left, right in ("()", "[]", "{}")
    ):
        return f"{override}: expected brackets and quotes in pairs; a text that contains some goes in quotes itself"
    return f'{override}: expected "{key}={as_text(value)}", since Hydra reads some characters only in quotes'


def as_text(value: str) -> str:
    """``'a=b'``: a text as Hydra reads it, with quotes if it would read something else without."""
    plain = re.fullmatch(r"[\w/.:%+@*?| -]*", value, re.ASCII) and value == value.strip()
    if plain and not re.fullmatch(r"null|true|false|[+-]?(nan|inf|\.?\d[\d_.e+-]*)", value, re.IGNORECASE):
        return value
    escaped = re.sub(r"(\\*)('|$)", lambda end: 2 * end[1] + ("\\'" if end[2] else ""), value)
    return f"'{escaped}'"
