"""Names of run directories: readable parts, what departs from the defaults of ``conf/``, the seeds, and a hash.

The hash alone says whether two runs are the same run, so `find_run` looks for it: runs of earlier versions, whose names
show less, are found again.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf

from ..runs import Run, identity, require_name

_INSTALLED = Path(__file__).parents[1] / "conf"  # inside a wheel
CONF = _INSTALLED if _INSTALLED.is_dir() else Path(__file__).parents[3] / "conf"

LONGEST = 80  # characters of all departures together
ABSENT = object()
LABELS: dict[str, dict[str, str]] = {  # group -> key -> its label in a name; "" for values that speak for themselves
    "task": {"bits": "bits", "base": "base", "prompt_order": "prompt_", "completion_order": "completion_"}
    | {"seed": "table", "modulus": "mod", "min_bits": "from"},
    "split": {"fraction": "held", "seed": "split"},
    "model.net": {"d_model": "d", "num_heads": "heads", "num_layers": "layers", "dropout": "drop", "positions": ""},
    "model.optimizer": {"_target_": "", "lr": "lr", "betas": "betas", "weight_decay": "wd", "momentum": "momentum"},
    "model": {"gradient_clip": "clip"},
    "model.scheduler": {"_target_": "", "anneal_strategy": ""},
    "model.loss": {"_target_": "", "label_smoothing": "smooth", "target": "", "site": "at_"},
    "data": {"batch_size": "batch", "examples": "of"},
    "trainer": {"max_epochs": "ep", "stop_at": "stop", "precision": ""},
}
SHOWN = {f"{group}.{key}": label for group, labels in LABELS.items() for key, label in labels.items()}
OPEN = ("task", "split", "model.net", "model.optimizer", "model.scheduler", "model.loss")
"""Groups whose classes have options of their own."""


def run_name(resolved: Mapping[str, Any]) -> str:
    """``add-random-transformer-none-bits4-lr3e-4-seed0-4-1f0c2d3e``, of a resolved configuration."""
    who = identity(resolved)
    parts = [require_name(f"{group}.name", who[group]["name"]) for group in ("task", "split", "model", "ablation")]
    seeds = who["seed"].replace(",", "+")
    if len(seeds) > 40:
        seeds = f"{seeds[:30]}+more"
    return "-".join([*parts, *departures(who), f"seed{seeds}", _digest(who)])


def find_run(runs_dir: Path, resolved: Mapping[str, Any]) -> Run:
    """The run of a configuration: the directory of its name, else one that has its hash, else the one to be made."""
    run = Run(runs_dir / run_name(resolved))
    if run.path.exists():
        return run
    with suppress(OSError):  # a folder that cannot be listed is refused when something is written
        for path in sorted(runs_dir.glob(f"*-{_digest(identity(resolved))}")):
            if (path / "config.yaml").is_file() and not path.name.startswith("."):
                return Run(path)
    return run


def _digest(who: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(who, sort_keys=True).encode()).hexdigest()[:8]


def departures(who: Mapping[str, Any]) -> list[str]:
    """Where an identity departs from the defaults, as parts of a name: ``["bits4", "lr3e-4", "ep100", "no_fused"]``.

    Options without a label of their own are shown by their names. Those of our classes are not, apart from a loss's.
    """
    found = [
        f"{label}{_text(value)}"
        for key, label in SHOWN.items()
        if (value := _at(who, key)) is not ABSENT and value != default(key, who)
    ]
    for group in OPEN:
        options = _at(who, group)
        for option, value in options.items() if isinstance(options, Mapping) else ():
            key = f"{group}.{option}"
            if key in SHOWN or option in ("_target_", "name") or value == (usual := default(key, who)):
                continue
            ours = str(options.get("_target_")).startswith("arith_erd.")
            if not ours or (group == "model.loss" and usual is not ABSENT):
                found.append(_option(str(option), value))
    while sum(map(len, found)) + len(found) > LONGEST:
        found = [*found[: -1 if found[-1] != "more" else -2], "more"]
    return found


def default(key: str, who: Mapping[str, Any]) -> Any:
    """What the files of ``conf/`` say of a key, beside the other values of an identity; `ABSENT` if they do not.

    Optimizers, schedulers and losses are told apart by their classes. Where no file names the class, or all tasks,
    splits or networks share a key, the default option's value counts, but there is none for an optimizer's rate.
    """
    group, _, option = key.rpartition(".")
    if group in ("data", "trainer"):
        return _program(_at(who, "task.name"))[group][option]
    models, chosen = _options("model"), _program("")["chosen"]
    model = models.get(_at(who, "model.name"), models[chosen["model"]])
    if key == "model.gradient_clip":
        return model["gradient_clip"]
    if key == "model.scheduler._target_":
        return None
    if key in SHOWN and (ablated := _at(_options("ablation").get(_at(who, "ablation.name")), key)) is not ABSENT:
        return ablated
    folder = group.removeprefix("model.").replace("net", "model")
    first = chosen.get(folder)
    if folder == "model" and _at(who, "model.name") in models:
        first = who["model"]["name"]
    if folder == "optimizer":  # the option that a model's file chooses
        defaults = (model if option == "_target_" else models[chosen["model"]])["defaults"]
        first = next(name for one in defaults for key, name in one.items() if "/optimizer@" in key)
    files = sorted(_options(folder).items(), key=lambda file: (file[0] != first, file[0]))
    groups = [file["net"] if group == "model.net" else file for _, file in files]
    same = []
    if folder in ("optimizer", "scheduler", "loss") and option != "_target_":
        same = [one for one in groups if one.get("_target_") == _at(who, f"{group}._target_")]
    shared = (key in SHOWN and option != "lr") or group == "model.net"
    for one in (*same, *groups):
        value = one.get(option, ABSENT)
        if follows := re.fullmatch(r"\$\{([\w.]+)\}", str(value)):
            return _at(who, follows[1])
        if value is not ABSENT and (shared or one in same):
            return value
    return ABSENT


@cache
def _options(group: str) -> dict[str, dict[str, Any]]:
    return {path.stem: _load(path) for path in (CONF / group).glob("*.yaml")}


@cache
def _program(task: str) -> dict[str, Any]:
    """``train.yaml`` for a task, resolved; ``chosen`` holds the option of each group."""
    file = _load(CONF / "train.yaml")
    groups = {key: file[key] for key in ("epochs", "trainer", "data")} | {"task": {"name": task}}
    resolved: Any = OmegaConf.to_container(OmegaConf.create(groups), resolve=True)
    return resolved | {"chosen": {k: v for one in file["defaults"] if isinstance(one, dict) for k, v in one.items()}}


def _load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


# Parts of a name


def _option(label: str, value: Any) -> str:
    """``step_size5``, ``nesterov``, ``no_fused``, ``interval_step``."""
    if isinstance(value, bool):
        return _text(label if value else f"no_{label}")
    glue = "" if isinstance(value, int | float) and not label[-1:].isdigit() else "_"
    return f"{_text(label)}{glue}{_text(value)}"


def _text(value: Any) -> str:
    """``3e-4``, ``0.9+0.98``, ``none``, and for a class its own name in lower case: ``one_cycle_lr``."""
    if isinstance(value, list):
        return "+".join(map(_text, value))
    if isinstance(value, float):
        short = re.sub(r"e([+-])0*", r"e\1", f"{value:.0e}" if float(f"{value:.0e}") == value else repr(value))
        return min(repr(value).removesuffix(".0"), short, key=len)
    name = str(value).rpartition(".")[2] if re.fullmatch(r"\w+(\.\w+)*\.[A-Z]\w*", str(value)) else str(value)
    if name != str(value):
        name = re.sub(r"(?<=[a-z])(?=[A-Z][A-Za-z])", "_", name)
    return re.sub(r"[^\w.+-]", "_", name, flags=re.ASCII).lower()


def _at(node: Any, key: str) -> Any:
    for part in key.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return ABSENT
        node = node[part]
    return node
