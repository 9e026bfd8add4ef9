"""Run directories, any mix of them, as three kinds of tables: replicas, their metric rows, and what probes found.

A replica is one seed of one configuration. It is the same run in whatever pack it stands, so it counts once; and it is
the same run up to the epoch at which it ended, so of two that differ only in length the longer one holds the other.
"""

import io
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from ..errors import UserError, printable
from ..runs import METRICS, Row, Run
from ..system.files import read_text
from .replicas import DEFAULTS, REPLICA, kind_of, read_run

RUN_FILES = {"config.yaml", "metrics.csv", "summary.json"}
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
            rows, metrics[name] = read_run(Run(path), name, setup, problems)
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


def matches(replicas: pd.DataFrame, runs: Mapping[str, Any]) -> pd.Series:
    """Which replicas have these options, those of `DEFAULTS` where nothing is said, and the published settings."""
    mask: pd.Series = (replicas["kind"] == kind_of(DEFAULTS | dict(runs))) & (replicas["departs"] == "")
    return mask & (replicas["epochs"] >= runs.get("min_epochs", 0))


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
