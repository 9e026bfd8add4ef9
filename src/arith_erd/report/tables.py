"""What the report says as tables: ``claims.csv``, ``claims.md``, ``runs.csv``, and what probes found."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ..errors import printable
from ..plots.sheet import seeds_note, tabulate
from ..plots.style import TASKS
from .claims import Result, counts, missing, votes_share
from .collect import GIVEN, OURS, Collection
from .numbers import bare, interval_text, number
from .paper import Paper


def claims_table(results: Sequence[Result], found: Collection, paper: Paper, runs: Path) -> pd.DataFrame:
    """``claims.csv``: one row per claim; numbers are in the claim's unit and empty where there are none."""
    return pd.DataFrame([_row(result, found, paper, runs) for result in results])


def _row(result: Result, found: Collection, paper: Paper, runs: Path) -> dict[str, Any]:
    claim, estimate = result.claim, result.estimate
    used = found.replicas.loc[result.replicas]
    low, high = (estimate and estimate.interval) or (None, None)
    return {
        **{key: getattr(claim, key) for key in ("id", "kind", "same_as", "section", "place", "statement", "unit")},
        "paper": claim.value,
        "paper_says": claim.text,
        "lowest": claim.lowest,
        "highest": claim.highest,
        "ours": estimate and estimate.value,
        "low": low,
        "high": high,
        "method": estimate.method if estimate else "",
        "n": "exact" if result.exact and result.n else result.n,
        "seeds": result.seeds,
        "ours_says": ours_text(result),
        "values": values_text(result),
        "averaged_curve": result.averaged,
        "censored": result.censored,
        "unfinished": result.unfinished,
        "verdict": result.verdict,
        "seeds_needed": result.seeds_needed,
        "cause": result.cause,
        "erratum": claim.erratum,
        "measured_on": result.source if result.n else "",
        "authors_weights": result.theirs,
        **{key: ", ".join(sorted(set(used[key].dropna()))) for key in ("device", "torch", "arith_erd", "commit")},
        "command": paper.command(claim.make, runs),
    }


def markdown(results: Sequence[Result], paper: Paper, runs: Path) -> str:
    """``claims.md``: the claims as tables, and what to run for those without data."""
    lines = [
        "# The paper beside ours",
        "",
        f"{paper.authors}, *{paper.title}*, {paper.journal}. {summary(results)}",
        "",
        "The rules are in `docs/verdicts.md`. *Ours* is an estimate over seeds with its 95% interval: the mean with "
        "Student's t, and for epochs the median with the range of the seeds, which covers 93.75% at five seeds. Then "
        "come the values of the single seeds. A verdict takes the whole interval, and at least three seeds.",
    ]
    for section, where in paper.sections.items():
        lines += ["", f"## {section}", "", f"*{where}*", "", "| claim | paper | ours | seeds | n | verdict | notes |"]
        lines += ["| --- | --- | --- | --- | --- | --- | --- |"]
        for result in results:
            if result.claim.section == section:
                n = "exact" if result.exact and result.n else str(result.n or "")
                measured = (ours_text(result), values_text(result), n, result.verdict, "; ".join(notes(result)))
                cells = (result.claim.statement, result.claim.text, *measured)
                lines.append("| " + " | ".join(_cell(text) for text in cells) + " |")
    wanted = missing(list(results), paper, runs)
    if wanted:
        lines += ["", "## What is missing", ""]
        lines += [f"- {len(claims)} of the claims: `{command}`" for command, claims in wanted.items()]
    return "\n".join(lines) + "\n"


def summary(results: Sequence[Result]) -> str:
    """``Of 60 results, 9 reproduced, 1 differs, ...; set-up checks: 17 of 18 as published.``"""
    own, checks = counts(list(results)), counts(list(results), counted=False)
    tally = ", ".join(f"{many} {verdict}" for verdict, many in own.items())
    linked = sum(bool(result.claim.same_as) for result in results)
    return (
        f"Of {sum(own.values())} results: {tally}. {linked} more claims state the same facts and are not counted. "
        f"Set-up checks: {checks['reproduced']} of {sum(checks.values())} as published."
    )


def _cell(text: str) -> str:
    """Text in a table: no new column, no new line, no HTML."""
    return printable(text).replace("|", "\\|").replace("<", "&lt;")


def ours_text(result: Result) -> str:
    """``99.9% [99.8, 100]``, ``> 50 epochs``, ``layer 3 (4 of 5 seeds)``, or nothing."""
    return " ".join(filter(None, (estimate_text(result), spread_text(result))))


def estimate_text(result: Result) -> str:
    """``99.9%``, ``> 50 epochs``, ``layer 2: 3, layer 3: 2``."""
    claim, estimate = result.claim, result.estimate
    if estimate is None:
        return ""
    if result.votes:
        return ", ".join(f"{number(layer, claim.unit)}: {count}" for layer, count in result.votes.items())
    if estimate.value is not None:
        return number(estimate.value, claim.unit)
    return (
        f"> {number(estimate.low, claim.unit)}"
        if estimate.high == float("inf")
        else (f"{bare(estimate.low, claim.unit)} to {number(estimate.high, claim.unit)}")
    )


