"""Run directories, any mix of them, as three kinds of tables: replicas, their metric rows, and what probes found.

A replica is one seed of one configuration. It is the same run in whatever pack it stands, so it counts once; and it is
the same run up to the epoch at which it ended, so of two that differ only in length the longer one holds the other.
"""

import hashlib
import io
import json
import math
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..errors import UserError, printable
from ..runs import METRICS, Config, Row, Run, identity, read_text, require_name
from ..seeds import parse_seeds

ACCURACIES = [name for name in METRICS if name.endswith("_acc")]
RUN_FILES = {"config.yaml", "metrics.csv", "summary.json"}
DEFAULTS = {
    "split": "random",
    "model": "transformer",
    "ablation": "none",
    "prompt_order": "reverse",
    "completion_order": "reverse",
}
OURS, GIVEN, EXACT = "our runs", "authors' weights", "task"


@dataclass
class Collection:
    """What a folder of runs holds.

    Attributes:
        replicas: a row a replica, finished or not. Those of one ``trajectory`` and seed differ only in length. The
            index is what ``replica`` means in the other tables.
        metrics: ``replica`` and the columns of ``metrics.csv``.
        probes: by name, the columns of ``rows.csv`` with ``task``, ``split``, ``source`` (our runs, the authors'
            weights, or the task alone) and ``replica``, -1 where there is none.
        problems: what could not be read, by path.
    """

    replicas: pd.DataFrame
    metrics: pd.DataFrame
    probes: dict[str, pd.DataFrame] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)

    @property
    def unfinished(self) -> pd.DataFrame:
        return self.replicas[~self.replicas["finished"]]


