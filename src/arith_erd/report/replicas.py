"""One run directory as a table with one row per seed, and the settings in which it departs from the paper's."""

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from ..errors import UserError
from ..runs import METRICS, Row, Run, identity, require_name
from ..seeds import parse_seeds

ACCURACIES = [name for name in METRICS if name.endswith("_acc")]
DEFAULTS = {
    "split": "random",
    "model": "transformer",
    "ablation": "none",
    "prompt_order": "reverse",
    "completion_order": "reverse",
}
REPLICA = {  # columns that are always there, with their types
    "run": "object",
    "seed": "int64",
    "task": "object",
    "split": "object",
    "model": "object",
    "ablation": "object",
    "prompt_order": "object",
    "completion_order": "object",
    "finished": "bool",
    "epochs": "int64",
    "max_epochs": "int64",
    "stop_at": "float64",
    "departs": "object",
    "kind": "object",
    "key": "object",
    "trajectory": "object",
    "train_seq_acc": "float64",
    "val_seq_acc": "float64",
    "val_token_acc": "float64",
    "val_token_acc_autoregressive": "float64",
    "val_mae": "float64",
    "epochs_to_95": "float64",
    "params": "float64",
    "train_flops": "float64",
    "train_tokens": "float64",
    "minutes": "float64",
    "device": "object",
    "arith_erd": "object",
    "commit": "object",
    "python": "object",
    "torch": "object",
    "lightning": "object",
}


def read_run(run: Run, name: str, setup: Mapping[str, Any], problems: dict[str, str]) -> tuple[list[Row], pd.DataFrame]:
    """The replicas of one run, and its metrics. An unreadable summary is a problem, and the run unfinished."""
    config = run.config()
    try:
        seeds = parse_seeds(config["seed"])
        facts = _of_the_configuration(config, name, setup)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UserError(f"config.yaml: not that of a run ({type(error).__name__}: {error})") from error
    metrics = _metrics(run)
    last = metrics.groupby("seed")["epoch"].max()
    summary: dict[str, Any] = {}
    by_seed: dict[int, Row] = {}
    if run.has_summary:
        try:
            summary = run.summary()
            by_seed = {int(row["seed"]): _numbers(row) for row in summary["seeds"]}
            facts |= _of_the_run(summary, len(seeds))
            if set(by_seed) != set(seeds):
                raise ValueError(f"its seeds are not those of config.yaml, {config['seed']}")
            if set(last.index) != set(seeds) or (last != summary["epochs"]).any():
                raise ValueError("metrics.csv does not hold all its epochs")
        except (UserError, AttributeError, KeyError, TypeError, ValueError, ArithmeticError) as error:
            problems[name] = f"summary.json: not that of a finished run ({error})"
            summary, by_seed = {}, {}
    rows = []
    for seed in seeds:
        epochs = int(last.get(seed, 0))
        row = {"finished": bool(summary), "epochs": epochs, **facts}
        rows.append(by_seed.get(seed, {}) | row | {"seed": seed})
    return rows, metrics


def _of_the_configuration(config: Mapping[str, Any], name: str, setup: Mapping[str, Any]) -> Row:
    """What a configuration says of all its replicas."""
    who = identity(config)
    orders = {key: config["task"].get(key, "reverse") for key in ("prompt_order", "completion_order")}
    facts = {
        "run": name,
        **{key: require_name(f"{key}.name", config[key]["name"]) for key in ("task", "split", "model", "ablation")},
        **{key: require_name(f"task.{key}", value) for key, value in orders.items()},
        "max_epochs": np.int64(config["trainer"]["max_epochs"]),
        "stop_at": np.float64(config["trainer"]["stop_at"]),
        "departs": ", ".join(departures(config, setup)),
    }
    del who["seed"]
    facts |= {"kind": kind_of(facts), "key": _hash(who)}
    del who["trainer"]["max_epochs"], who["trainer"]["stop_at"]
    return facts | {"trajectory": _hash(who)}


