"""One run directory as a table of replicas, a row a seed, and the settings in which it departs from the paper's."""

import hashlib
import io
import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..errors import UserError
from ..runs import METRICS, Row, Run, identity, require_name
from ..seeds import parse_seeds
from ..system.files import read_text

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


def read_run(run: Run, name: str, setup: Mapping[str, Any], problems: dict[str, str]) -> tuple[list[Row], pd.DataFrame]:
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
        facts["kind"] = kind_of(facts)
        del who["seed"]
        facts["key"] = _hash(who)
        del who["trainer"]["max_epochs"], who["trainer"]["stop_at"]
        facts["trajectory"] = _hash(who)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UserError(f"config.yaml: not that of a run ({type(error).__name__}: {error})") from error
    metrics = _read_metrics(run)
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
        row = {"finished": bool(summary), "epochs": epochs, "vocabulary": _vocabulary(run.weights(seed)), **facts}
        rows.append(by_seed.get(seed, {}) | row | {"seed": seed})
    return rows, metrics


def departures(config: Mapping[str, Any], setup: Mapping[str, Any]) -> list[str]:
    """Where a configuration is not the published one: ``["model.optimizer.lr=0.001"]``.

    ``setup["all"]`` holds settings by dotted key, and so do ``setup["model"]["nanogpt"]`` and the like, which come
    on top where that option was chosen.
    """
    wanted = dict(setup["all"])
    for group in ("task", "split", "model", "ablation"):
        wanted |= setup.get(group, {}).get(config[group]["name"], {})
    given = {key: _at(config, key) for key in wanted}
    return [f"{key}={value}" for key, value in given.items() if not _same(value, wanted[key])]


def kind_of(options: Mapping[str, Any]) -> str:
    """``add random transformer none reverse reverse``: all that runs are chosen by, in one word to compare."""
    return " ".join(str(options[name]) for name in ("task", *DEFAULTS))


def _of_the_run(summary: Mapping[str, Any], replicas: int) -> Row:
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


def _same(a: Any, b: Any) -> bool:
    """``1.0e-4`` and ``0.0001`` are, ``1`` and ``true`` are not."""
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
