"""One self-contained HTML page: the runs that are there, then the paper. No network, no script but its own."""

import base64
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from matplotlib.figure import Figure

from .. import __version__
from ..plots.curves import small_multiples
from ..plots.style import TASKS
from ..seeds import format_seeds
from ..stats import mean_interval, median_range
from .ablation import ABLATIONS
from .claims import VERDICTS, Result, counts, missing
from .collect import GIVEN, Collection
from .numbers import interval_text, number
from .paper import Paper, PaperFigure
from .tables import estimate_text, experiment_text, notes, probe_tables, spread_text, summary, values_text

WIDTH, HEIGHT = 120, 18  # of a strip, in its own units
MAX_PANELS = 24
FINAL = {  # columns of `Collection.replicas` that the page opens with: heading, unit
    "train_seq_acc": ("training", "accuracy"),
    "val_seq_acc": ("validation", "accuracy"),
    "val_mae": ("mean absolute error", "value"),
}


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
        counts=counts(list(results)),
        total=len(results),
        verdicts={verdict: sum(result.verdict == verdict for result in results) for verdict in VERDICTS},
        summary=summary(results),
        sections=by_section,
        figures=[_figure(figure, svg, results, paper, runs) for figure, svg in figures.values()],
        ablations=_ablations({result.claim.id: result for result in results}),
        tables=probe_tables(found),
        missing=missing(list(results), paper, runs),
        runs=_experiments(found),
        curves=_curves(found),
        replicas=len(found.replicas),
        seeds=int(found.replicas["finished"].sum()),
        unfinished=unfinished(found),
        problems=found.problems,
        settings=_settings(paper.setup),
        versions=_versions(found),
        folder=str(runs),
        version=__version__,
    )


def svg_of(figure: Figure, name: str) -> str:
    """A figure as SVG, the same text for the same data."""
    file = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name}):
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def unfinished(found: Collection) -> list[str]:
    """``add-random-...: epoch 30 of 60``, one line per run that has not finished."""
    runs = found.unfinished.drop_duplicates("run")
    return [f"{run.run}: epoch {run.epochs} of {run.max_epochs}" for run in runs.itertuples()]


def _image(svg: str | None) -> str | None:
    return None if svg is None else "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def _curves(found: Collection) -> str | None:
    """Learning curves of every experiment that is there, up to two dozen."""
    rows = found.metrics.merge(found.replicas["key"], left_on="replica", right_index=True)
    groups = {experiment_text(found, str(key), task=True): part for key, part in rows.groupby("key", sort=False)}
    if not groups:
        return None
    return _image(svg_of(small_multiples(dict(list(groups.items())[:MAX_PANELS])), "runs"))


def _experiments(found: Collection) -> list[dict[str, Any]]:
    """A row per experiment: runs that differ only in the seed."""
    rows = []
    for key, part in found.replicas.groupby("key", sort=False):
        first = part.iloc[0]
        finished = part[part["finished"]]
        to_95 = finished["epochs_to_95"].to_numpy(dtype=float)
        low, high = np.where(np.isnan(to_95), finished["epochs"], to_95), np.where(np.isnan(to_95), np.inf, to_95)
        minutes = part["minutes"].mean()
        rows.append(
            {
                "what": experiment_text(found, str(key), task=True),
                "names": sorted(set(part["run"])),
                "seeds": format_seeds(tuple(part["seed"])),
                "epochs": f"{part['epochs'].max()} of {first['max_epochs']}",
                "finished": bool(part["finished"].all()),
                "numbers": [_mean(finished[column], unit) for column, (_, unit) in FINAL.items()],
                "to_95": _median(low, high),
                "minutes": "" if np.isnan(minutes) else f"{minutes:.3g}",
                "device": ", ".join(sorted(set(part["device"].dropna()))),
                "commit": ", ".join(sorted(set(part["commit"].dropna()))),
            }
        )
    return rows


def _mean(values: "pd.Series[float]", unit: str) -> tuple[str, str]:
    """The mean over seeds, and its interval."""
    known = values.dropna().to_numpy(dtype=float)
    if not len(known):
        return "", ""
    interval = mean_interval(known)
    if interval and unit == "accuracy":
        interval = max(interval[0], 0.0), min(interval[1], 1.0)
    return number(float(known.mean()), unit), interval_text(interval, unit) if interval else ""


