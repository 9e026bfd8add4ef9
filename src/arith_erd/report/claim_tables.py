"""Claims as people read them: ``claims.csv``, ``claims.md``, and a number with its interval."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..errors import printable
from ..stats import MIN_SEEDS
from .claims import VERDICTS, Interval, Result, missing
from .collect import EXACT, GIVEN, Collection
from .paper import Paper, number, paper_text

COUNTED = ("parameters", "operations", "tokens", "examples", "bits", "count", "minutes")


def table(results: list[Result], found: Collection, paper: Paper, runs: Path) -> pd.DataFrame:
    """``claims.csv``: a row a claim; numbers are in the claim's unit and empty where there are none."""
    return pd.DataFrame([_row(result, found, paper, runs) for result in results])


def _row(result: Result, found: Collection, paper: Paper, runs: Path) -> dict[str, Any]:
    claim = result.claim
    used = found.replicas.loc[result.values["replica"][result.values["replica"] >= 0].astype(int)]
    ours: dict[str, float | None] = {}
    for name in ("median", "mean"):
        low, high = getattr(result, f"{name}_interval") or (None, None)
        ours |= {name: getattr(result, name), f"{name}_low": low, f"{name}_high": high}
    return {
        **{key: getattr(claim, key) for key in ("id", "section", "place", "statement", "unit")},
        "paper": claim.value,
        "paper_says": paper_text(claim),
        "lowest": claim.lowest,
        "highest": claim.highest,
        "compared": claim.statistic,
        **ours,
        "n": result.n,
        "seeds": result.seeds,
        "censored": result.censored,
        "unfinished": result.unfinished,
        "verdict": result.verdict,
        "cause": result.cause,
        "erratum": claim.erratum,
        "measured_on": result.source if result.n else "",
        "authors_weights": result.theirs,
        **{key: ", ".join(sorted(set(used[key].dropna()))) for key in ("device", "torch", "arith_erd", "commit")},
        "command": paper.command(claim.make, runs),
    }


def markdown(results: list[Result], paper: Paper, runs: Path) -> str:
    """``claims.md``: the claims as tables, and what to run for those without data."""
    count = {verdict: sum(result.verdict == verdict for result in results) for verdict in VERDICTS}
    lines = [
        "# The paper beside ours",
        "",
        f"{paper.authors}, *{paper.title}*, {paper.journal}: {len(results)} claims, "
        + ", ".join(f"{many} {verdict}" for verdict, many in count.items())
        + ".",
        "",
        "Ours: mean and median over seeds, each with its 95% bootstrap interval; none from fewer than "
        f"{MIN_SEEDS} seeds. In bold the one that is compared: the mean, as in the paper, but for epochs the median.",
    ]
    for section, where in paper.sections.items():
        lines += ["", f"## {section}", "", f"*{where}*", "", "| claim | paper | mean | median | n | verdict | cause |"]
        lines += ["| --- | --- | --- | --- | --- | --- | --- |"]
        for result in results:
            if result.claim.section == section:
                notes = "; ".join(filter(None, (result.cause, theirs_text(result), result.claim.erratum)))
                n = "exact" if result.source == EXACT and result.n else str(result.n or "")
                ours = {name: ours_text(result, name) for name in ("mean", "median")}
                if ours[result.claim.statistic]:
                    ours[result.claim.statistic] = f"**{ours[result.claim.statistic]}**"
                cells = (result.claim.statement, paper_text(result.claim), *ours.values(), n)
                lines.append("| " + " | ".join(_cell(text) for text in (*cells, result.verdict, notes)) + " |")
    wanted = missing(results, paper, runs)
    if wanted:
        lines += ["", "## What is missing", ""]
        lines += [f"- {len(claims)} of the claims: `{command}`" for command, claims in wanted.items()]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Text in a table: no new column, no new line, no HTML."""
    return printable(text).replace("|", "\\|").replace("<", "&lt;")


def ours_text(result: Result, statistic: str = "") -> str:
    """Ours: ``99.9% [99.8%, 100%]``, ``> 50 epochs``, or nothing. By default of the statistic that is compared."""
    claim, statistic = result.claim, statistic or result.claim.statistic
    value: float | None = getattr(result, statistic)
    if value is not None:
        return number(value, claim.unit) + interval_text(getattr(result, f"{statistic}_interval"), claim.unit)
    if result.n and statistic == "median":
        low, high = float(np.median(result.values["low"])), float(np.median(result.values["high"]))
        return f"> {number(low, claim.unit)}" if np.isinf(high) else f"< {number(high, claim.unit)}"
    return ""


def theirs_text(result: Result) -> str:
    """What the same measurement gives on the authors' weights, where that was asked too."""
    if result.theirs is None or result.source == GIVEN:
        return ""
    return f"{number(result.theirs, result.claim.unit)} on the authors' weights"


def interval_text(interval: Interval, unit: str) -> str:
    if interval is None or (interval[0] == interval[1] and unit in COUNTED):
        return ""
    low, high = (number(end, unit).removeprefix("layer ").split(" ")[0].rstrip("%") for end in interval)
    return f" [{low}, {high}]"
