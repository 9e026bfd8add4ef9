"""Read folders of runs into three kinds of tables: replicas, their metric rows, and rows of probes."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from ..errors import excerpt, file_may_be_intact
from ..plots.tables import INTEGER, TEXT
from ..runs.directory import FINISHED, METRIC_COLUMNS, Row, Run, is_run
from ..runs.identity import DEFAULT_POSITIONS, LEGACY_VALUES, NAMED_GROUPS, flat_settings, flatten
from ..runs.table import ORDER_KEYS, SUMMARY_COLUMNS, VERSIONS, describe_damage, read_replicas
from ..system.files import run_path

OUR_RUNS, AUTHORS_WEIGHTS = "our runs", "authors' weights"
OTHER_WEIGHTS, TASK_ALONE = "weights given to the probe", "task"
REPLICA_COLUMNS = {  # column -> type
    "run": "object",
    "seed": "int64",
    **dict.fromkeys((*NAMED_GROUPS, *ORDER_KEYS), "object"),
    "finished": "bool",
    **dict.fromkeys(("epochs", "max_epochs"), "int64"),
    "stop_at": "float64",
    **dict.fromkeys(("unpublished_settings", "config_hash", "trajectory_hash"), "object"),
    **dict.fromkeys(SUMMARY_COLUMNS, "float64"),
    **dict.fromkeys(("never_learnt", "device", *VERSIONS), "object"),
    **dict.fromkeys(("train_loss", "train_token_acc"), "float64"),
}
NUMBERS = [column for column, kind in REPLICA_COLUMNS.items() if kind != "object"]
_NO_METRICS = pd.DataFrame(columns=[*METRIC_COLUMNS, "run"]).astype(dict.fromkeys(METRIC_COLUMNS, "float64"))
RUN_FILES = {"config.yaml", "metrics.csv", "summary.json"}
DEFAULT_OPTIONS = {"split": "random", "model": "transformer", "ablation": "none"} | dict.fromkeys(ORDER_KEYS, "reverse")


@dataclass
class RunData:
    """The content of folders of runs.

    ``replicas`` has a row of `REPLICA_COLUMNS` for each replica, finished or not. A replica that is in several packs
    counts once. Replicas that differ only in the seed have the same ``key``. Replicas that differ only in seed and
    length have the same ``trajectory_hash``: with the same seed they agree up to the end of the shorter one.
    ``unpublished_settings`` are settings that differ from the published ones.

    ``metrics`` has ``replica``, the index of that table, and the columns of ``metrics.csv``. ``problems`` maps paths to
    read errors. ``probes`` has the rows of each probe with ``task``, ``split``, ``source``, ``replica`` (-1 without a
    replica) and ``unpublished_settings``. A row in two folders counts once, from the first. The same holds for
    ``pictures``, the pictures of runs and probes.
    """

    replicas: pd.DataFrame
    metrics: pd.DataFrame
    problems: dict[str, str] = field(default_factory=dict)
    probes: dict[str, pd.DataFrame] = field(default_factory=dict)
    pictures: dict[str, Path] = field(default_factory=dict)

    def select(self, runs: Mapping[str, Any], finished: bool = False) -> pd.DataFrame:
        """Replicas with these options (`DEFAULT_OPTIONS` for the others) and the published settings."""
        chosen = self.with_options(runs)
        chosen = chosen[(chosen["unpublished_settings"] == "") & (chosen["epochs"] >= runs.get("min_epochs", 0))]
        return chosen[chosen["finished"]] if finished else chosen

    def with_options(self, runs: Mapping[str, Any]) -> pd.DataFrame:
        """Replicas with these options, whatever their settings and length."""
        options = pd.Series(all_options(runs))
        return self.replicas[(self.replicas[options.index] == options).all(axis=1)]


def collect(roots: Sequence[Path], setup: Mapping[str, Any]) -> RunData:
    """Read every run under some folders, at any depth; for ``setup`` see `unpublished_settings`."""
    rows: list[Row] = []
    metrics: dict[str, pd.DataFrame] = {}
    folders: list[tuple[Path, str, str]] = []  # (folder of probes, name of its run or empty, name for messages)
    problems: dict[str, str] = {}
    curves: dict[str, Path] = {}
    for folder_order, root in enumerate(roots):
        for path, holds_run in _find_folders(root, problems):
            name = excerpt(os.path.relpath(path, root) if path != root else path.resolve().name)
            if name in metrics:  # of another run, or the same one once more
                name = f"{name} ({len(metrics)})"
            if not holds_run:
                folders.append((path, "", name))
                continue
            run = Run(path)
            try:
                replica_rows, epochs = read_replicas(run)
                first = replica_rows[0]
                unpublished = ", ".join(unpublished_settings(first["settings"], setup))
                curves |= {f"{name}/curves": run.curves_file} if run.curves_file.is_file() else {}
            except Exception as error:  # one bad run must not stop the report
                problems[name] = describe_damage(run, error)
                continue
            problems.pop(name, None)  # an earlier folder may have a damaged copy
            problems |= {name: first["problem"]} if first["problem"] else {}
            metrics[name] = epochs.assign(run=name)
            shared = {"run": name, "folder_order": folder_order, "finished": first["state"] == FINISHED}
            rows += [row | shared | {"unpublished_settings": unpublished} for row in replica_rows]
            folders.append((path / "probes", name, f"{name}/probes"))
    replicas, replica_ids = _build_replicas(rows)
    ids = replicas.reset_index()[["run", "seed", "replica"]]
    epochs = pd.concat([*metrics.values()] or [_NO_METRICS], ignore_index=True).merge(ids, on=["run", "seed"])
    epochs = epochs[["replica", *METRIC_COLUMNS]].sort_values(["replica", "epoch"], ignore_index=True)
    data = RunData(replicas, epochs, problems, pictures=curves)
    _add_probes(data, folders, replica_ids, setup)
    return data


def _build_replicas(rows: list[Row]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A row for each replica, from the first folder that has it, and a table ``run, seed, replica`` of all copies."""
    table = pd.DataFrame(rows, columns=[*REPLICA_COLUMNS, "folder_order"]).astype(REPLICA_COLUMNS)
    order = ["finished", "folder_order", "epochs", "run"]
    table = table.sort_values(order, ascending=[False, True, False, True], kind="stable")
    table["replica"] = table.groupby(["config_hash", "seed"], sort=False).ngroup()
    replicas = table.drop_duplicates("replica").set_index("replica").sort_values(["run", "seed"])
    return replicas.drop(columns="folder_order"), table[["run", "seed", "replica"]]


