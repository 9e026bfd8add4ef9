"""The identity of a run: the settings that can change its weights, as plain values, and the hash in its name.

`config.run_names` makes the name itself.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from ..errors import bad_value
from ..seeds import format_ranges, parse_seeds

NAMED_GROUPS = ("task", "split", "model", "ablation")
HASHED_GROUPS = (*NAMED_GROUPS, "data")
HASHED_TRAINER_KEYS = ("max_epochs", "stop_at", "precision")
NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9_+.-]{0,63}"
NAME_DESCRIPTION = "a name of at most 64 letters, digits and _ + . -, the first a letter or a digit"
# Keys added later, each with the value that all earlier runs had.
LEGACY_VALUES: dict[str, Any] = {
    "task.base": 2,
    "task.interleaved": False,
    "task.min_bits": None,
    "data.examples": None,
    "model.scheduler": None,
    "model.loss": {"_target_": "arith_erd.losses.CrossEntropy", "label_smoothing": 0.0},
    "model.loss.causal_model": None,
}
DEFAULT_POSITIONS = {"arith_erd.models.NanoGPT": "learned", "arith_erd.models.Transformer": "sinusoidal"}


def weights_config(resolved: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a resolved configuration that can change the weights, with the seeds in canonical form.

    Two runs are the same run if this function returns equal values for them. It leaves out paths, logger, launcher,
    checkpointing, device and compilation. It also leaves out keys of `LEGACY_VALUES` with the value there, so that runs
    from before such a key keep their names.
    """
    return without_legacy_values(
        {
            **{key: resolved[key] for key in HASHED_GROUPS},
            "trainer": {key: resolved["trainer"][key] for key in HASHED_TRAINER_KEYS},
            "seed": format_ranges(parse_seeds(resolved["seed"])),
        }
    )


def flat_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration by dotted key, without keys that have their value of `LEGACY_VALUES`; a list is one value.

    >>> flat_settings({"task": {"name": "add", "bits": 7, "base": 2}, "seed": [0, 1]})
    {'task.name': 'add', 'task.bits': 7, 'seed': [0, 1]}
    """
    return dict(flatten(without_legacy_values(config)))


def identity_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Of `flat_settings` those that can change the weights, with `LEGACY_VALUES`. Lists become text, for grouping."""
    positions = DEFAULT_POSITIONS.get(settings["model.net._target_"])
    first = dict(flatten(LEGACY_VALUES)) | {"model.net.positions": positions}
    hashed = (*(f"{group}." for group in HASHED_GROUPS), *(f"trainer.{key}" for key in HASHED_TRAINER_KEYS))
    return {
        key: str(value) if isinstance(value, list | dict) else value
        for key, value in {**first, **settings}.items()
        if key.startswith(hashed) and not key.endswith("_target_")
    }


def flatten(node: Mapping[Any, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Dotted keys and values: ``{"a": {"b": 1}}`` -> ``[("a.b", 1)]``; lists and empty groups are leaves."""
    items: list[tuple[str, Any]] = []
    for key, value in node.items():
        nested = isinstance(value, dict) and value
        items += flatten(value, f"{prefix}{key}.") if nested else [(f"{prefix}{key}", value)]
    return items


def without_legacy_values(node: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A configuration without keys that have their value of `LEGACY_VALUES`, as the first version wrote it."""
    result = {}
    for key, value in node.items():
        name = f"{prefix}{key}"
        positions = DEFAULT_POSITIONS.get(str(node.get("_target_")))
        first = positions if name == "model.net.positions" else LEGACY_VALUES.get(name, ...)
        if value != first:
            result[key] = without_legacy_values(value, f"{name}.") if isinstance(value, dict) else value
    return result


def short_hash(value: Any, digits: int = 8) -> str:
    """Hexadecimal digits of a hash of plain values; the order of mappings does not matter."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:digits]


def require_name(key: str, value: object) -> str:
    """Raise a `UserError` unless ``value`` can be part of a file's name, of a page and of a plot's title."""
    if not isinstance(value, str) or not re.fullmatch(NAME_PATTERN, value):
        raise bad_value(key, value, NAME_DESCRIPTION)
    return value
