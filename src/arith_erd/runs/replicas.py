"""Read a run directory: its epochs, and a row for each replica, that is each seed."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ..errors import UNREADABLE, UserError, excerpt
from ..seeds import format_seeds, parse_seeds
from .directory import METRICS, Run, identity, require_name, settings, short_hash

GROUPS = ("task", "split", "model", "ablation")
ORDERS = ("prompt_order", "completion_order")
VERSIONS = ("arith_erd", "commit", "python", "torch", "lightning")
NUMBERS = (
    *("train_seq_acc", "val_seq_acc", "val_token_acc", "val_token_acc_autoregressive", "val_mae", "epochs_to_95"),
    *("params", "train_flops", "train_tokens", "minutes"),
)
OF_TRAINING = ("train_loss", "train_token_acc")
ReplicaRow = dict[str, Any]
"""The data of one seed in a run directory: columns of `report.collect.COLUMNS`."""


@dataclass(frozen=True)
class RunContents:
    """The content of one run directory."""

    config: dict[str, Any]
    metrics: pd.DataFrame  # the columns of ``metrics.csv``, one row for each epoch and seed
    replicas: list[ReplicaRow]  # one for each seed, without ``run``
    problem: str  # the reason why a run with a summary is not finished


def read_contents(run: Run) -> RunContents:
    """Read a run directory. If its configuration or metrics are damaged, it raises one of `UNREADABLE`, or `OSError`.

    A run is finished if the summary has all seeds of the configuration, and ``metrics.csv`` all epochs of the summary.
    The weights may be missing, as most are in ``results/runs/``.
    """
    config = run.config()
    try:
        seeds, facts = parse_seeds(config["seed"]), _of_the_configuration(config)
    except UNREADABLE as error:
        raise UserError(f"config.yaml: not that of a run ({type(error).__name__}: {error})") from error
    metrics = pd.DataFrame(run.metrics(), columns=list(METRICS), dtype="float64")
    metrics = metrics.astype({"epoch": "int64", "seed": "int64"}).drop_duplicates(["epoch", "seed"], keep="last")
    last = metrics.groupby("seed")["epoch"].max()
    by_seed: dict[int, ReplicaRow] = {}
    problem = ""
    if run.summary_file.exists():
        try:
            by_seed = _of_the_summary(run.summary(), seeds, last)
        except UNREADABLE as error:
            problem = f"summary.json: not that of a finished run ({excerpt(str(error))})"
    facts |= {"finished": bool(by_seed)}
    replicas = [by_seed.get(s, {}) | facts | {"seed": s, "epochs": int(last.get(s, 0))} for s in seeds]
    return RunContents(config, metrics, replicas, problem)


def _of_the_configuration(config: Mapping[str, Any]) -> ReplicaRow:
    """The columns that all replicas of a configuration share."""
    given, who = settings(config), identity(config)
    del who["seed"]
    path = who | {"trainer": {"precision": who["trainer"]["precision"]}}  # of the weights, however long
    return {
        **{group: require_name(f"{group}.name", given[f"{group}.name"]) for group in GROUPS},
        **{key: require_name(f"task.{key}", given.get(f"task.{key}", "reverse")) for key in ORDERS},
        "max_epochs": np.int64(given["trainer.max_epochs"]),
        "stop_at": np.float64(given["trainer.stop_at"]),
        "key": short_hash(who, 12),
        "trajectory": short_hash(path, 12),
    }


def _of_the_summary(summary: dict[str, Any], seeds: tuple[int, ...], last: "pd.Series[int]") -> dict[int, ReplicaRow]:
    """Seed -> columns from the summary; ``last`` is the last epoch in ``metrics.csv``, by seed."""
    of_run: ReplicaRow = {"device": summary["device"], **{key: summary["versions"].get(key) for key in VERSIONS}}
    of_run = {key: None if value is None else excerpt(str(value)) for key, value in of_run.items()}
    of_run |= {key: float(summary[key]) for key in ("params", "train_flops")}
    of_run["train_tokens"] = summary["train_flops"] / (6 * summary["params"])
    of_run["minutes"] = summary["wall_seconds"] / 60 / len(seeds)  # per replica of a run that trained them
    if {row["seed"] for row in summary["seeds"]} != set(seeds):
        raise ValueError(f"its seeds are not those of config.yaml, {format_seeds(seeds)}")
    if set(last.index) != set(seeds) or (last != summary["epochs"]).any():
        raise ValueError("metrics.csv does not hold all its epochs")
    by_seed: dict[int, ReplicaRow] = {}
    for row in summary["seeds"]:
        given = {key: row[key] for key in (*NUMBERS, *OF_TRAINING) if key in row}
        numbers = {key: math.nan if x is None else float(x) for key, x in given.items()}  # null means not known
        by_seed[row["seed"]] = numbers | {"never_learnt": excerpt(", ".join(row.get("never_learnt", ())))} | of_run
    return by_seed
