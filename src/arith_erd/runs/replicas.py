"""Run directories, any mix of them, as tables: one row per replica, and one per replica and epoch.

A replica is one seed of one configuration. It is the same run in every pack that contains it, so it counts once. Runs
that differ only in length are the same up to the epoch at which the shorter one ended.
"""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..errors import UNREADABLE, UserError, excerpt
from ..seeds import format_seeds, parse_seeds
from .directory import Run
from .epochs import METRICS, SeedSummary
from .identity import identity, require_name, settings, short_hash

GROUPS = ("task", "split", "model", "ablation")
ORDERS = ("prompt_order", "completion_order")
VERSIONS = ("arith_erd", "commit", "python", "torch", "lightning")
NUMBERS = (
    *("train_seq_acc", "val_seq_acc", "val_token_acc", "val_token_acc_autoregressive", "val_mae", "epochs_to_95"),
    *("params", "train_flops", "train_tokens", "minutes"),
)
REPLICA = {  # columns that are always there, with their types
    "run": "object",
    "seed": "int64",
    **dict.fromkeys((*GROUPS, *ORDERS), "object"),
    "finished": "bool",
    **dict.fromkeys(("epochs", "max_epochs"), "int64"),
    "stop_at": "float64",
    **dict.fromkeys(("key", "trajectory"), "object"),
    **dict.fromkeys(NUMBERS, "float64"),
    **dict.fromkeys(("never_learnt", "device", *VERSIONS), "object"),
}
RESERVED = ("replica", "run", "rank", "settings", "departs", "kind")  # columns that tables get here and in the report
_NO_EPOCHS = pd.DataFrame(columns=list(METRICS), dtype="float64").assign(run=pd.Series(dtype="object"))
ReplicaRow = dict[str, Any]
"""A row of the table of replicas: columns of `REPLICA` and others."""
RUN_FILES = {"config.yaml", "metrics.csv", "summary.json"}


@dataclass(frozen=True)
class RunContents:
    """The content of one run directory."""

    config: dict[str, Any]
    metrics: pd.DataFrame  # the columns of ``metrics.csv``, one row for each epoch and seed
    replicas: list[ReplicaRow]  # one for each seed, without ``run``
    problem: str  # why a run with a summary is not finished


def read_contents(run: Run) -> RunContents:
    """Read a run directory; if its configuration or metrics are damaged it raises one of `UNREADABLE`, or `OSError`.

    A run is finished if the summary has all seeds of the configuration, and ``metrics.csv`` all epochs of the summary.
    The weights may be gone, as most of those in ``results/runs/``.
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


def read_replicas(
    roots: Path | Sequence[Path],
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, list[tuple[Path, str, str]], dict[str, str]]:
    """Every run under some folders, at any depth, and every folder of probes.

    Returns:
        replicas: one row for each, finished or not: `REPLICA`, ``settings``, and what else summaries say of a seed.
            ``key`` leaves out the seed, ``trajectory`` the length too. Of duplicates the first folder wins.
        metrics: ``replica``, the index of the table of replicas, and the columns of ``metrics.csv``.
        members: ``run, seed, replica``, also where another run contains the replica already.
        probes: folders with results of probes: the path, the run, empty for those outside of runs, and a name.
        problems: what could not be read, by path.
    """
    rows: list[ReplicaRow] = []
    metrics: dict[str, pd.DataFrame] = {}
    probes: list[tuple[Path, str, str]] = []
    problems: dict[str, str] = {}
    for rank, root in enumerate([roots] if isinstance(roots, Path) else roots):
        for path, is_run in _walk(root):
            name = excerpt(os.path.relpath(path, root) if path != root else path.resolve().name)
            if name in metrics:
                continue
            if not is_run:
                probes.append((path, "", name))
                continue
            try:
                contents = read_contents(Run(path))
            except (*UNREADABLE, OSError) as error:  # one damaged run ends nothing else
                problems[name] = excerpt(str(error)).removeprefix(f"{path}: ").removeprefix(f"{path}/")
                continue
            if contents.problem:
                problems[name] = contents.problem
            metrics[name] = contents.metrics
            more = {"run": name, "rank": rank, "settings": settings(contents.config)}
            rows += [row | more for row in contents.replicas]
            probes.append((path / "probes", name, f"{name}/probes"))
    columns = dict.fromkeys([*REPLICA, "rank", "settings", *(key for row in rows for key in row)])
    replicas = pd.DataFrame(rows, columns=[*columns]).astype(REPLICA)
    order = ["finished", "rank", "epochs", "run"]
    table = replicas.sort_values(order, ascending=[False, True, False, True], kind="stable").drop(columns="rank")
    table = table.drop_duplicates(["key", "seed"]).sort_values(["run", "seed"]).reset_index(drop=True)
    ids = table.reset_index(names="replica")[["run", "seed", "key", "replica"]]
    members = replicas[["run", "seed", "key"]].merge(ids.drop(columns="run"), on=["key", "seed"])
    epochs = [one.assign(run=name) for name, one in metrics.items() if len(one)] or [_NO_EPOCHS]
    joined = pd.concat(epochs, ignore_index=True).merge(ids, on=["run", "seed"])
    joined = joined[["replica", *METRICS]].sort_values(["replica", "epoch"], ignore_index=True)
    return table, joined, members, probes, problems


def _walk(root: Path) -> Iterator[tuple[Path, bool]]:
    """Run directories, and folders ``probes`` outside of any run directory."""
    for folder, names, files in os.walk(root):
        path = Path(folder)
        if RUN_FILES & set(files):
            names.clear()
            yield path, True
            continue
        names[:] = sorted(name for name in names if not name.startswith("."))
        if "probes" in names:
            names.remove("probes")
            yield path / "probes", False


def _of_the_configuration(config: Mapping[str, Any]) -> ReplicaRow:
    """What a configuration says of all its replicas."""
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
    """What a summary says of each seed; ``last`` is the last epoch in ``metrics.csv``, by seed."""
    of_run: ReplicaRow = {"device": summary["device"], **{key: summary["versions"].get(key) for key in VERSIONS}}
    of_run = {key: None if value is None else excerpt(str(value)) for key, value in of_run.items()}
    of_run |= {key: float(summary[key]) for key in ("params", "train_flops")}
    of_run["train_tokens"] = summary["train_flops"] / (6 * summary["params"])
    of_run["minutes"] = summary["wall_seconds"] / 60 / len(seeds)  # per replica of a run that trained them
    if {row["seed"] for row in summary["seeds"]} != set(seeds):
        raise ValueError(f"its seeds are not those of config.yaml, {format_seeds(seeds)}")
    if set(last.index) != set(seeds) or (last != summary["epochs"]).any():
        raise ValueError("metrics.csv does not hold all its epochs")
    return {row["seed"]: _of_a_seed(row) | of_run for row in summary["seeds"]}


def _of_a_seed(row: SeedSummary) -> ReplicaRow:
    """The numbers and texts of one seed, a list of names as one text; null means not known."""
    facts: ReplicaRow = {}
    for key, value in row.items():
        if key in NUMBERS:
            facts[key] = math.nan if value is None else float(value)
        elif key not in RESERVED:
            text = ", ".join(value) if isinstance(value, list) else value
            facts[excerpt(key)] = excerpt(text) if isinstance(text, str) else text
    return facts
