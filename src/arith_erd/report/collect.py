"""Run directories, any mix of them, as three kinds of tables: replicas, their metric rows, and what probes found.

A replica is one seed of one configuration. It is the same run in every pack that contains it, so it counts once. Runs
that differ only in length are the same up to the epoch at which the shorter one ended.
"""

import io
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from ..errors import UserError, printable
from ..plots.sheet import INTEGER, TEXT, Sheet, typed
from ..runs import METRICS, Row, Run
from ..system.files import read_text
from .replicas import DEFAULTS, REPLICA, departures, kind_of, read_run

RUN_FILES = {"config.yaml", "metrics.csv", "summary.json"}
OURS, GIVEN, EXACT = "our runs", "authors' weights", "task"
UNRECORDED = "settings that its folder does not record (no probe.json)"
DTYPES = {TEXT: str, INTEGER: int}


@dataclass
class Collection:
    """What folders of runs hold.

    Attributes:
        replicas: one row per replica, finished or not. Those of one ``trajectory`` and seed differ only in length. The
            index is what ``replica`` means in the other tables.
        metrics: ``replica`` and the columns of ``metrics.csv``.
        probes: by name, the columns of ``rows.csv`` with ``task``, ``split``, ``source`` (our runs, the authors'
            weights, or the task alone), ``replica``, -1 where there is none, ``departs``, where the settings are not
            the published ones, and ``experiment``, the same for rows that differ only in the seed.
        sheets: how to read them, by name.
        problems: what could not be read, by path.
    """

    replicas: pd.DataFrame
    metrics: pd.DataFrame
    probes: dict[str, pd.DataFrame] = field(default_factory=dict)
    sheets: dict[str, Sheet] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)

    @property
    def unfinished(self) -> pd.DataFrame:
        return self.replicas[~self.replicas["finished"]]


def collect(roots: Path | Sequence[Path], setup: Mapping[str, Any]) -> Collection:
    """Read every run under some folders.

    Args:
        roots: folders of run directories, at any depth, or run directories. Of a replica that is in several of them,
            the one in the first folder counts.
        setup: the published settings; see `departures`.
    """
    replicas: list[Row] = []
    metrics: dict[str, pd.DataFrame] = {}
    problems: dict[str, str] = {}
    answers: list[tuple[Path, str, str]] = []  # of probes, with the run and their name for people
    for rank, root in enumerate([roots] if isinstance(roots, Path) else roots):
        for path, is_run in _walk(root):
            name = printable(os.path.relpath(path, root) if path != root else path.resolve().name)
            if name in metrics:
                continue
            if not is_run:
                answers.append((path, "", name))
                continue
            try:
                rows, metrics[name] = read_run(Run(path), name, setup, problems)
            except UserError as error:
                problems[name] = str(error).removeprefix(f"{path}: ").removeprefix(f"{path}/")
                continue
            replicas += [row | {"rank": rank} for row in rows]
            answers.append((path / "probes", name, f"{name}/probes"))
    table = pd.DataFrame(replicas, columns=_columns(replicas)).astype(REPLICA)
    everywhere = table[["run", "seed", "key"]]  # also the replicas that another run contains already
    order = ["finished", "rank", "epochs", "run"]
    table = table.sort_values(order, ascending=[False, True, False, True], kind="stable").drop(columns="rank")
    table = table.drop_duplicates(["key", "seed"])
    table = table.sort_values(["run", "seed"]).reset_index(drop=True)
    ids = table.reset_index(names="replica")[["run", "seed", "key", "replica"]]
    found = Collection(table, _join_metrics(metrics, ids), problems=problems)
    _read_probes(found, answers, everywhere.merge(ids.drop(columns="run"), on=["key", "seed"]), setup)
    return found


def matches(replicas: pd.DataFrame, runs: Mapping[str, Any]) -> pd.Series:
    """Which replicas have these options, those of `DEFAULTS` where nothing is said, and the published settings."""
    mask: pd.Series = (replicas["kind"] == kind_of(DEFAULTS | dict(runs))) & (replicas["departs"] == "")
    return mask & (replicas["epochs"] >= runs.get("min_epochs", 0))


def _walk(root: Path) -> Iterator[tuple[Path, bool]]:
    """Run directories, and folders ``probes`` outside of any run directory."""
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
    return list(dict.fromkeys([*REPLICA, "rank", *(key for row in rows for key in row)]))