def _median(low: Any, high: Any) -> tuple[str, str]:
    """The median of epochs, in which seeds that never get there count as later than their last epoch."""
    if not len(low):
        return "", ""
    at_least, at_most = float(np.median(low)), float(np.median(high))
    interval = median_range(low, high)
    text = f"{at_least:g}" if at_least == at_most else f"> {at_least:g}"
    return text, interval_text(interval, "epochs") if interval else ""


def _claim(result: Result) -> dict[str, Any]:
    claim = result.claim
    return {
        "id": claim.id,
        "statement": claim.statement,
        "place": claim.place,
        "paper": claim.text,
        "ours": estimate_text(result),
        "more": _more(result),
        "verdict": result.verdict,
        "counted": result.counted,
        "notes": notes(result),
        "strip": _strip(result),
    }


def _more(result: Result) -> list[str]:
    """The interval, how many seeds, and the values of all of them."""
    if result.exact or not result.n:
        return ["exact"] if result.n else []
    seeds = "the authors' weights" if result.source == GIVEN else f"{result.n} seed{'s' if result.n != 1 else ''}"
    single = values_text(result) if sum(map(len, result.samples)) > 1 else ""
    return list(filter(None, (", ".join(filter(None, (spread_text(result), seeds))), single)))


def _subscripts(text: str) -> Markup:
    """``VS_t`` with its index below the line."""
    return Markup(re.sub(r"VS_([tv])", r"VS<sub>\1</sub>", str(escape(text))))


def _strip(result: Result) -> dict[str, Any] | None:
    """Where ours lies beside the paper's number: the tolerance as a bar, the paper a tick, ours a dot and a line."""
    claim, estimate = result.claim, result.estimate
    if estimate is None or result.votes or claim.lowest == claim.highest == estimate.value:
        return None
    interval = estimate.interval or (estimate.low, estimate.high)
    ends = [end for end in (claim.lowest, claim.highest, estimate.low, *interval) if np.isfinite(end)]
    reach = max(abs(end - claim.value) for end in ends) * 1.25 or max(abs(claim.value), 1.0)

    def place(value: float) -> float:
        share = 0.5 + 0.5 * min(1.0, max(-1.0, (value - claim.value) / reach))
        return round(4 + (WIDTH - 8) * share, 2)

    low, high = (place(end) for end in (claim.lowest, claim.highest))
    return {
        "low": low,
        "width": max(round(high - low, 2), 1.0),
        "paper": place(claim.value),
        "ours": place(estimate.low),
        "interval": [place(end) for end in interval],
        "says": f"the paper {claim.text}, ours {estimate_text(result)} {spread_text(result)}",
    }


def _figure(
    figure: PaperFigure, svg: str | None, results: Sequence[Result], paper: Paper, runs: Path
) -> dict[str, Any]:
    about = counts([result for result in results if result.claim.figure == figure.name])
    return {
        "name": figure.name,
        "title": figure.title,
        "short": figure.title.split(":")[0],
        "caption": figure.caption,
        "image": _image(svg),
        "tally": ", ".join(f"{count} {verdict}" for verdict, count in about.items() if count),
        "commands": [paper.command(make, runs) for make in figure.make],
    }


def _ablations(results: Mapping[str, Result]) -> list[dict[str, Any]]:
    """The paper's table 3 with ours beside it, one row per ablation."""
    rows = []
    for name, label in ABLATIONS.items():
        cells = [results[f"table3-{task}-{name}"] for task in TASKS]
        shown = [{"paper": r.claim.text, "ours": estimate_text(r), "more": spread_text(r)} for r in cells]
        rows.append({"label": label, "cells": [c | {"verdict": r.verdict} for c, r in zip(shown, cells, strict=True)]})
    return rows


def _settings(setup: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """``("model nanogpt", "optimizer.lr", "0.001")``, as published."""
    rows = [("every run", key, str(value)) for key, value in setup["all"].items()]
    for group in ("task", "split", "model", "ablation", "probe"):
        for name, settings in setup[group].items():
            rows += [(f"{group} {name}", key, str(value)) for key, value in settings.items()]
    return [(where, key.removeprefix("model.").removeprefix("trainer."), value) for where, key, value in rows]


def _versions(found: Collection) -> list[tuple[str, str]]:
    """Everything that can change a number, all that occur."""
    names = ("device", "torch", "lightning", "python", "arith_erd", "commit")
    found_names = {name: sorted(set(found.replicas[name].dropna().astype(str))) for name in names}
    return [
        (name.replace("arith_erd", "this package"), ", ".join(values)) for name, values in found_names.items() if values
    ]