def spread_text(result: Result) -> str:
    """The interval, or for votes the share of the published layer with its interval."""
    estimate = result.estimate
    if result.votes:
        hits, interval = votes_share(result)
        share = interval_text(interval, "accuracy")
        return f"({hits} of {result.n} for {number(result.claim.value, result.claim.unit)}, {share}%)"
    if estimate is None or estimate.interval is None or result.exact:
        return ""
    return interval_text(estimate.interval, result.claim.unit)


def values_text(result: Result) -> str:
    """The value of every seed, ``27 37 34 32 32``; of several kinds of run, one list after the other."""
    if result.exact or not result.n:
        return ""
    unit = result.claim.unit if len(result.samples) == 1 or result.claim.unit != "points" else "accuracy"
    unit = "epochs" if result.claim.unit == "ratio" else unit

    def one(low: float, high: float) -> str:
        return bare(low, unit) if low == high else f">{bare(low, unit)}"

    return " / ".join(
        " ".join(one(low, high) for low, high in zip(sample["low"], sample["high"], strict=True))
        for sample in result.samples
    )


def notes(result: Result) -> list[str]:
    """Whatever has to be said beside the numbers."""
    claim = result.claim
    kind = f"the same fact as {claim.same_as}, not counted" if claim.same_as else ""
    kind = "set-up" if claim.kind == "setup" else kind
    averaged = f"epoch {result.averaged} on the averaged curve" if result.averaged is not None else ""
    theirs = ""
    if result.theirs is not None and result.source != GIVEN:
        theirs = f"{number(result.theirs, claim.unit)} on the authors' weights"
    return [note for note in (kind, result.cause, averaged, theirs, claim.erratum) if note]


def replicas_table(found: Collection) -> pd.DataFrame:
    """``runs.csv``: one row per seed, without the columns that only this package needs."""
    return found.replicas.drop(columns=["kind", "key", "trajectory"])


def spreadsheet(table: pd.DataFrame, float_format: str | None = None) -> str:
    """CSV without formulas: text that a spreadsheet would compute gets an apostrophe in front."""

    def inert(value: object) -> object:
        return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@")) else value

    return table.map(inert).rename(columns=inert).to_csv(index=False, float_format=float_format)


THEIRS = "the authors' weights"


@dataclass(frozen=True)
class Table:
    """What the page shows of a probe."""

    title: str
    note: str
    columns: list[str]
    rows: list[list[str]]


def probe_tables(found: Collection) -> list[Table]:
    """A table for each probe, task and experiment: means over the seeds of one experiment only."""
    tables = []
    for name in sorted(found.probes):
        rows, sheet = found.probes[name], found.sheets[name]
        ours_first = rows.sort_values("source", key=lambda source: source != OURS, kind="stable")
        for (source, experiment), part in ours_first.groupby(["source", "experiment"], sort=False):
            ours = source == OURS
            what = experiment_text(found, str(experiment)) if ours else str(part["split"].iloc[0])
            departs = part["departs"].iloc[0]
            title = ", ".join(filter(None, (_task(part), what))) + (f" ({departs})" if departs else "")
            note = seeds_note(part["replica"].nunique()) if ours else THEIRS if source == GIVEN else "exact"
            drawn = tabulate(part, sheet.within(part))
            cells = drawn.astype(str).to_numpy().tolist()
            tables.append(Table(f"{name.replace('_', ' ')}: {title}", note, list(map(str, drawn.columns)), cells))
    return tables


def _task(rows: pd.DataFrame) -> str:
    task = str(rows["task"].iloc[0])
    return TASKS.get(task, task).lower()


def experiment_text(found: Collection, key: str, task: bool = False) -> str:
    """``transformer, vs_v, 50 epochs``: what sets an experiment apart, without the defaults."""
    replicas = found.replicas[found.replicas["key"] == key]
    first = replicas.iloc[0]
    words = [TASKS.get(first["task"], first["task"]).lower()] if task else []
    words += [first["model"]]
    words += [first[key] for key, default in (("split", "random"), ("ablation", "none")) if first[key] != default]
    words += [f"plain {what}" for what in ("prompt", "completion") if first[f"{what}_order"] == "plain"]
    alike = found.replicas[(found.replicas["kind"] == first["kind"]) & (found.replicas["departs"] == first["departs"])]
    if alike["key"].nunique() > 1:
        stop = "" if pd.isna(first["stop_at"]) else f", stop at {first['stop_at']:.0%}"
        words.append(f"{first['max_epochs']} epochs{stop}")
    text = ", ".join(map(str, words)) + (f" ({first['departs']})" if first["departs"] else "")
    return text if first["finished"] else f"{text}, still training"
