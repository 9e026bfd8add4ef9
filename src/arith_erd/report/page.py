"""The texts of a report: one self-contained HTML page, with no script but its own, and ``claims.md``."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape

from .. import __version__
from ..errors import printable
from ..plots.curves import small_multiples
from ..plots.numbers import estimated, interval_text
from ..plots.style import TASKS, embedded, plain_text, svg_of
from ..seeds import format_seeds
from ..stats import Estimate, Mean
from .claims import Result, missing, tally
from .collect import GIVEN, Collection
from .paper import Paper, PaperFigure
from .tables import estimate_text, experiment_text, notes, ours_text, probe_tables, spread_text, summary, values_text
from .verdicts import VERDICTS

MAX_PANELS, MAX_CARDS, MAX_TITLES = 24, 12, 100
FINAL = {"train_seq_acc": "accuracy", "val_seq_acc": "accuracy", "val_mae": "value", "epochs_to_95": "epochs"}
"""Columns of `Collection.replicas` that the page opens with, and their units."""


def render(
    paper: Paper,
    found: Collection,
    results: Sequence[Result],
    figures: Mapping[str, tuple[PaperFigure, str | None]],
    runs: Path,
) -> str:
    """The page; ``figures`` by name with their SVG, None where there is none yet; ``runs`` is for the commands."""
    about = ("device", "torch", "lightning", "python", "arith_erd", "commit")
    verdicts_on = {
        name: tally(r.verdict for r in results if r.claim.counted and r.claim.figure == name) for name in figures
    }
    return _fill(
        "page.html.j2",
        paper,
        results,
        runs,
        by_id={result.claim.id: result for result in results},
        figures=[(figure, embedded(svg), verdicts_on[figure.name]) for figure, svg in figures.values()],
        cards=[(card, embedded(svg_of(card.draw(), card.title))) for card in found.cards[:MAX_CARDS]],
        further=[card.title for card in found.cards[MAX_CARDS:MAX_TITLES]],
        left_out=len(found.cards[MAX_TITLES:]),
        tables=probe_tables(found),
        experiments=_experiments(found),
        curves=_curves(found),
        seeds=int(found.replicas["finished"].sum()),
        unfinished=unfinished(found),
        problems=found.problems,
        versions={name: sorted(set(found.replicas[name].dropna().astype(str))) for name in about},
    )


def markdown(results: Sequence[Result], paper: Paper, runs: Path) -> str:
    """``claims.md``: the claims as tables, and what to run for those without data."""
    return _fill("claims.md.j2", paper, results, runs)


def cell(value: object) -> str:
    """Text in a table of Markdown: no new column, no new line, no HTML, no link."""
    return printable(str(value)).replace("|", "\\|").replace("<", "&lt;").replace("](", "]\\(")


def _fill(template: str, paper: Paper, results: Sequence[Result], runs: Path, **more: Any) -> str:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=select_autoescape(["html.j2"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    subscripts = lambda text: Markup(re.sub(r"VS_([tv])", r"VS<sub>\1</sub>", str(escape(text))))  # noqa: E731
    environment.filters |= {"cell": cell, "subscripts": subscripts}
    environment.globals |= {f.__name__: f for f in (estimate_text, notes, ours_text, spread_text, values_text)}
    environment.globals |= {"more": _more, "strip": _strip, "TASKS": TASKS, "MAX_PANELS": MAX_PANELS}
    return environment.get_template(template).render(
        paper=paper,
        runs=runs,
        version=__version__,
        total=sum(result.claim.counted for result in results),
        counts={verdict: sum(r.claim.counted and r.verdict == verdict for r in results) for verdict in VERDICTS},
        summary=summary(results),
        sections={name: [r for r in results if r.claim.section == name] for name in paper.sections},
        missing=missing(results, paper, runs),
        **more,
    )


def unfinished(found: Collection) -> list[str]:
    """``add-random-...: epoch 30 of 60``, one line per run that has not finished."""
    runs = found.replicas[~found.replicas["finished"]].drop_duplicates("run")
    return [f"{run.run}: epoch {run.epochs} of {run.max_epochs}" for run in runs.itertuples()]


def _curves(found: Collection) -> str | None:
    """Learning curves of every experiment that is there, up to two dozen."""
    rows = found.metrics.merge(found.replicas["key"], left_on="replica", right_index=True)
    groups = {experiment_text(found, str(key), task=True): part for key, part in rows.groupby("key", sort=False)}
    with plain_text():
        return embedded(svg_of(small_multiples(dict([*groups.items()][:MAX_PANELS])), "runs")) if groups else None


def _experiments(found: Collection) -> list[dict[str, Any]]:
    rows = []
    for key, part in found.replicas.groupby("key", sort=False):
        minutes, finished = part["minutes"].mean(), part[part["finished"]]
        rows.append(
            {
                "what": experiment_text(found, str(key), task=True),
                "names": sorted(set(part["run"])),
                "seeds": format_seeds(tuple(part["seed"])),
                "epochs": f"{part['epochs'].max()} of {part['max_epochs'].iloc[0]}",
                "finished": bool(part["finished"].all()),
                "numbers": [_final(finished, column, unit) for column, unit in FINAL.items()],
                "minutes": "" if np.isnan(minutes) else f"{minutes:.3g}",
                **{name: ", ".join(sorted(set(part[name].dropna()))) for name in ("device", "commit")},
            }
        )
    return rows


def _final(finished: pd.DataFrame, column: str, unit: str) -> tuple[str, str]:
    """Of finished replicas, the mean of an accuracy or error, or the median of the epochs to 95%; and its interval."""
    known = finished[column].astype(float)
    if finished.empty if column == "epochs_to_95" else known.isna().all():
        return "", ""
    if column == "epochs_to_95":  # who never got there counts as later than the end
        estimate = Estimate.of_median((known.fillna(finished["epochs"]), known.fillna(np.inf)))
    else:
        span = (0.0, 1.0) if unit == "accuracy" else (-np.inf, np.inf)
        estimate = Estimate.of_means([Mean.of(known.dropna())], span)
    return estimated(estimate, unit).removesuffix(" epochs"), interval_text(estimate.interval, unit)


def _more(result: Result) -> list[str]:
    if result.exact or not result.n:
        return ["exact"] if result.n else []
    seeds = "the authors' weights" if result.source == GIVEN else f"{result.n} seed{'s' if result.n != 1 else ''}"
    single = values_text(result) if sum(map(len, result.samples)) > 1 else ""
    return list(filter(None, (", ".join(filter(None, (spread_text(result), seeds))), single)))


def _strip(result: Result) -> dict[str, Any] | None:
    """Places in [4, 116] of a line: the tolerance as a bar, the paper a tick in the middle, ours a dot and a line."""
    claim, estimate = result.claim, result.estimate
    if estimate is None or result.votes or claim.span == (estimate.value, estimate.value):
        return None
    says = f"the paper {claim.text}, ours {estimate_text(result)} {spread_text(result)}"
    low, high = estimate.interval or (estimate.low, estimate.high)
    ends = [end for end in (*claim.span, estimate.low, low, high) if np.isfinite(end)]
    reach = max(abs(end - claim.value) for end in ends) * 1.25 or max(abs(claim.value), 1.0)
    places = np.array([*claim.span, claim.value, estimate.low, low, high])
    places = np.round(60 + 56 * np.clip((places - claim.value) / reach, -1, 1), 2)
    left, right, published, ours, *interval = places.tolist()
    bar = {"low": left, "width": max(round(right - left, 2), 1.0)}
    return bar | {"paper": published, "ours": ours, "interval": interval, "says": says}
