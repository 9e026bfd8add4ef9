"""The texts of a report: one self-contained HTML page, with no script but its own, and ``claims.md``."""

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
from ..errors import printable
from ..plots.curves import small_panel
from ..plots.sheet import SPANS, estimated, interval_text
from ..plots.style import embedded, plain_text, svg_of
from ..seeds import format_seeds
from ..stats import Estimate, Mean
from . import tables, verdicts
from .claims import Result, missing
from .collect import Collection
from .paper import Paper
from .tables import experiment_text, probe_tables, summary

MAX_PANELS, MAX_CARDS, MAX_SEEDS, MAX_STUCK = 24, 12, 20, 5
LARGEST = 2**22  # bytes of a figure beside a card
FINAL = {"train_seq_acc": ("training", "accuracy"), "val_seq_acc": ("validation", "accuracy")}
FINAL |= {"val_mae": ("mean absolute error", "value"), "epochs_to_95": ("epochs to 95%", "epochs")}
"""Columns of `Collection.replicas` that the page opens with, their headings and units."""


def render(
    paper: Paper, found: Collection, results: Sequence[Result], svgs: Mapping[str, str | None], runs: Path, out: Path
) -> str:
    """The page in the folder ``out``, from which links lead to explorers; its commands name the folder ``runs``."""
    pages = {name: quote(os.fsencode(os.path.relpath(path, out))) for name, path in found.explorers.items()}
    return _fill(
        "page.html.j2",
        paper,
        results,
        runs,
        found=found,
        images={name: embedded(svg) for name, svg in svgs.items()},
        cards=[(card, _picture(figure)) for card, figure in found.cards[:MAX_CARDS]],
        tables=probe_tables(found),
        experiments=found.replicas.groupby("key", sort=False),
        curves=_curves(found),
        unfinished=unfinished(found),
        explorers=pages,
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
    environment.globals |= vars(verdicts) | vars(tables) | globals()  # functions and constants, by their names
    return environment.get_template(template).render(
        paper=paper,
        runs=runs,
        version=__version__,
        counted=[result for result in results if result.claim.counted],
        summary=summary(results),
        sections={name: [r for r in results if r.claim.section == name] for name in paper.sections},
        missing=missing(results, paper, runs),
        **more,
    )


def _picture(path: Path) -> str | None:
    """A PNG that a probe drew; None if it is not there, or too large to be one."""
    if not path.is_file() or path.stat().st_size > LARGEST:
        return None
    return "data:image/png;base64," + b64encode(path.read_bytes()).decode()


def unfinished(found: Collection) -> list[str]:
    """``add-random-...: epoch 30 of 60``, one line per run that has not finished."""
    runs = found.replicas[~found.replicas["finished"]].drop_duplicates("run")
    return [f"{run.run}: epoch {run.epochs} of {run.max_epochs}" for run in runs.itertuples()]


def _curves(found: Collection) -> list[tuple[str, int, str | None]]:
    """Title, number of seeds and learning curves of every experiment that is there, up to two dozen."""
    rows = found.metrics.merge(found.replicas["key"], left_on="replica", right_index=True)
    out: list[tuple[str, int, str | None]] = []
    for key, part in [*rows.groupby("key", sort=False)][:MAX_PANELS]:
        with plain_text():
            panel = embedded(svg_of(small_panel(part), "runs"))
        out.append((experiment_text(found, str(key), task=True), part["seed"].nunique(), panel))
    return out


def final(finished: pd.DataFrame, column: str, unit: str) -> tuple[str, str]:
    """Of finished replicas, the mean of an accuracy or error, or the median of the epochs to 95%; and its interval."""
    known = finished[column].astype(float)
    if finished.empty if column == "epochs_to_95" else known.isna().all():
        return "", ""
    if column == "epochs_to_95":  # who never got there counts as later than the end
        estimate = Estimate.of_median((known.fillna(finished["epochs"]), known.fillna(np.inf)))
    else:
        estimate = Estimate.of_means([Mean.of(known.dropna())], SPANS[unit])
    return estimated(estimate, unit).removesuffix(" epochs"), interval_text(estimate.interval, unit)


def stuck_tokens(replicas: pd.DataFrame) -> str:
    """``seed 3: r6 never learnt; seeds 0-1: r6, r7 never learnt``, a part for each of the first different ones."""
    stuck = replicas[[isinstance(names, str) and names != "" for names in replicas["never_learnt"]]]
    groups = stuck.groupby("never_learnt", sort=False)["seed"]
    parts = [(str(names), format_seeds(seeds.tolist())) for names, seeds in groups]
    texts = [f"seed{'' if who.isdigit() else 's'} {who}: {names} never learnt" for names, who in parts[:MAX_STUCK]]
    return "; ".join(texts + ["..."] * (len(parts) > MAX_STUCK))


def strip_places(result: Result) -> dict[str, float] | None:
    """Places in [4, 116] of a line: the tolerance as a bar, the paper a tick in the middle, ours a dot and a line."""
    claim, estimate = result.claim, result.estimate
    if estimate is None or result.votes or claim.accepted == (estimate.value, estimate.value):
        return None
    low, high = estimate.interval or (estimate.low, estimate.high)
    left, right = claim.accepted
    apart = pd.Series({"left": left, "right": right, "ours": estimate.low, "from": low, "to": high}) - claim.value
    reach = apart[np.isfinite(apart)].abs().max() * 1.25 or max(abs(claim.value), 1.0)
    return (60 + 56 * (apart / reach).clip(-1, 1)).round(2).to_dict()
