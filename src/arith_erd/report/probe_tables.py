"""What probes found, as tables: means over seeds with their intervals."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ..plots.style import TASKS
from ..stats import MIN_SEEDS, bootstrap_interval
from .collect import GIVEN, OURS, Collection

MAX_ROWS = 120  # of a probe's table


@dataclass(frozen=True)
class Table:
    """What the page shows of a probe."""

    title: str
    note: str
    columns: list[str]
    rows: list[list[str]]


def probe_tables(found: Collection) -> list[Table]:
    """A table for each probe and task: means over seeds with their 95% bootstrap intervals."""
    makers: dict[str, Any] = {
        "distance_correlation": _correlations,
        "amnesic": _erasures,
        "discontinuity": _jumps,
        "errors": _errors,
    }
    tables = []
    for name in [*makers, *sorted(set(found.probes) - set(makers))]:
        rows = found.probes.get(name)
        if rows is None or rows.empty:
            continue
        if name == "dataset":
            tables.append(_subsets(rows))
            continue
        ours_first = rows.sort_values("source", key=lambda source: source != OURS, kind="stable")
        for (task, source), part in ours_first.groupby(["task", "source"], sort=False):
            for model, of_model in _by_model(part, found):
                where = " on ".join(filter(None, (TASKS.get(task, task).lower(), model)))
                note = {OURS: _over(of_model), GIVEN: "the authors' weights"}.get(source, "exact")
                table = makers.get(name, _generic)(of_model)
                tables.append(Table(f"{name.replace('_', ' ')}: {where}", "; ".join((note, *table[2:])), *table[:2]))
    return tables


def _by_model(rows: pd.DataFrame, found: Collection) -> list[tuple[str, pd.DataFrame]]:
    """The rows of each kind of run apart: model, split and ablation, where those are not the paper's main ones."""
    if (rows["replica"] < 0).all():
        return [("", rows)]
    replicas = found.replicas.loc[rows["replica"]]
    kinds = replicas["model"] + replicas["split"].map(lambda s: "" if s == "random" else f", {s}")
    kinds += replicas["ablation"].map(lambda a: "" if a == "none" else f", {a}")
    kinds += replicas["departs"].map(lambda d: f" ({d})" if d else "")
    kinds += replicas["finished"].map({True: "", False: ", still training"})
    parts = [(str(kind), part) for kind, part in rows.groupby(kinds.to_numpy(), sort=True)]
    return sorted(parts, key=lambda part: not part[0].startswith("transformer"))


def _over(rows: pd.DataFrame) -> str:
    seeds = rows["replica"].nunique()
    return "1 seed" if seeds == 1 else f"mean of {seeds} seeds" + (" and 95% interval" if seeds >= MIN_SEEDS else "")


def _mean(values: pd.Series, digits: int = 2, percent: bool = False) -> str:
    """``0.89 [0.87, 0.90]``; without the brackets from too few seeds, or where all are equal."""
    scale, sign = (100, "%") if percent else (1, "")
    interval = bootstrap_interval(values.tolist())
    text = f"{scale * values.mean():.{digits}f}{sign}"
    if interval is None or interval[0] == interval[1]:
        return text
    return f"{text} [{scale * interval[0]:.{digits}f}, {scale * interval[1]:.{digits}f}]"


def _correlations(rows: pd.DataFrame) -> tuple[Any, ...]:
    rows = rows[rows["method"] == "pearson"]
    against = [("in", "token"), ("in", "value"), ("out", "token"), ("out", "value")]
    order = {"input": 0, "enc": 1, "dec": 2, "output": 3}
    sites = sorted(set(zip(rows["stack"], rows["layer"], strict=True)), key=lambda site: (order.get(site[0], 4), site))
    cells = rows.groupby(["stack", "layer", "level", "space"])["correlation"]
    groups = {key: _mean(values) for key, values in cells}
    lines = [
        [f"{stack} {layer}" if layer else f"{stack} token", *(groups.get((stack, layer, *to), "") for to in against)]
        for stack, layer in sites
    ]
    return ["", *(f"{level}put {space}" for level, space in against)], lines, "Pearson"


def _erasures(rows: pd.DataFrame) -> tuple[Any, ...]:
    columns = {
        "rank": "rank",
        "probe_error_before": "probe error",
        "probe_error_after": "after",
        "seq_acc_before": "accuracy",
        "seq_acc_after": "after",
        "seq_acc_after_unseen": "on unseen pairs",
        "control_rank_mean": "random, same rank",
        "control_rank_min": "worst",
        "control_variance_mean": "random, same variance",
        "control_variance_min": "worst",
    }
    lines = []
    for (site, concept, method), part in rows.groupby(["site", "concept", "method"], sort=False):
        of_columns = []
        for column in columns:
            if column == "rank":
                of_columns.append(f"{part[column].iloc[0]:g}")
            else:
                accuracy = not column.startswith("probe")
                of_columns.append(_mean(part[column], digits=1 if accuracy else 2, percent=accuracy))
        lines.append([site, concept.replace("_", " "), method.replace("_", " "), *of_columns])
    return ["site", "concept", "method", *columns.values()], lines[:MAX_ROWS]


def _jumps(rows: pd.DataFrame) -> tuple[Any, ...]:
    table = rows.pivot_table(index="input_bits", columns="output_bits", values="percent")
    lines = [
        [str(i), *(f"{x:.1f}" if x else "" for x in line)]
        for i, line in zip(table.index, table.to_numpy(), strict=True)
    ]
    return ["flipped", *map(str, table.columns)], lines, "percent of a row's perturbations by changed bits"


def _errors(rows: pd.DataFrame) -> tuple[Any, ...]:
    lines = []
    for (seed, subset), part in rows.groupby(["seed", "subset"]):
        means = [f"{part[column].abs().mean():.2f}" for column in ("value_error", "hamming_error")]
        lines.append([str(seed), str(subset), f"{len(part):,}", *means])
    return ["seed", "subset", "wrong answers", "mean error in value", "wrong tokens"], lines[:MAX_ROWS]


def _subsets(rows: pd.DataFrame) -> Table:
    counts = rows.groupby(["task", "split", "subset"], sort=False).agg(
        examples=("a", "size"), prompt=("prompt", "first"), completion=("completion", "first")
    )
    lines = [[*map(str, key), f"{line.examples:,}", line.prompt, line.completion] for key, line in counts.iterrows()]
    return Table("dataset", "exact", ["task", "split", "subset", "examples", "first prompt", "completion"], lines)


def _generic(rows: pd.DataFrame) -> tuple[Any, ...]:
    """A probe of which nothing is known: columns of floats are measures, the others say what was measured."""
    rows = rows.drop(columns=["replica", "source", "task", "split", "seed"], errors="ignore")
    measures = [column for column in rows if pd.api.types.is_float_dtype(rows[column])]
    keys = [column for column in rows if column not in measures]
    if not keys or not measures:
        return list(map(str, rows.columns)), rows.head(MAX_ROWS).astype(str).to_numpy().tolist()
    groups = list(rows.groupby(keys, sort=False, dropna=False))[:MAX_ROWS]
    lines = [[*map(str, np.atleast_1d(key)), *(_mean(part[m], 3) for m in measures)] for key, part in groups]
    return [*map(str, keys), *map(str, measures)], lines
