"""Names of run directories: readable parts, what departs from the defaults, the seeds, and the hash of the identity.

The hash alone says whether two runs are the same run, so `find_run` looks for it: runs of earlier versions, whose names
show less, are found again.
"""

import glob
import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .directory import Run
from .identity import identity, require_name

LONGEST = 80  # characters of all departures together


@dataclass(frozen=True)
class Shown:
    """How a key is shown where its value departs from the default."""

    label: str
    default: Any = None
    by: str = ""
    """A key whose value decides about the default, by `special`."""
    special: Mapping[Any, Any] = field(default_factory=dict)


ADAM, ADAMW = "torch.optim.Adam", "torch.optim.AdamW"
TARGET = "model.optimizer._target_"
RATES = {
    ADAM: 1e-4,
    "torch.optim.SGD": 0.1,
    "torch.optim.Adagrad": 1e-2,
    **{f"torch.optim.{name}": 1e-3 for name in ("AdamW", "RMSprop", "NAdam", "RAdam", "Adamax")},
}
SHOWN = {  # the defaults of conf/; a test compares the two
    "task.bits": Shown("bits", 7),
    "task.base": Shown("base", 2),
    "task.prompt_order": Shown("prompt_", "reverse"),
    "task.completion_order": Shown("completion_", "reverse"),
    "task.seed": Shown("table", 0),
    "task.modulus": Shown("mod", 97),
    "split.fraction": Shown("held", 0.25),
    "split.seed": Shown("split", 0),
    "model.net.d_model": Shown("d", 64, "ablation.name", {"d_model_32": 32}),
    "model.net.num_heads": Shown("heads", 8, "ablation.name", {"one_head": 1}),
    "model.net.num_layers": Shown("layers", 6),
    "model.net.dropout": Shown("drop", 0.1),
    TARGET: Shown("", ADAM, "model.name", {"nanogpt": ADAMW}),
    "model.optimizer.lr": Shown("lr", None, TARGET, RATES),
    "model.optimizer.betas": Shown("betas", [0.9, 0.98]),
    "model.optimizer.weight_decay": Shown("wd", 0.0, TARGET, {ADAMW: 0.1}),
    "model.optimizer.momentum": Shown("momentum", 0.0, TARGET, {"torch.optim.SGD": 0.9}),
    "model.gradient_clip": Shown("clip", None, "model.name", {"nanogpt": 1.0}),
    "model.scheduler._target_": Shown(""),
    "model.scheduler.anneal_strategy": Shown("", "cos"),
    "model.loss._target_": Shown("", "arith_erd.losses.CrossEntropy"),
    "model.loss.label_smoothing": Shown("smooth", 0.0),
    "model.loss.target": Shown("", "value"),
    "model.loss.site": Shown("at_", "dec.1"),
    "data.batch_size": Shown("batch", 128),
    "trainer.max_epochs": Shown("ep", 50, "task.name", {"mul": 250, "random_output": 1000}),
    "trainer.stop_at": Shown("stop"),
    "trainer.precision": Shown("", "32-true"),
}


OPEN = ("task", "split", "model.net", "model.optimizer", "model.scheduler", "model.loss")
"""Groups whose classes have options of their own."""
EPS = {"eps": 1e-8}
OPTIONS: dict[str, dict[str, Any]] = {  # the defaults of conf/ for options that are not in SHOWN; a test compares them
    ADAM: {"eps": 1e-9, "fused": True},
    ADAMW: {**EPS, "fused": True},
    "torch.optim.SGD": {"nesterov": False},
    "torch.optim.Adagrad": {"eps": 1e-10},
    "torch.optim.Adamax": EPS,
    "torch.optim.RMSprop": {**EPS, "alpha": 0.99},
    **{f"torch.optim.{name}": {**EPS, "decoupled_weight_decay": True} for name in ("NAdam", "RAdam")},
    "torch.optim.lr_scheduler.StepLR": {"interval": "epoch", "step_size": 20, "gamma": 0.5},
    "torch.optim.lr_scheduler.OneCycleLR": {
        "interval": "step",
        "pct_start": 0.05,
        "cycle_momentum": False,
        "div_factor": 25,
        "final_div_factor": 1e4,
    },
    "arith_erd.losses.CrossEntropyAndValue": {"weight": 1.0},
}
SWITCHES = dict.fromkeys(("encoder", "attention", "feed_forward", "positional_encoding"), True)  # of any network
FOLLOWING = {"model.scheduler.max_lr": "model.optimizer.lr", "model.scheduler.epochs": "trainer.max_epochs"}
"""Options whose default is the value of another key."""


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


def matching(pattern: str) -> list[Path]:
    """The run directories that a folder or a glob names, none if it names none."""
    found = [pattern] if Path(pattern).is_dir() else glob.glob(pattern)
    return sorted(Path(path) for path in found if path == pattern or Path(path, "config.yaml").is_file())


def departures(who: Mapping[str, Any]) -> list[str]:
    """Where an identity departs from the defaults, as parts of a name: ``["bits4", "lr3e-4", "ep100"]``."""
    found = []
    for key, shown in SHOWN.items():
        value = _at(who, key)
        default = shown.special.get(_at(who, shown.by), shown.default) if shown.by else shown.default
        if value is not MISSING and value != default:
            found.append(f"{shown.label}{_text(value)}")
    found += own_options(who)
    while sum(map(len, found)) + len(found) > LONGEST:
        found = [*found[: -1 if found[-1] != "more" else -2], "more"]
    return found


def own_options(who: Mapping[str, Any]) -> list[str]:
    """Options of the classes in `OPEN` that are not in `SHOWN`, as parts of a name: ``["step_size5", "no_fused"]``.

    Those of a class that conf/ does not know are all shown, since their defaults are not known here.
    """
    found = []
    for key in OPEN:
        group = _at(who, key)
        if not isinstance(group, Mapping):
            continue
        target = str(group.get("_target_"))
        ours = target.startswith("arith_erd.")
        for option, value in group.items():
            full = f"{key}.{option}"
            if full in SHOWN or option in ("_target_", "name"):
                continue
            known = {**(SWITCHES if key == "model.net" else {}), **OPTIONS.get(target, {})}
            default = _at(who, FOLLOWING[full]) if full in FOLLOWING else known.get(option, MISSING)
            if value != default and not (ours and option not in OPTIONS.get(target, {})):
                found.append(_option(str(option), value))
    return found


def _option(label: str, value: Any) -> str:
    """``step_size5``, ``nesterov``, ``no_fused``, ``interval_step``."""
    if isinstance(value, bool):
        return _text(label if value else f"no_{label}")
    glue = "" if isinstance(value, int | float) and not label[-1:].isdigit() else "_"
    return f"{_text(label)}{glue}{_text(value)}"


MISSING = object()


def _at(who: Mapping[str, Any], key: str) -> Any:
    node: Any = who
    for part in key.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return MISSING
        node = node[part]
    return node


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


def _digest(who: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(who, sort_keys=True).encode()).hexdigest()[:8]
