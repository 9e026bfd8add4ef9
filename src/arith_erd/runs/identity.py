"""The part of a configuration that can change the weights: runs that agree in it are the same run, with one name."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from ..errors import bad_value
from ..seeds import format_seeds, parse_seeds

HASHED = ("task", "split", "model", "ablation", "data")
HASHED_OF_TRAINER = ("max_epochs", "stop_at", "precision")
NAME = r"[A-Za-z0-9][A-Za-z0-9_+.-]{0,63}"
NAMES = "a name of at most 64 letters, digits and _ + . -, the first a letter or a digit"
# Keys added later, each with the value of all earlier runs.
ADDED: dict[str, Any] = {
    "task.base": 2,
    "task.interleaved": False,
    "task.min_bits": None,
    "data.examples": None,
    "model.scheduler": None,
    "model.loss": {"_target_": "arith_erd.losses.CrossEntropy", "label_smoothing": 0.0},
    "model.loss.causal_model": None,
}
DEFAULT_POSITIONS = {"arith_erd.models.NanoGPT": "learned", "arith_erd.models.Transformer": "sinusoidal"}


def identity(resolved: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a resolved configuration that can change the weights, with the seeds in canonical form.

    Paths, logger, launcher, checkpointing, device and compilation are left out, and keys of `ADDED` at their first
    values: runs made before those keys keep their names.
    """
    return without_added(
        {
            **{key: resolved[key] for key in HASHED},
            "trainer": {key: resolved["trainer"][key] for key in HASHED_OF_TRAINER},
            "seed": format_seeds(parse_seeds(resolved["seed"])),
        }
    )


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration by dotted key, without keys of `ADDED` at their first values; a list is one value.

    >>> settings({"task": {"name": "add", "bits": 7, "base": 2}, "seed": [0, 1]})
    {'task.name': 'add', 'task.bits': 7, 'seed': [0, 1]}
    """
    return dict(leaves(without_added(config)))


def leaves(node: Mapping[Any, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """``{"a": {"b": 1}}`` -> ``[("a.b", 1)]``; lists and empty groups are leaves."""
    items: list[tuple[str, Any]] = []
    for k, value in node.items():
        nested = isinstance(value, dict) and value
        items += leaves(value, f"{prefix}{k}.") if nested else [(f"{prefix}{k}", value)]
    return items


def without_added(node: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A configuration as the first version would have written it: without keys of `ADDED` at their original values."""
    kept = {}
    for key, value in node.items():
        name = f"{prefix}{key}"
        own = DEFAULT_POSITIONS.get(str(node.get("_target_")))
        first = own if name == "model.net.positions" else ADDED.get(name, ...)
        if value != first:
            kept[key] = without_added(value, f"{name}.") if isinstance(value, dict) else value
    return kept


def short_hash(value: Any, digits: int = 8) -> str:
    """Hexadecimal digits of a hash of plain values, the same for mappings of another order."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:digits]


def require_name(key: str, value: object) -> str:
    """Refuse, with the key, what cannot be part of a file's name, of a page and of a plot's title."""
    if not isinstance(value, str) or not re.fullmatch(NAME, value):
        raise bad_value(key, value, NAMES)
    return value
