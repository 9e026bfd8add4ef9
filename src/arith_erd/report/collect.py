"""The content of folders of runs, as three kinds of tables: replicas, their metric rows, and rows of probes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from ..errors import UNREADABLE, excerpt
from ..mechanism.card import Card
from ..plots.sheet import INTEGER, TEXT, Sheet
from ..runs import settings
from ..runs.replicas import GROUPS, ORDERS, read_replicas

OURS, AUTHORS, OTHER, TASK_ALONE = "our runs", "authors' weights", "weights given to the probe", "task"
DEFAULTS = {"split": "random", "model": "transformer", "ablation": "none", **dict.fromkeys(ORDERS, "reverse")}


@dataclass
class Collection:
    """The content of folders of runs.

    ``replicas``, ``metrics`` and ``problems`` are those of `read_replicas`; ``departs`` says where the settings of a
    replica are not the published ones, and ``kind`` joins the options by which claims choose runs. ``probes`` has the
    rows of each probe with ``task``, ``split``, ``source``, ``replica``, -1 if there is none, ``departs``, and
    ``experiment``, the same for rows that differ only in the seed.
    """

    replicas: pd.DataFrame
    metrics: pd.DataFrame
    problems: dict[str, str] = field(default_factory=dict)
    probes: dict[str, pd.DataFrame] = field(default_factory=dict)
    sheets: dict[str, Sheet] = field(default_factory=dict)  # how to read the rows of each probe
    cards: list[tuple[Card, Path]] = field(default_factory=list)  # of probe=mechanism, and where their figures may be
    explorers: dict[str, Path] = field(default_factory=dict)  # pages, by run

    def chosen(self, runs: Mapping[str, Any], finished: bool = False) -> pd.DataFrame:
        """Replicas with these options, those of `DEFAULTS` where nothing is said, and the published settings."""
        chosen = self.replicas[(self.replicas["departs"] == "") & (self.replicas["kind"] == kind_of(runs))]
        chosen = chosen[chosen["epochs"] >= runs.get("min_epochs", 0)]
        return chosen[chosen["finished"]] if finished else chosen


def collect(roots: Path | Sequence[Path], setup: Mapping[str, Any]) -> Collection:
    """Read every run under some folders (`read_replicas`); ``setup`` holds the published settings (`departures`)."""
    table, metrics, members, folders, problems = read_replicas(roots)
    at = table.columns.get_loc("key")
    table.insert(at, "departs", [", ".join(departures(given, setup)) for given in table.pop("settings")])
    table.insert(at + 1, "kind", [kind_of(row) for row in table.to_dict("records")])
    found = Collection(table.astype({"departs": object, "kind": object}), metrics, problems)
    tables: dict[str, list[pd.DataFrame]] = {}
    for folder, run, name in folders:
        if run and (pages := sorted(folder.glob("explorer*/explorer.html"))):
            found.explorers[run] = pages[0]
        for path in sorted(folder.glob("*/rows.csv")):
            try:
                read = _read_probe(path, run, members, found.replicas, setup)
                card = path.with_name("card.json")
                if read and card.exists():
                    found.cards.append((Card.from_json(card.read_text(encoding="utf-8")), path.with_name("figure.png")))
            except (OSError, *UNREADABLE) as error:
                where = f"{name}/{excerpt(path.parent.name)}/rows.csv"
                found.problems[where] = f"not the table of a probe ({excerpt(' '.join(str(error).split()))})"
                continue
            if read is None:
                continue
            sheet, rows = read
            found.sheets[sheet.name], parts = sheet, tables.setdefault(sheet.name, [])
            seen = {replica for part in parts for replica in set(part["replica"])} - {-1}
            parts.append(rows[~rows["replica"].isin(seen)])  # a replica in two packs counts once
    for probe, parts in tables.items():
        found.probes[probe] = pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)
    return found


def departures(given: Mapping[str, Any], setup: Mapping[str, Any]) -> list[str]:
    """Where settings are not the published ones: ``["model.optimizer.lr=0.001"]``.

    ``setup["all"]`` holds them by dotted key, and so do ``setup["model"]["nanogpt"]`` and the like, which are added
    where that option was chosen. An option that the paper does not have is named alone: ``["model=mlp"]``. Groups that
    are not given, such as the model of a question about a task, are left out.
    """
    names = {group: str(given[f"{group}.name"]) for group in (*GROUPS, "probe") if f"{group}.name" in given}
    foreign = {group: name for group, name in names.items() if group != "probe" and name not in setup[group]}
    wanted = dict(setup["all"])
    for group, name in names.items():
        wanted |= setup[group].get(name) or {}
    there = {key.split(".")[0] for key in given} - set(foreign)
    asked = {key: given.get(key) for key in wanted if key.split(".")[0] in there}
    differing = [key for key, x in asked.items() if (type(x) is bool, x) != (type(wanted[key]) is bool, wanted[key])]
    return [f"{group}={name}" for group, name in foreign.items()] + [f"{k}={excerpt(str(asked[k]))}" for k in differing]


def kind_of(options: Mapping[str, Any]) -> str:
    """``add random transformer none reverse reverse``: all options by which runs are chosen, as one text."""
    return " ".join(str((DEFAULTS | dict(options))[name]) for name in ("task", *DEFAULTS))


def _read_probe(
    path: Path, run: str, members: pd.DataFrame, replicas: pd.DataFrame, setup: Mapping[str, Any]
) -> tuple[Sheet, pd.DataFrame] | None:
    """One ``rows.csv`` with the columns that `Collection` names, and its ``probe.json``; None of a run in training."""
    sheet = Sheet.from_json(path.with_name("probe.json").read_text(encoding="utf-8"))
    dtypes = {column: {TEXT: str, INTEGER: int}.get(kind, float) for column, kind in sheet.columns.items()}
    rows = pd.read_csv(path, dtype=dtypes)
    if lacking := sorted(set(sheet.columns) - set(rows)):
        raise ValueError(f"no column {', '.join(lacking)}")
    rows = rows[list(sheet.columns)].drop(columns="replica", errors="ignore")
    if "epoch" in rows:
        return None
    task = sheet.settings.get("task", {})
    departing = departures(settings(sheet.settings), setup)
    departing += [f"task.{key}={task[key]}" for key in ORDERS if task.get(key) == "plain"]
    departing += [f"{key}={value}" for key, value in sheet.settings.get("weights", {}).items()]  # not the authors'
    rows = rows.assign(departs=", ".join(departing))
    if run:  # of trained networks, whose task and split are those of the run
        rows = rows.merge(members.loc[members["run"] == run, ["seed", "replica"]], on="seed", how="inner")
        known = replicas.loc[rows["replica"]]
        about = {"task": known["task"], "split": known["split"], "experiment": known["key"]}
        return sheet, rows.assign(source=OURS, **{name: column.to_numpy() for name, column in about.items()})
    # Of a task alone, or of weights that came without a run.
    named = {group: str(sheet.settings.get(group, {}).get("name", "")) for group in ("task", "split")}
    source = TASK_ALONE if "seed" not in rows else OTHER if "weights" in sheet.settings else AUTHORS
    return sheet, rows.assign(source=source, **named, replica=-1, experiment=path.parent.name)