def _add_probes(
    data: RunData, folders: list[tuple[Path, str, str]], replica_ids: pd.DataFrame, setup: Mapping[str, Any]
) -> None:
    tables: dict[str, list[pd.DataFrame]] = {}
    for folder, run, name in folders:
        pictures = [*folder.glob("*/figure.png"), *folder.glob("*/explorer.html")]  # explorer.html replaces figure.png
        data.pictures = {f"{name}/{excerpt(path.parent.name)}": path for path in pictures} | data.pictures
        for path in sorted(folder.glob("*/rows.csv")):
            try:
                probe, rows = _read_probe(path, run, replica_ids, data.replicas, setup)
            except Exception as error:
                where = f"{name}/{excerpt(path.parent.name)}/rows.csv"
                what = f"not the table of a probe ({excerpt(' '.join(str(error).split()))})"
                data.problems[where] = str(error.strerror) if file_may_be_intact(error) else what
                continue
            parts = tables.setdefault(probe, [])
            ids = [column for column in rows if rows[column].dtype.kind != "f"]  # what identifies a row
            seen = {row for part in parts if {*ids} <= {*part} for row in part[ids].itertuples(index=False, name=None)}
            parts.append(rows[[row not in seen for row in rows[ids].itertuples(index=False, name=None)]])
    for probe, parts in tables.items():
        data.probes[probe] = pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)


def _find_folders(root: Path, problems: dict[str, str]) -> Iterator[tuple[Path, bool]]:
    """Find run directories (True), and folders ``probes`` outside of run directories (False)."""
    unreadable: list[OSError] = []
    for folder, names, files in os.walk(root, onerror=unreadable.append):
        path = Path(folder)
        if RUN_FILES & set(files):
            names.clear()
            yield path, True
            continue
        names[:] = sorted(name for name in names if not name.startswith("."))
        for link in (path / name for name in names if os.path.islink(path / name) and is_run(path / name)):
            yield link, True
        if "probes" in names:
            names.remove("probes")
            yield path / "probes", False
    problems |= {excerpt(os.path.relpath(error.filename, root)): str(error.strerror) for error in unreadable}


