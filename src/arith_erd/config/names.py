"""Names of run directories: readable parts, settings that differ from the defaults of ``conf/``, seeds, and a hash.

Two runs are the same run if their hashes are equal. `find_run` therefore looks for the hash, and also finds runs of
earlier versions, whose names show less.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf

from ..bundled import CONF
from ..runs.directory import Run, identity, leaves, require_name, settings, short_hash

LONGEST = 80  # characters of all departures together
LABELS: dict[str, dict[str, str]] = {  # group -> key -> its label in a name; "" for values that need none
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
UNSHOWN = ("seed", "task._target_", "split._target_", "model.net._target_")  # said elsewhere in the name, as are names


def run_name(resolved: Mapping[str, Any]) -> str:
    """The name of a resolved configuration's run: ``add-random-transformer-none-bits4-lr3e-4-seed0-4-1f0c2d3e``."""
    who = identity(resolved)
    parts = [require_name(f"{group}.name", who[group]["name"]) for group in ("task", "split", "model", "ablation")]
    seeds = who["seed"].replace(",", "+")
    if len(seeds) > 40:
        seeds = f"{seeds[:30]}+more"
    return "-".join([*parts, *non_default_parts(who), f"seed{seeds}", short_hash(who)])


def probe_options(given: Mapping[str, Any], usual: Mapping[str, Any]) -> str:
    """Options of a probe, by dotted key, that differ from its file: ``concept_value-controls5``; if long, a hash."""
    departing = {key: value for key, value in given.items() if key not in usual or usual[key] != value}
    text = "-".join(_part(key.rpartition(".")[2], value) for key, value in departing.items())
    return text if len(text) <= LONGEST else short_hash(departing)


def find_run(runs_dir: Path, resolved: Mapping[str, Any]) -> Run:
    """The run of a configuration: the directory with its name, else one with its hash, else a new one."""
    run = Run(runs_dir / run_name(resolved))
    if run.path.exists():
        return run
    with suppress(OSError):  # a folder that cannot be listed is refused when something is written
        for path in sorted(runs_dir.glob(f"*-{short_hash(identity(resolved))}")):
            if (path / "config.yaml").is_file() and not path.name.startswith("."):
                return Run(path)
    return run


def non_default_parts(who: Mapping[str, Any]) -> list[str]:
    """Settings of an identity that differ from ``conf/``: ``["bits4", "lr3e-4", "ep100", "no_fused"]``."""
    given, usual = settings(who), dict(leaves(_usual(who)))
    parts = []
    for key in sorted(given, key=lambda key: list(SHOWN).index(key) if key in SHOWN else len(SHOWN)):
        option = key.rpartition(".")[2]
        if option == "name" or key in UNSHOWN or (key in usual and given[key] == usual[key]):
            continue
        label = key.split(".")[-2] if ".variables." in key else option  # of a variable: carry_dec.1
        parts.append(f"{SHOWN[key]}{_text(given[key])}" if key in SHOWN else _part(label, given[key]))
    while sum(map(len, parts)) + len(parts) > LONGEST:
        parts = [*parts[: -1 if parts[-1] != "more" else -2], "more"]
    return parts


def _usual(who: Mapping[str, Any]) -> dict[str, Any]:
    """The default settings in ``conf/`` for the chosen task, split, model and ablation, and for the same classes.

    An option that tasks or splits share has the value of the default task or split. A model without a file has the
    defaults of the default model. An optimizer, schedule or loss whose class is in no file has no defaults.
    """
    train = load_option("train")
    chosen = {group: name for one in train["defaults"] if isinstance(one, dict) for group, name in one.items()}
    model = load_option("model", who["model"]["name"]) or load_option("model", chosen["model"])
    chosen["optimizer"] = next(name for one in model["defaults"] for key, name in one.items() if "/optimizer@" in key)
    recipe = {}
    for group in ("optimizer", "scheduler", "loss"):
        own = option_of(group, (who["model"].get(group) or {}).get("_target_"))
        recipe[group] = load_option(group, str(own)) | {"_target_": load_option(group, chosen[group]).get("_target_")}
    usual = {
        **{
            group: load_option(group, who[group]["name"]) | load_option(group, chosen[group])
            for group in ("task", "split")
        },
        **{group: train[group] for group in ("data", "trainer")},
        "model": {"net": model["net"], "gradient_clip": model["gradient_clip"], **recipe},
    }
    # Interpolations, such as the last epoch of a schedule, refer to values that were given.
    context = {**who, "epochs": train["epochs"], "usual": usual}
    whole: Any = OmegaConf.merge(context, {"usual": load_option("ablation", who["ablation"]["name"])})
    resolved: Any = OmegaConf.to_container(whole.usual, resolve=True)
    return resolved


@cache
def load_option(*option: str) -> dict[str, Any]:
    """The content of a file in ``conf/``; empty if there is no such file."""
    path = CONF / f"{'/'.join(option)}.yaml"
    return yaml.safe_load(path.read_text(encoding="utf-8")) or {} if path.is_file() else {}


def option_of(group: str, target: str | None) -> str | None:
    """The file in ``conf/GROUP/`` for a class; None if there is none."""
    names = sorted(path.stem for path in (CONF / group).glob("*.yaml"))
    files = ((name, load_option(group, name)) for name in names)
    return next((name for name, file in files if file.get("net", file).get("_target_") == target), None)


# Parts of a name


def _part(label: str, value: Any) -> str:
    """A part of a name: ``step_size5``, ``nesterov``, ``no_fused``, ``interval_step``."""
    if isinstance(value, bool):
        return _text(label if value else f"no_{label}")
    glue = "" if isinstance(value, int | float) and not label[-1:].isdigit() else "_"
    return f"{_text(label)}{glue}{_text(value)}"


def _text(value: Any) -> str:
    """A value in a name: ``3e-4``, ``0.9+0.98``, ``none``; for a class its name in snake case, ``one_cycle_lr``."""
    if isinstance(value, list):
        return "+".join(map(_text, value))
    if isinstance(value, float):
        short = re.sub(r"e([+-])0*", r"e\1", f"{value:.0e}" if float(f"{value:.0e}") == value else repr(value))
        return min(repr(value).removesuffix(".0"), short, key=len)
    name = str(value).rpartition(".")[2] if re.fullmatch(r"\w+(\.\w+)*\.[A-Z]\w*", str(value)) else str(value)
    if name != str(value):
        name = re.sub(r"(?<=[a-z])(?=[A-Z][A-Za-z])", "_", name)
    return re.sub(r"[^\w.+-]", "_", name, flags=re.ASCII).lower()