PROBES: dict[str, dict[str, type]] = {  # columns that the report reads
    "dataset": {"a": int, "prompt": str, "completion": str, "subset": str},
    "discontinuity": {"input_bits": int, "output_bits": int, "percent": float},
    "distance_correlation": {
        **dict.fromkeys(("stack", "level", "space", "method"), str),
        "seed": int,
        "layer": int,
        "correlation": float,
    },
    "amnesic": {
        **dict.fromkeys(("site", "concept", "method"), str),
        "seed": int,
        "iterations": int,
        "rank": float,
        "probe_error_before": float,
        "probe_error_after": float,
        **{f"seq_acc_{name}": float for name in ("before", "after", "after_unseen")},
        **{f"control_{kind}_{name}": float for kind in ("rank", "variance") for name in ("mean", "min")},
    },
    "errors": {"seed": int, "subset": str, "value_error": float, "hamming_error": float},
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
    "vocabulary": "float64",
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


def collect(root: Path, setup: Mapping[str, Any]) -> Collection:
    """Read every run under a folder.

    Args:
        root: a folder of run directories, at any depth, or a run directory.
        setup: the published settings; see `departures`.
    """
    replicas: list[Row] = []
    metrics: dict[str, pd.DataFrame] = {}
    problems: dict[str, str] = {}
    answers: list[tuple[Path, str]] = []  # of probes, with the run
    for path, is_run in _walk(root):
        name = printable(os.path.relpath(path, root) if path != root else path.resolve().name)
        if not is_run:
            answers.append((path, ""))
            continue
        try:
            rows, metrics[name] = _read_run(Run(path), name, setup, problems)
        except UserError as error:
            problems[name] = str(error).removeprefix(f"{path}: ").removeprefix(f"{path}/")
            continue
        replicas += rows
        answers.append((path / "probes", name))
    table = pd.DataFrame(replicas, columns=_columns(replicas)).astype(REPLICA)
    everywhere = table[["run", "seed", "key"]]  # also the replicas that stand elsewhere already
    order = ["finished", "epochs", "run"]
    table = table.sort_values(order, ascending=[False, False, True], kind="stable")
    table = table.drop_duplicates(["key", "seed"])
    table = table.sort_values(["run", "seed"]).reset_index(drop=True)
    ids = table.reset_index(names="replica")[["run", "seed", "key", "replica"]]
    found = Collection(table, _join_metrics(metrics, ids), {}, problems)
    _read_probes(found, answers, everywhere.merge(ids.drop(columns="run"), on=["key", "seed"]), root)
    return found


def departures(config: Config, setup: Mapping[str, Any]) -> list[str]:
    """Where a configuration is not the published one: ``["model.optimizer.lr=0.001"]``.

    ``setup["all"]`` holds settings by dotted key, and so do ``setup["model"]["nanogpt"]`` and the like, which come
    on top where that option was chosen.
    """
    wanted = dict(setup["all"])
    for group in ("task", "split", "model", "ablation"):
        wanted |= setup.get(group, {}).get(config[group]["name"], {})
    given = {key: _at(config, key) for key in wanted}
    return [f"{key}={value}" for key, value in given.items() if not _same(value, wanted[key])]


def matches(replicas: pd.DataFrame, runs: Mapping[str, Any]) -> pd.Series:
    """Which replicas have these options, those of `DEFAULTS` where nothing is said, and the published settings."""
    mask: pd.Series = (replicas["kind"] == _kind(DEFAULTS | dict(runs))) & (replicas["departs"] == "")
    return mask & (replicas["epochs"] >= runs.get("min_epochs", 0))


def _kind(options: Mapping[str, Any]) -> str:
    """``add random transformer none reverse reverse``: all that runs are chosen by, in one word to compare."""
    return " ".join(str(options[name]) for name in ("task", *DEFAULTS))


def _same(a: Any, b: Any) -> bool:
    """``1.0e-4`` and ``0.0001`` are, ``1`` and ``true`` are not."""
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def _at(config: Config, key: str) -> Any:
    node: Any = config
    for part in key.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return None
        node = node[part]
    return node


def _walk(root: Path) -> Iterator[tuple[Path, bool]]:
    """Run directories, and folders ``probes`` outside any; what lies inside a run is left to it."""
    for folder, names, files in os.walk(root):
        if RUN_FILES & set(files):
            names.clear()
            yield Path(folder), True
        else:
            names[:] = sorted(name for name in names if not name.startswith("."))
            if "probes" in names:
                names.remove("probes")
                yield Path(folder) / "probes", False


def _read_run(
    run: Run, name: str, setup: Mapping[str, Any], problems: dict[str, str]
) -> tuple[list[Row], pd.DataFrame]:
    """The replicas of one run, and its metrics. An unreadable summary is a problem, and the run unfinished."""
    config = run.config()
    try:
        seeds = parse_seeds(config["seed"])
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
        facts["kind"] = _kind(facts)
        del who["seed"]
        facts["key"] = _hash(who)
        del who["trainer"]["max_epochs"], who["trainer"]["stop_at"]
        facts["trajectory"] = _hash(who)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UserError(f"config.yaml: not that of a run ({type(error).__name__}: {error})") from error
    metrics = _read_metrics(run)
    last = metrics.groupby("seed")["epoch"].max()
    summary: Config = {}
    by_seed: dict[int, Row] = {}
    if run.finished:
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
        row = {"finished": bool(summary), "epochs": epochs, "vocabulary": _vocabulary(run.weights(seed)), **facts}
        rows.append(by_seed.get(seed, {}) | row | {"seed": seed})
    return rows, metrics


def _of_the_run(summary: Config, replicas: int) -> Row:
    """What a summary says of all its replicas; minutes are those of one, of a run that trained them together."""
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
    """An entry of a summary, refused where a number that we know of is none; null is not known."""
    if not all(value is None or isinstance(value, str | int | float) for value in row.values()):
        raise ValueError("a value of a seed is neither text nor number")
    row = {key: value for key, value in row.items() if key not in ("replica", "run")}
    known = [key for key, kind in REPLICA.items() if kind == "float64" and key in row]
    return row | {key: math.nan if row[key] is None else float(row[key]) for key in known}


def _read_metrics(run: Run) -> pd.DataFrame:
    """``metrics.csv``, without a last line that was cut off while it was written."""
    path = run.path / "metrics.csv"
    try:
        rows = pd.read_csv(io.StringIO(read_text(path)), usecols=list(METRICS))
    except (FileNotFoundError, pd.errors.EmptyDataError):
        return pd.DataFrame(columns=list(METRICS), dtype=float)
    except (OSError, ValueError) as error:
        raise UserError(f"metrics.csv: not the columns {', '.join(METRICS)}") from error
    if len(rows) and rows.iloc[-1].isna().any():
        rows = rows.iloc[:-1]
    try:
        rows = rows.astype({name: "int64" if name in ("epoch", "seed") else "float64" for name in METRICS})
    except (TypeError, ValueError, OverflowError) as error:
        raise UserError(f"metrics.csv: {error}") from error
    fine = (rows["epoch"] >= 1) & rows[ACCURACIES].ge(0).all(axis=1) & rows[ACCURACIES].le(1).all(axis=1)
    if not fine.all():
        epoch = rows.loc[~fine, "epoch"].iloc[0]
        raise UserError(f"metrics.csv: epoch {epoch} has an accuracy that is no fraction from 0 to 1")
    return rows[list(METRICS)].drop_duplicates(["epoch", "seed"], keep="last")


def _vocabulary(weights: Path) -> int | None:
    """Rows of the token embedding, from the header of a safetensors file: no tensor is read."""
    try:
        if not weights.is_file():
            return None
        with weights.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(min(length, 10_000_000)))
        rows = next(header[key]["shape"][0] for key in sorted(header) if key.endswith("embedding.weight"))
        return int(np.int32(rows))
    except (OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, StopIteration, struct.error):
        return None
    except RecursionError:  # JSON a thousand brackets deep
        return None


