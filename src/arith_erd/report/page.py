"""One self-contained HTML page: claims, figures, tables, runs. No network, no script but its own."""

import base64
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from .. import __version__
from ..plots.style import TASKS
from ..seeds import format_seeds
from ..stats import MIN_SEEDS
from .claim_tables import ours_text, theirs_text
from .claims import VERDICTS, Result, missing
from .collect import EXACT, GIVEN, Collection
from .paper import Claim, Paper, number, paper_text
from .paper_ablation import ABLATIONS
from .paper_figures import PaperFigure
from .probe_tables import probe_tables

WIDTH, HEIGHT = 120, 18  # of a strip, in its own units


def render(
    paper: Paper,
    found: Collection,
    results: Sequence[Result],
    figures: Mapping[str, tuple[PaperFigure, str | None]],
    runs: Path,
) -> str:
    """The page as text.

    Args:
        figures: by name, what it is and its SVG, None where there is none yet.
        runs: the folder that was read, for the commands.
    """
    loader = FileSystemLoader(Path(__file__).parent)
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["subscripts"] = _subscripts
    by_section: dict[str, list[dict[str, Any]]] = {section: [] for section in paper.sections}
    for result in results:
        by_section[result.claim.section].append(_claim(result))
    return environment.get_template("page.html.j2").render(
        paper=paper,
        counts={verdict: sum(result.verdict == verdict for result in results) for verdict in VERDICTS},
        total=len(results),
        sections=by_section,
        figures=[_figure(figure, svg, results, paper, runs) for figure, svg in figures.values()],
        ablations=_ablations({result.claim.id: result for result in results}),
        tables=probe_tables(found),
        missing=missing(list(results), paper, runs),
        runs=_runs(found),
        replicas=len(found.replicas),
        seeds=int(found.replicas["finished"].sum()),
        unfinished=_unfinished(found),
        problems=found.problems,
        settings=_settings(paper.setup),
        versions=_versions(found),
        folder=str(runs),
        min_seeds=MIN_SEEDS,
        version=__version__,
    )


def _claim(result: Result) -> dict[str, Any]:
    claim = result.claim
    return {
        "id": claim.id,
        "statement": claim.statement,
        "place": claim.place,
        "paper": paper_text(claim),
        "ours": _big(result),
        "more": _small(result),
        "verdict": result.verdict,
        "notes": [note for note in (result.cause, theirs_text(result), claim.erratum) if note],
        "strip": _strip(result),
    }


def _big(result: Result) -> str:
    return ours_text(result).split(" [")[0]


def _small(result: Result) -> list[str]:
    """The interval, the statistic that is not compared where it says something else, and how many seeds."""
    if result.source == EXACT or not result.n:
        return ["exact"] if result.n else []
    other = "mean" if result.claim.statistic == "median" else "median"
    interval, also = ours_text(result).partition(" [")[2], ours_text(result, other)
    seeds = "the authors' weights" if result.source == GIVEN else f"{result.n} seed{'s' if result.n != 1 else ''}"
    lines = [f"[{interval}, {seeds}" if interval else seeds]
    if also and also != ours_text(result):
        lines.append(f"{other} {also}")
    return lines


def _subscripts(text: str) -> Markup:
    """``VS_t`` with its index below the line."""
    return Markup(re.sub(r"VS_([tv])", r"VS<sub>\1</sub>", str(escape(text))))


def _strip(result: Result) -> dict[str, Any] | None:
    """Where ours lies beside the paper's number: the tolerance as a bar, the paper a tick, ours a dot and a line."""
    claim, estimate = result.claim, result.estimate
    if estimate is None or claim.lowest == claim.highest == estimate:
        return None
    interval = result.interval or (estimate, estimate)
    finite = [end for end in (claim.lowest, claim.highest) if np.isfinite(end)]
    reach = max(abs(end - claim.value) for end in (*finite, *interval, estimate)) * 1.25
    reach = reach or max(abs(claim.value), 1.0)

    def place(value: float) -> float:
        share = 0.5 + 0.5 * min(1.0, max(-1.0, (value - claim.value) / reach))
        return round(4 + (WIDTH - 8) * share, 2)

    low, high = (place(end) for end in (claim.lowest, claim.highest))
    return {
        "low": low,
        "width": max(round(high - low, 2), 1.0),
        "paper": place(claim.value),
        "ours": place(estimate),
        "interval": [place(end) for end in interval],
        "says": f"the paper {paper_text(claim)}, ours {ours_text(result)}",
    }


