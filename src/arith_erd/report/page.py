"""Write the report as a self-contained HTML page with only its own script, as ``claims.md``, and as tables."""

import os
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape

from .. import __version__
from ..errors import counted, printable
from ..plots.style import TASKS
from ..plots.tables import format_digits, format_estimate, format_interval, format_mean, format_number
from ..seeds import format_ranges
from ..stats import EXACT_METHOD, clopper_pearson
from .claims import Result, missing_commands
from .claims_file import Paper
from .collect import AUTHORS_WEIGHTS, DEFAULT_OPTIONS, RunData
from .verdicts import VERDICTS, count_verdicts

FINAL_COLUMNS = {"training": ("train_seq_acc", "accuracy"), "validation": ("val_seq_acc", "accuracy")}
FINAL_COLUMNS |= {"mean absolute error": ("val_mae", "value")}
"""The table at the head of the page: heading -> column of `RunData.replicas` and its unit."""

CLAIM_COLUMNS = ("id", "same_as", "section", "place", "statement", "unit")
PROVENANCE_COLUMNS = ("device", "torch", "arith_erd", "commit")


def render(
    paper: Paper, data: RunData, results: Sequence[Result], svgs: Mapping[str, str], runs: Path, out: Path
) -> str:
    """``index.html``. Links to pictures are relative to ``out``; commands name the folder ``runs``."""
    return _fill(
        "page.html.j2",
        paper,
        results,
        runs,
        data=data,
        images={name: b64encode(svg.encode()).decode() for name, svg in svgs.items()},
        experiments=data.replicas.groupby("config_hash", sort=False),
        shared=shared_settings(data.replicas),
        unfinished=unfinished(data),
        pictures={name: quote(os.fsencode(os.path.relpath(path, out))) for name, path in data.pictures.items()},
    )


def markdown(results: Sequence[Result], paper: Paper, runs: Path) -> str:
    """The text of ``claims.md``: tables of claims, and commands for claims without data."""
    return _fill("claims.md.j2", paper, results, runs)