def _columns(rows: list[Row]) -> list[str]:
    """`REPLICA`, then whatever else summaries say of a seed, in their order."""
    return list(dict.fromkeys([*REPLICA, *(key for row in rows for key in row)]))


def _join_metrics(metrics: dict[str, pd.DataFrame], ids: pd.DataFrame) -> pd.DataFrame:
    """The metric rows of the replicas that were kept, ``replica`` first."""
    kept = set(ids["run"])
    tables = [table.assign(run=name) for name, table in metrics.items() if name in kept and len(table)]
    if not tables:
        return pd.DataFrame({name: pd.Series(dtype="float64") for name in ("replica", *METRICS)})
    joined = pd.concat(tables, ignore_index=True).merge(ids[["run", "seed", "replica"]], on=["run", "seed"])
    return joined[["replica", *METRICS]].sort_values(["replica", "epoch"], ignore_index=True)


def _read_probes(found: Collection, answers: list[tuple[Path, str]], everywhere: pd.DataFrame, root: Path) -> None:
    """Add the ``rows.csv`` of every probe. One that asked two packs about the same replica counts once."""
    tables: dict[str, list[pd.DataFrame]] = {}
    replicas = found.replicas
    for folder, run in answers:
        for path in sorted(folder.glob("*/rows.csv")):
            name, *rest = path.parent.name.split("-")
            where = printable(os.path.relpath(path, root))
            columns = PROBES.get(name, {"seed": int} if run else {})
            try:
                rows = pd.read_csv(io.StringIO(read_text(path)), dtype=columns)
                rows = rows.drop(columns="replica", errors="ignore")
            except (OSError, ValueError, OverflowError) as error:
                found.problems[where] = f"not a table of this probe ({' '.join(str(error).split())})"
                continue
            if missing := set(columns) - set(rows):
                found.problems[where] = f"no column {', '.join(sorted(missing))}"
                continue
            if run:
                ours = everywhere[everywhere["run"] == run]
                rows = rows.merge(ours[["seed", "replica"]], on="seed", how="inner")
                of_replica = replicas.loc[rows["replica"]]
                task, split = (of_replica[group].to_numpy() for group in ("task", "split"))
                rows = rows.assign(source=OURS, task=task, split=split)
            else:
                source = GIVEN if "seed" in rows else EXACT
                task, split = [*rest, "", ""][:2]
                rows = rows.assign(source=source, task=task, split=split, replica=-1)
            seen = {replica for table in tables.get(name, []) for replica in set(table["replica"])} - {-1}
            tables.setdefault(name, []).append(rows[~rows["replica"].isin(seen)])
    for name, parts in tables.items():
        found.probes[name] = pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:12]
