"""The tables of the report: ``claims.csv``, ``runs.csv`` and those of probes; and a result in words."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from ..plots.sheet import bare, estimated, interval_text, number, seeds_note, tabulate
from ..plots.style import TASKS
from ..stats import EXACTLY, clopper_pearson
from .claims import Result, tally
from .collect import AUTHORS, OURS, TASK_ALONE, Collection
from .paper import Paper

OF_CLAIM = ("id", "kind", "same_as", "section", "place", "statement", "unit")
OF_REPLICAS = ("device", "torch", "arith_erd", "commit")


def claims_table(results: Sequence[Result], found: Collection, paper: Paper, runs: Path) -> pd.DataFrame:
    """``claims.csv``: one row per claim; numbers are in the claim's unit and empty where there are none."""
    rows = []
    for result in results:
        claim, estimate = result.claim, result.estimate
        used = found.replicas.loc[result.replicas, [*OF_REPLICAS]]
        low, high = (estimate and estimate.interval) or (None, None)
        row: dict[str, Any] = {key: getattr(claim, key) for key in OF_CLAIM}
        row |= {"paper": claim.value, "paper_says": claim.text}
        row |= {"lowest": claim.accepted[0], "highest": claim.accepted[1]}
        row |= {"ours": estimate and estimate.value, "low": low, "high": high}
        row |= {"method": estimate.method if estimate else "", "n": "exact" if result.exact and result.n else result.n}
        row |= {"seeds": result.seeds, "ours_says": ours_text(result), "values": values_text(result)}
        row |= {"averaged_curve": result.averaged, "censored": result.censored, "unfinished": result.unfinished}
        row |= {"verdict": result.verdict, "verdict_before": result.before}
        row |= {"seeds_needed": result.seeds_needed, "cause": result.cause, "erratum": claim.erratum}
        row |= {"measured_on": result.source if result.n else "", "authors_weights": result.theirs}
        row |= {key: ", ".join(sorted(set(used[key].dropna()))) for key in OF_REPLICAS}
        rows.append(row | {"command": paper.command(claim.make, runs)})
    return pd.DataFrame(rows)


def replicas_table(found: Collection) -> pd.DataFrame:
    """``runs.csv``: one row per seed."""
    return found.replicas.drop(columns=["kind", "key", "trajectory"])


def summary(results: Sequence[Result]) -> str:
    """``Of 60 results: 9 reproduced, 51 not run. ... 17 of 18 settings match the paper.``"""
    own, linked = [result for result in results if result.claim.counted], [r for r in results if r.claim.same_as]
    checks = [result.verdict for result in results if result.claim.kind == "setup"]
    before = tally(result.before for result in own if result.before)
    return (
        f"Of {len(own)} results: {tally(result.verdict for result in own)}"
        f"{f' (by the rules before 2026-11-24: {before})' if before else ''}. "
        f"{len(linked)} more claims state the same facts and are not counted. "
        f"{checks.count('reproduced')} of {len(checks)} settings match the paper."
    )


def ours_text(result: Result) -> str:
    """``99.9% [99.8, 100]``, ``> 50 epochs``, ``layer 3 (4 of 5 seeds)``, or nothing."""
    return f"{estimate_text(result)} {spread_text(result)}".strip()


def estimate_text(result: Result) -> str:
    """``99.9%``, ``> 50 epochs``, ``layer 2: 3, layer 3: 2``."""
    unit = result.claim.unit
    if len(result.modes) == 1:
        return f"{result.modes[0].learning} of {result.modes[0].n} seeds learn"
    if result.votes:
        return ", ".join(f"{number(layer, unit)}: {count}" for layer, count in result.votes.items())
    return estimated(result.estimate, unit) if result.estimate else ""


def spread_text(result: Result) -> str:
    """The interval, or for votes the share of the published layer with its interval."""
    claim, estimate = result.claim, result.estimate
    if result.votes:
        hits = result.votes.get(int(claim.value), 0)
        share = interval_text(clopper_pearson(hits, sum(result.votes.values())), "accuracy")
        return f"({hits} of {result.n} for {number(claim.value, claim.unit)}, {share}%)"
    if estimate is None or estimate.method == EXACTLY:
        return ""
    if len(result.modes) == 1:
        return f"{interval_text(estimate.interval, 'accuracy')}%, with {number(result.modes[0].right, 'accuracy')}"
    return interval_text(estimate.interval, claim.unit)