def unpublished_settings(options: Mapping[str, Any], setup: Mapping[str, Any]) -> list[str]:
    """Settings that differ from the published ones: ``["model.optimizer.lr=0.001"]``.

    ``setup["all"]`` has the published settings by dotted key. A chosen option adds its own, such as
    ``setup["model"]["nanogpt"]``. If ``setup`` lists a group without the chosen option, the result has only the option:
    ``["model=mlp"]``. A group that ``setup`` lacks may have any option. Groups that ``options`` lacks, such as the
    model for a probe of a task, are left out, and so is the class of a probe's task.
    """
    positions = DEFAULT_POSITIONS.get(str(options.get("model.net._target_")))
    defaults = dict(flatten(LEGACY_VALUES)) | {"model.net.positions": positions}
    names = {group: str(options[f"{group}.name"]) for group in (*NAMED_GROUPS, "probe") if f"{group}.name" in options}
    listed = {group: names[group] for group in names if group != "probe" and group in setup}
    unknown = {group: name for group, name in listed.items() if name not in setup[group]}
    published = dict(setup.get("all", {}))
    for group, name in names.items():
        published |= setup.get(group, {}).get(name) or {}
    groups = {key.split(".")[0] for key in options} - set(unknown)
    differing = [f"{group}={name}" for group, name in unknown.items()]
    for key, value in published.items():
        own = options.get(key, value if key.endswith("._target_") or value is None else defaults.get(key))
        if key.split(".")[0] in groups and (type(own) is bool, own) != (type(value) is bool, value):
            differing.append(f"{key}={excerpt(str(own))}")
    return differing


def all_options(runs: Mapping[str, Any]) -> dict[str, Any]:
    """All options that choose runs; options that are not given come from `DEFAULT_OPTIONS`."""
    return {name: runs.get(name, default) for name, default in {"task": None, **DEFAULT_OPTIONS}.items()}


def _read_probe(
    path: Path, run: str, replica_ids: pd.DataFrame, replicas: pd.DataFrame, setup: Mapping[str, Any]
) -> tuple[str, pd.DataFrame]:
    """A probe's name and its ``rows.csv``, with the columns of `RunData.probes`. Rows over epochs get another name."""
    root = path.parents[2] if run else path.parents[1]
    description = json.loads(run_path(path.with_name("probe.json"), root).read_text(encoding="utf-8"))
    name, columns, settings = excerpt(description["name"]), description["columns"], description.get("settings", {})
    dtypes = {column: {TEXT: str, INTEGER: int}.get(kind, float) for column, kind in columns.items()}
    rows = pd.read_csv(run_path(path, root), dtype=dtypes)
    if missing := sorted(set(columns) - set(rows)):
        raise ValueError(f"no column {', '.join(missing)}")
    rows = rows[list(columns)].drop(columns="replica", errors="ignore")
    task = settings.get("task", {})
    unpublished = unpublished_settings(flat_settings(settings), setup)
    unpublished += [f"task.{key}={task[key]}" for key in ORDER_KEYS if task.get(key) == "plain"]
    unpublished += [f"{key}={value}" for key, value in settings.get("weights", {}).items()]  # the authors' have none
    rows = rows.assign(unpublished_settings=", ".join(unpublished))
    if run:  # task and split are those of the run
        rows = rows.merge(replica_ids.loc[replica_ids["run"] == run, ["seed", "replica"]], on="seed", how="inner")
        known = replicas.loc[rows["replica"]]
        return name, rows.assign(source=OUR_RUNS, task=known["task"].to_numpy(), split=known["split"].to_numpy())
    # The rows are about a task without a network, or about weights without a run.
    named = {group: str(settings.get(group, {}).get("name", "")) for group in ("task", "split")}
    source = TASK_ALONE if "seed" not in rows else OTHER_WEIGHTS if "weights" in settings else AUTHORS_WEIGHTS
    return name, rows.assign(source=source, **named, replica=-1)
