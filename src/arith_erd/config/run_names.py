"""Names of run directories: readable parts, settings that differ from the defaults of ``conf/``, seeds, and a hash.

Two runs are the same run if their hashes are equal. `run_for_config` therefore looks for the hash, and also finds runs
of earlier versions, whose names show less.
"""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from ..bundled import CONF, load_option
from ..runs.directory import Run
from ..runs.identity import NAMED_GROUPS, flat_settings, flatten, require_name, short_hash, weights_config

MAX_SETTINGS_LENGTH = 80  # characters of all settings together
SETTING_LABELS: dict[str, dict[str, str]] = {  # group -> key -> label in a name; "" for values that need none
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
LABEL_OF_KEY: dict[str, str] = dict(flatten(SETTING_LABELS))
CLASS_PATH = r"\w+(\.\w+)*\.[A-Z]\w*"  # a run's name shows only the class
HIDDEN_KEYS = ("seed", "task._target_", "split._target_", "model.net._target_")  # the name shows them elsewhere


def run_name(resolved: Mapping[str, Any]) -> str:
    """The name of a resolved configuration's run: ``add-random-transformer-none-bits4-lr3e-4-seed0-4-1f0c2d3e``."""
    hashed = weights_config(resolved)
    parts = [require_name(f"{group}.name", hashed[group]["name"]) for group in NAMED_GROUPS]
    seeds = hashed["seed"].replace(",", "+")
    if len(seeds) > 40:
        seeds = f"{seeds[:30]}+more"
    return "-".join([*parts, *non_default_parts(hashed), f"seed{seeds}", short_hash(hashed)])


def non_default_probe_options(options: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """Options of a probe, by dotted key, that differ from its file: ``concept_value-controls5``; if long, a hash.

    Groups of options, and your own classes, are shown only in part, so a hash follows.
    """
    changed = {key: value for key, value in options.items() if key not in defaults or defaults[key] != value}
    text = "-".join(_format_setting(key.rpartition(".")[2], value) for key, value in changed.items())
    if any(key.count(".") > 1 or re.fullmatch(CLASS_PATH, str(value)) for key, value in changed.items()):
        text += f"-{short_hash(changed)}"
    return text if len(text) <= MAX_SETTINGS_LENGTH else short_hash(changed)


def run_for_config(runs_dir: Path, resolved: Mapping[str, Any]) -> Run:
    """The run of a configuration: the directory with its name, else one with its hash, else a new one."""
    run = Run(runs_dir / run_name(resolved))
    if run.path.exists():
        return run
    with suppress(OSError):  # a folder that cannot be listed is refused when something is written
        for path in sorted(runs_dir.glob(f"*-{short_hash(weights_config(resolved))}")):
            if os.path.isfile(path / "config.yaml") and not path.name.startswith("."):
                return Run(path)
    return run


def non_default_parts(hashed: Mapping[str, Any]) -> list[str]:
    """Settings of `weights_config` that differ from ``conf/``: ``["bits4", "lr3e-4", "ep100", "no_fused"]``."""
    settings, defaults = flat_settings(hashed), dict(flatten(_default_settings(hashed)))
    order = {key: index for index, key in enumerate(LABEL_OF_KEY)}
    parts = []
    for key, value in sorted(settings.items(), key=lambda item: order.get(item[0], len(order))):
        option = key.rpartition(".")[2]
        if option == "name" or key in HIDDEN_KEYS or (key in defaults and value == defaults[key]):
            continue
        label = key.split(".")[-2] if ".variables." in key else option  # for a causal variable: carry_dec.1
        labelled = key in LABEL_OF_KEY
        parts.append(f"{LABEL_OF_KEY[key]}{_format_value(value)}" if labelled else _format_setting(label, value))
    while sum(map(len, parts)) + len(parts) > MAX_SETTINGS_LENGTH:
        parts = [*parts[: -1 if parts[-1] != "more" else -2], "more"]
    return parts


def _default_settings(hashed: Mapping[str, Any]) -> dict[str, Any]:
    """The default settings in ``conf/`` for the chosen task, split, model and ablation, and for the same classes.

    Options that every task has are compared with the default task's values; likewise for splits. So the name shows each
    difference from the default command. Optimizer, schedule and loss are compared with the file of the same class, if
    there is one. A model without a file is compared with the default model.
    """
    train = load_option("train")
    chosen = {group: name for item in train["defaults"] if isinstance(item, dict) for group, name in item.items()}
    model = load_option("model", hashed["model"]["name"]) or load_option("model", chosen["model"])
    chosen["optimizer"] = next(name for item in model["defaults"] for key, name in item.items() if "/optimizer@" in key)
    defaults: dict[str, Any] = {
        "data": train["data"],
        "trainer": train["trainer"],
        "model": {"net": model["net"], "gradient_clip": model["gradient_clip"]},
    }
    for group in ("task", "split"):
        defaults[group] = load_option(group, hashed[group]["name"]) | load_option(group, chosen[group])
    for group in ("optimizer", "scheduler", "loss"):
        option = option_for_class(group, (hashed["model"].get(group) or {}).get("_target_"))
        target = load_option(group, chosen[group]).get("_target_")
        defaults["model"][group] = load_option(group, str(option)) | {"_target_": target}
    # Interpolations, such as a schedule's last epoch, refer to the given values.
    context = {**hashed, "epochs": train["epochs"], "defaults": defaults}
    merged: Any = OmegaConf.merge(context, {"defaults": load_option("ablation", hashed["ablation"]["name"])})
    resolved: Any = OmegaConf.to_container(merged.defaults, resolve=True)
    return resolved


def option_for_class(group: str, target: str | None) -> str | None:
    """The file in ``conf/GROUP/`` for a class; None if there is none."""
    names = sorted(path.stem for path in (CONF / group).glob("*.yaml"))
    files = ((name, load_option(group, name)) for name in names)
    return next((name for name, file in files if file.get("net", file).get("_target_") == target), None)


# Parts of a name


def _format_setting(label: str, value: Any) -> str:
    """A part of a name: ``step_size5``, ``nesterov``, ``no_fused``, ``interval_step``."""
    if isinstance(value, bool):
        return _format_value(label if value else f"no_{label}")
    glue = "" if isinstance(value, int | float) and not label[-1:].isdigit() else "_"
    return f"{_format_value(label)}{glue}{_format_value(value)}"


def _format_value(value: Any) -> str:
    """A value in a name: ``3e-4``, ``0.9+0.98``, ``none``; for a class its name in snake case, ``one_cycle_lr``."""
    if isinstance(value, list):
        return "+".join(map(_format_value, value))
    if isinstance(value, float):
        short = re.sub(r"e([+-])0*", r"e\1", f"{value:.0e}" if float(f"{value:.0e}") == value else repr(value))
        return min(repr(value).removesuffix(".0"), short, key=len)
    name = str(value).rpartition(".")[2] if re.fullmatch(CLASS_PATH, str(value)) else str(value)
    if name != str(value):
        name = re.sub(r"(?<=[a-z])(?=[A-Z][A-Za-z])", "_", name)
    return re.sub(r"[^\w.+-]", "_", name, flags=re.ASCII).lower()