def values_text(result: Result) -> str:
    """The value of every seed, ``27 37 34 >50``; of several kinds of run, one list after the other."""
    if result.exact or not result.n:
        return ""
    unit = result.claim.unit
    if len(result.samples) > 1 and not getattr(result.claim.measure, "minus_column", ""):
        unit = {"ratio": "epochs", "points": "accuracy"}.get(unit, unit)
    bounds = (sample[["low", "high"]].values.tolist() for sample in result.samples)
    texts = ([f"{'' if low == high else '>'}{bare(low, unit)}" for low, high in of] for of in bounds)
    return " / ".join(map(" ".join, texts))


def notes(result: Result) -> list[str]:
    """Whatever has to be said beside the numbers."""
    claim, behind = result.claim, result.behind
    remarks = ["set-up"] if claim.kind == "setup" else []
    if claim.kind == "result" and claim.same_as:
        remarks += [f"the same fact as {claim.same_as}, not counted"]
    if result.before not in (None, result.verdict):
        remarks += [f"by the rules before 2026-11-24: {result.before}"]
    if len(result.modes) > 1:
        remarks += ["shares of seeds that learn are compared"]
    if behind:
        by = f"{estimated(behind, 'correlation')} {interval_text(behind.interval, 'correlation')}"
        remarks += [f"the published layer is behind the best by {by}"]
    remarks += [result.cause]
    if result.averaged is not None:
        remarks += [f"epoch {result.averaged} on the averaged curve"]
    if result.theirs is not None and result.source != AUTHORS:
        remarks += [f"{number(result.theirs, claim.unit)} on the authors' weights"]
    return [*filter(None, [*remarks, claim.erratum])]


class Table(NamedTuple):
    """The part of a probe that the page shows."""

    title: str
    note: str
    cells: pd.DataFrame


def probe_tables(found: Collection) -> list[Table]:
    """A table for each probe, task and experiment: means over the seeds of one experiment only."""
    tables = []
    for name, rows in sorted(found.probes.items()):
        ours_first = rows.sort_values("source", key=lambda source: source != OURS, kind="stable")
        for (source, experiment), part in ours_first.groupby(["source", "experiment"], sort=False):
            first, ours = part.iloc[0], source == OURS
            what = experiment_text(found, str(experiment)) if ours else str(first["split"])
            title = ", ".join(filter(None, (TASKS.get(first["task"], str(first["task"])).lower(), what)))
            title += f" ({first['departs']})" if first["departs"] else ""
            note = "exact" if source == TASK_ALONE else f"the {source}"
            note = seeds_note(part["replica"].nunique()) if ours else note
            cells = tabulate(part, found.sheets[name].within(part)).astype(str)
            tables.append(Table(f"{name.replace('_', ' ')}: {title}", note, cells))
    return tables


def experiment_text(found: Collection, key: str, task: bool = False) -> str:
    """``transformer, vs_v, 50 epochs``: what sets an experiment apart, without the defaults."""
    first = found.replicas[found.replicas["key"] == key].iloc[0]
    words = [*([TASKS.get(first["task"], str(first["task"])).lower()] if task else []), first["model"]]
    words += [first[key] for key, default in (("split", "random"), ("ablation", "none")) if first[key] != default]
    words += [f"plain {what}" for what in ("prompt", "completion") if first[f"{what}_order"] == "plain"]
    alike = found.replicas[(found.replicas["kind"] == first["kind"]) & (found.replicas["departs"] == first["departs"])]
    if alike["key"].nunique() > 1:
        stop = "" if pd.isna(first["stop_at"]) else f", stop at {first['stop_at']:.0%}"
        words.append(f"{first['max_epochs']} epochs{stop}")
        as_long = alike[["max_epochs", "stop_at"]].fillna(0).eq(first[["max_epochs", "stop_at"]].fillna(0)).all(axis=1)
        words += [first["run"]] if alike["key"][as_long].nunique() > 1 else []
    text = ", ".join(map(str, words)) + (f" ({first['departs']})" if first["departs"] else "")
    return text if first["finished"] else f"{text}, still training"