def _join_metrics(metrics: dict[str, pd.DataFrame], ids: pd.DataFrame) -> pd.DataFrame:
    """The metric rows of the replicas that were kept, ``replica`` first."""
    kept = set(ids["run"])
    tables = [table.assign(run=name) for name, table in metrics.items() if name in kept and len(table)]
    if not tables:
        return pd.DataFrame({name: pd.Series(dtype="float64") for name in ("replica", *METRICS)})
    joined = pd.concat(tables, ignore_index=True).merge(ids[["run", "seed", "replica"]], on=["run", "seed"])
    return joined[["replica", *METRICS]].sort_values(["replica", "epoch"], ignore_index=True)


def _read_probes(
    found: Collection, answers: list[tuple[Path, str, str]], everywhere: pd.DataFrame, setup: Mapping[str, Any]
) -> None:
    """Add the ``rows.csv`` of every probe. If two packs were asked about the same replica, it counts once."""
    tables: dict[str, list[pd.DataFrame]] = {}
    for folder, run, name in answers:
        for path in sorted(folder.glob("*/rows.csv")):
            where = f"{name}/{printable(path.parent.name)}/rows.csv"
            try:
                rows, sheet, recorded = _read_rows(path, setup)
                if run:
                    rows = _of_replicas(rows, everywhere[everywhere["run"] == run], found.replicas)
                else:
                    rows = _of_no_run(rows, sheet, path.parent.name)
            except (OSError, ValueError, OverflowError, KeyError, TypeError, AttributeError) as error:
                found.problems[where] = f"not the table of a probe ({' '.join(str(error).split())})"
                continue
            found.sheets[sheet.name] = sheet if recorded else found.sheets.get(sheet.name, sheet)
            seen = {replica for table in tables.get(sheet.name, []) for replica in set(table["replica"])} - {-1}
            tables.setdefault(sheet.name, []).append(rows[~rows["replica"].isin(seen)])
    for probe, parts in tables.items():
        found.probes[probe] = pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)


def _read_rows(path: Path, setup: Mapping[str, Any]) -> tuple[pd.DataFrame, Sheet, bool]:
    """The rows with ``departs``, their description, and whether the probe left one. Older versions left none."""
    text, beside = io.StringIO(read_text(path)), path.with_name("probe.json")
    if not beside.exists():
        rows = typed(pd.read_csv(text, dtype=str)).drop(columns="replica", errors="ignore")
        return rows.assign(departs=UNRECORDED), Sheet.of(path.parent.name.split("-")[0], rows, {}), False
    sheet = Sheet.from_json(read_text(beside, 2**18))
    types = {column: DTYPES.get(kind, float) for column, kind in sheet.columns.items()}
    rows = pd.read_csv(text, dtype=types)
    if lacking := sorted(set(sheet.columns) - set(rows)):
        raise ValueError(f"no column {', '.join(lacking)}")
    rows = rows[list(sheet.columns)].drop(columns="replica", errors="ignore")
    task = sheet.settings.get("task", {})
    orders = [f"task.{key}={task[key]}" for key in ("prompt_order", "completion_order") if task.get(key) == "plain"]
    return rows.assign(departs=", ".join(departures(sheet.settings, setup) + orders)), sheet, True


def _of_replicas(rows: pd.DataFrame, replicas: pd.DataFrame, known: pd.DataFrame) -> pd.DataFrame:
    """Rows about trained networks. Their task and split are those of the run, whose settings are always recorded."""
    rows = rows.assign(departs=rows["departs"].where(rows["departs"] != UNRECORDED, ""))
    rows = rows.merge(replicas[["seed", "replica"]], on="seed", how="inner")
    of_replica = known.loc[rows["replica"]]
    task, split, key = (of_replica[column].to_numpy() for column in ("task", "split", "key"))
    return rows.assign(source=OURS, task=task, split=split, experiment=key)


def _of_no_run(rows: pd.DataFrame, sheet: Sheet, folder: str) -> pd.DataFrame:
    """Rows about a task alone, or about weights that came without a run."""
    _, *rest = folder.split("-")
    named = [*rest, "", ""] if not sheet.settings else ["", ""]
    task, split = (
        str(sheet.settings[group]["name"]) if group in sheet.settings else named[place]
        for place, group in enumerate(("task", "split"))
    )
    source = GIVEN if "seed" in rows else EXACT
    return rows.assign(source=source, task=task, split=split, replica=-1, experiment=folder)