def _fill(template: str, paper: Paper, results: Sequence[Result], runs: Path, **more: Any) -> str:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=select_autoescape(["html.j2"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"escape_cell": escape_cell, "subscripts": subscripts}
    functions: tuple[Any, ...] = (count_verdicts, experiment_text, format_mean, format_ranges)
    functions += (interval_plot, notes, ours_texts, values_text)
    environment.globals |= {function.__name__: function for function in functions}
    return environment.get_template(template).render(
        paper=paper,
        runs=runs,
        version=__version__,
        VERDICTS=VERDICTS,
        AUTHORS_WEIGHTS=AUTHORS_WEIGHTS,
        FINAL_COLUMNS=FINAL_COLUMNS,
        counted=[result for result in results if result.claim.counted],
        summary=summary(results),
        sections={name: [r for r in results if r.claim.section == name] for name in paper.sections},
        missing=missing_commands(results, paper, runs),
        **more,
    )


def escape_cell(value: object) -> str:
    """Escape text for a table of Markdown, so that it adds no column, line, HTML or link."""
    return printable(str(value)).replace("|", "\\|").replace("<", "&lt;").replace("](", "]\\(")


def subscripts(text: str) -> Markup:
    return Markup(re.sub(r"VS_([tv])", r"VS<sub>\1</sub>", str(escape(text))))


def unfinished(data: RunData) -> list[str]:
    """A line for each unfinished run: ``add-random-...: epoch 30 of 60``."""
    runs = data.replicas[~data.replicas["finished"]].sort_values("epochs").drop_duplicates("run", keep="last")
    runs = runs.sort_values("run")
    return [f"{run.run}: epoch {run.epochs} of {run.max_epochs}" for run in runs.itertuples()]


def interval_plot(result: Result) -> dict[str, float] | None:
    """Coordinates from 4 to 116 in a small plot: tolerance (bar), paper (tick in the middle), ours (dot and line)."""
    claim, estimate = result.claim, result.estimate
    if estimate is None or result.votes or claim.accepted_range == (estimate.value, estimate.value):
        return None
    low, high = estimate.interval or (estimate.low, estimate.high)
    left, right = claim.accepted_range
    differences = pd.Series({"left": left, "right": right, "ours": estimate.low, "from": low, "to": high}) - claim.value
    largest = differences[np.isfinite(differences)].abs().max() * 1.25 or max(abs(claim.value), 1.0)
    return (60 + 56 * (differences / largest).clip(-1, 1)).round(2).to_dict()


def claims_table(results: Sequence[Result], data: RunData, paper: Paper, runs: Path) -> pd.DataFrame:
    """The table ``claims.csv``, with a row per claim. Numbers are in the claim's unit, or empty."""
    rows = []
    for result in results:
        claim, estimate = result.claim, result.estimate
        used = data.replicas.loc[result.replicas, [*PROVENANCE_COLUMNS]]
        low, high = (estimate and estimate.interval) or (None, None)
        row: dict[str, Any] = {key: getattr(claim, key) for key in CLAIM_COLUMNS}
        row |= {"paper": claim.value, "paper_text": claim.published_text}
        row |= {"accepted_low": claim.accepted_range[0], "accepted_high": claim.accepted_range[1]}
        row |= {"ours": estimate and estimate.value, "ci_low": low, "ci_high": high}
        row |= {"method": estimate.method if estimate else ""}
        row |= {"n": "exact" if result.exact and result.num_seeds else result.num_seeds}
        row |= {"seeds": result.seeds, "ours_text": " ".join(ours_texts(result)).strip(), "values": values_text(result)}
        row |= {"averaged_curve": result.averaged_curve_epoch, "censored": result.num_censored}
        row |= {"unfinished": result.num_unfinished, "verdict": result.verdict}
        row |= {"cause": result.cause, "erratum": claim.erratum}
        row |= {"measured_on": result.source if result.num_seeds else "", "authors_weights": result.authors_value}
        row |= {key: ", ".join(sorted(set(used[key].dropna()))) for key in PROVENANCE_COLUMNS}
        rows.append(row | {"command": paper.command(claim.make, runs)})
    return pd.DataFrame(rows)


def replicas_table(data: RunData) -> pd.DataFrame:
    return data.replicas.drop(columns=["config_hash", "trajectory_hash"])


def summary(results: Sequence[Result]) -> str:
    """``Of 60 results: 9 reproduced, 51 not run. 3 more claims state the same facts and are not counted.``"""
    single = [result for result in results if result.claim.counted]
    repeated = [result for result in results if result.claim.same_as]
    text = f"Of {counted(len(single), 'result')}: {count_verdicts(result.verdict for result in single) or 'none'}."
    return text + (f" {len(repeated)} more claims state the same facts and are not counted." if repeated else "")


def ours_texts(result: Result) -> tuple[str, str]:
    """Our estimate and its interval: ``("99.9%", "[99.8, 100]")``, or ``("> 50 epochs", "")``.

    For votes the estimate is ``layer 2: 3, layer 3: 2``, and the interval is for the published layer's share.
    """
    claim, estimate = result.claim, result.estimate
    if result.votes:
        hits = result.votes.get(int(claim.value), 0)
        share = format_interval(clopper_pearson(hits, sum(result.votes.values())), "accuracy")
        votes = ", ".join(f"{format_number(layer, claim.unit)}: {count}" for layer, count in result.votes.items())
        return votes, f"({hits} of {result.num_seeds} for {format_number(claim.value, claim.unit)}, {share}%)"
    if estimate is None:
        return "", ""
    if len(result.learning_counts) == 1:
        (counts,) = result.learning_counts
        mean = f", with {format_number(counts.learning_mean, 'accuracy')}" if counts.learning else ""
        interval = format_interval(estimate.interval, "accuracy")
        return f"{counts.learning} of {counts.n} seeds learn", f"{interval}%{mean}"
    interval = "" if estimate.method == EXACT_METHOD else format_interval(estimate.interval, claim.unit)
    return format_estimate(estimate, claim.unit), interval


def values_text(result: Result) -> str:
    """The value of every seed, ``27 37 34 >50``; several kinds of run are separated by a slash."""
    if result.exact or not result.num_seeds:
        return ""
    unit = result.claim.unit
    if len(result.samples) > 1 and not getattr(result.claim.measure, "minus_column", ""):
        unit = {"ratio": "epochs", "points": "accuracy"}.get(unit, unit)
    bounds = (sample[["low", "high"]].values.tolist() for sample in result.samples)
    texts = ([f"{'' if low == high else '>'}{format_digits(low, unit)}" for low, high in sample] for sample in bounds)
    return " / ".join(map(" ".join, texts))


def notes(result: Result) -> list[str]:
    claim, gap = result.claim, result.layer_gap
    remarks = [f"the same fact as {claim.same_as}, not counted"] if claim.same_as else []
    if len(result.learning_counts) > 1:
        remarks += ["shares of seeds that learn are compared"]
    if gap:
        by = f"{format_estimate(gap, 'correlation')} {format_interval(gap.interval, 'correlation')}"
        remarks += [f"the published layer is behind the best by {by}"]
    remarks += [result.cause]
    if result.averaged_curve_epoch is not None:
        remarks += [f"epoch {result.averaged_curve_epoch} on the averaged curve"]
    if result.authors_value is not None and result.source != AUTHORS_WEIGHTS:
        remarks += [f"{format_number(result.authors_value, claim.unit)} on the authors' weights"]
    return [*filter(None, [*remarks, claim.erratum])]


def experiment_text(first: pd.Series, shared: Sequence[str] = ()) -> str:
    """``addition, transformer, vs_v``: the non-default options of an experiment, from its first replica."""
    words = [TASKS.get(first["task"], str(first["task"])).lower(), first["model"]]
    words += [first[key] for key in ("split", "ablation") if first[key] != DEFAULT_OPTIONS[key]]
    words += [f"plain {what}" for what in ("prompt", "completion") if first[f"{what}_order"] == "plain"]
    words += [] if pd.isna(first["stop_at"]) else [f"stop at {100 * first['stop_at']:g}%"]
    own = ", ".join(setting for setting in _split_settings(first) if setting not in shared)
    return ", ".join(map(str, words)) + (f" ({own})" if own else "")


def shared_settings(replicas: pd.DataFrame) -> list[str]:
    """Unpublished settings that all experiments share, if there are several; the page lists them once."""
    experiments = [_split_settings(first) for _, first in replicas.drop_duplicates("config_hash").iterrows()]
    return [x for x in experiments[0] if all(x in other for other in experiments)] if len(experiments) > 1 else []


def _split_settings(replica: pd.Series) -> list[str]:
    text = replica["unpublished_settings"]
    return re.split(r", (?=[\w.]+=)", text) if text else []  # not at a comma within a value