def departures(config: Mapping[str, Any], setup: Mapping[str, Any]) -> list[str]:
    """Where a configuration is not the published one: ``["model.optimizer.lr=0.001"]``.

    ``setup["all"]`` holds settings by dotted key, and so do ``setup["model"]["nanogpt"]`` and the like, which are
    added where that option was chosen. An option that the paper does not have is named alone: ``["model=mlp"]``.
    Groups that a configuration lacks, such as the model of a question about a task, are left out.
    """
    wanted = {key: value for key, value in setup["all"].items() if key.split(".")[0] in config}
    foreign = []
    for group in ("task", "split", "model", "ablation", "probe"):
        if group not in config:
            continue
        name = config[group]["name"]
        if group != "probe" and name not in setup[group]:
            foreign.append(group)
        wanted |= setup[group].get(name) or {}
    given = {key: _at(config, key) for key in wanted if key.split(".")[0] not in foreign}
    departing = [f"{key}={value}" for key, value in given.items() if not _same(value, wanted[key])]
    return [f"{group}={config[group]['name']}" for group in foreign] + departing


def kind_of(options: Mapping[str, Any]) -> str:
    """``add random transformer none reverse reverse``: all options by which runs are chosen, as one text."""
    return " ".join(str(options[name]) for name in ("task", *DEFAULTS))


def _of_the_run(summary: Mapping[str, Any], replicas: int) -> Row:
    """What a summary says of all its replicas; minutes are per replica of a run that trained them together."""
    versions = {key: summary["versions"].get(key) for key in ("arith_erd", "commit", "python", "torch", "lightning")}
    return {
        "params": float(summary["params"]),
        "train_flops": float(summary["train_flops"]),
        "train_tokens": summary["train_flops"] / (6 * summary["params"]),
        "minutes": summary["wall_seconds"] / 60 / replicas,
        **{
            key: None if value is None else str(value)
            for key, value in {"device": summary["device"], **versions}.items()
        },
    }


def _numbers(row: Row) -> Row:
    """The numbers of one seed; null means not known, and text where a number belongs is refused."""
    if not all(value is None or isinstance(value, str | int | float) for value in row.values()):
        raise ValueError("a value of a seed is neither text nor number")
    row = {key: value for key, value in row.items() if key not in ("replica", "run")}
    known = [key for key, kind in REPLICA.items() if kind == "float64" and key in row]
    return row | {key: math.nan if row[key] is None else float(row[key]) for key in known}


def _metrics(run: Run) -> pd.DataFrame:
    """``metrics.csv`` as a table. Without validation examples, those accuracies are not known and stay NaN."""
    try:
        rows = pd.DataFrame(run.metrics(), columns=list(METRICS)).astype(dict.fromkeys(METRICS, "float64"))
        rows = rows.astype({"epoch": "int64", "seed": "int64"})
    except (TypeError, ValueError, OverflowError) as error:
        raise UserError(f"metrics.csv: {error}") from error
    known = rows.dropna(axis=1, how="all")[[name for name in ACCURACIES if name in rows.dropna(axis=1, how="all")]]
    fine = (rows["epoch"] >= 1) & known.ge(0).all(axis=1) & known.le(1).all(axis=1)
    if not fine.all():
        epoch = rows.loc[~fine, "epoch"].iloc[0]
        raise UserError(f"metrics.csv: epoch {epoch} has an accuracy that is no fraction from 0 to 1")
    return rows.drop_duplicates(["epoch", "seed"], keep="last")


def _same(a: Any, b: Any) -> bool:
    """Whether two settings are equal: ``1.0e-4`` and ``0.0001`` are, ``1`` and ``true`` are not."""
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def _at(config: Mapping[str, Any], key: str) -> Any:
    node: Any = config
    for part in key.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return None
        node = node[part]
    return node


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:12]