def _figure(
    figure: PaperFigure, svg: str | None, results: Sequence[Result], paper: Paper, runs: Path
) -> dict[str, Any]:
    about = [result for result in results if result.claim.figure == figure.name]
    return {
        "name": figure.name,
        "title": figure.title,
        "short": figure.title.split(":")[0],
        "caption": figure.caption,
        "image": None if svg is None else "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode(),
        "tally": ", ".join(
            f"{count} {verdict}" for verdict in VERDICTS if (count := sum(r.verdict == verdict for r in about))
        ),
        "commands": [paper.command(make, runs) for make in figure.make],
    }


def _ablations(results: Mapping[str, Result]) -> list[dict[str, Any]]:
    """The paper's table 3 with ours beside it, a row an ablation."""
    rows = []
    for name, label in ABLATIONS.items():
        cells = [results[f"table3-{task}-{name}"] for task in TASKS]
        rows.append(
            {
                "label": label,
                "cells": [{"paper": _bare(r.claim), "ours": _in_cell(r), "verdict": r.verdict} for r in cells],
            }
        )
    return rows


def _bare(claim: Claim) -> str:
    return paper_text(claim).removesuffix(" epochs")


def _in_cell(result: Result) -> str:
    return ours_text(result).replace(" epochs", "")


def _runs(found: Collection) -> list[dict[str, Any]]:
    """A row a run directory, of the replicas that count."""
    rows = []
    for name, part in found.replicas.groupby("run", sort=True):
        first = part.iloc[0]
        orders = [
            f"{key.removesuffix('_order')} plain"
            for key in ("prompt_order", "completion_order")
            if first[key] == "plain"
        ]
        accuracy = part["val_seq_acc"].median()
        stop = "" if np.isnan(first["stop_at"]) else f", stop at {first['stop_at']:.0%}"
        rows.append(
            {
                "name": name,
                "what": ", ".join([first["task"], first["split"], first["model"], first["ablation"], *orders]),
                "seeds": format_seeds(tuple(part["seed"])),
                "epochs": f"{first['epochs']} of {first['max_epochs']}{stop}",
                "finished": bool(first["finished"]),
                "accuracy": "" if np.isnan(accuracy) else number(float(accuracy), "accuracy"),
                "minutes": "" if np.isnan(first["minutes"]) else f"{first['minutes']:.3g}",
                "device": _text(first["device"]),
                "commit": _text(first["commit"]),
                "departs": first["departs"],
            }
        )
    return rows


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _unfinished(found: Collection) -> list[str]:
    runs = found.unfinished.drop_duplicates("run")
    return [f"{run.run}: epoch {run.epochs} of {run.max_epochs}" for run in runs.itertuples()]


def _settings(setup: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """``("model nanogpt", "optimizer.lr", "0.001")``, as published."""
    rows = [("every run", key, str(value)) for key, value in setup["all"].items()]
    for group in ("task", "split", "model", "ablation"):
        for name, settings in setup.get(group, {}).items():
            rows += [(f"{group} {name}", key, str(value)) for key, value in settings.items()]
    return [(where, key.removeprefix("model.").removeprefix("trainer."), value) for where, key, value in rows]


def _versions(found: Collection) -> list[tuple[str, str]]:
    """Everything that can change a number, all that occur."""
    names = ("device", "torch", "lightning", "python", "arith_erd", "commit")
    found_names = {name: sorted(set(found.replicas[name].dropna().astype(str))) for name in names}
    return [
        (name.replace("arith_erd", "this package"), ", ".join(values)) for name, values in found_names.items() if values
    ]
