"""Write the report as a self-contained HTML page, with no script but its own, as ``claims.md``, and as tables."""

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
from ..plots.sheet import SPANS, bare, estimated, interval_text, number, seeds_note, tabulate
from ..plots.style import TASKS, embedded, plain_text, svg_of
from ..seeds import format_seeds
from ..stats import EXACTLY, Estimate, Mean, clopper_pearson
from .claims import Result, missing, tally
from .collect import AUTHORS, OURS, TASK_ALONE, Collection
from .paper import Paper
from .verdicts import VERDICTS

MAX_PANELS, MAX_CARDS, MAX_SEEDS, MAX_STUCK = 24, 12, 20, 5
LARGEST = 2**22  # bytes of a figure beside a card
FINAL = {"train_seq_acc": ("training", "accuracy"), "val_seq_acc": ("validation", "accuracy")}
FINAL |= {"val_mae": ("mean absolute error", "value"), "epochs_to_95": ("epochs to 95%", "epochs")}
"""Columns of `Collection.replicas` in the page's first table, with headings and units."""

OF_CLAIM = ("id", "kind", "same_as", "section", "place", "statement", "unit")
OF_REPLICAS = ("device", "torch", "arith_erd", "commit")


def render(
    paper: Paper, found: Collection, results: Sequence[Result], svgs: Mapping[str, str | None], runs: Path, out: Path
) -> str:
    """The HTML page. Its links to explorers start from the folder ``out``; its commands name the folder ``runs``."""
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
    """The text of ``claims.md``: tables of claims, and the commands for those without data."""
    return _fill("claims.md.j2", paper, results, runs)


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
    texts = (estimate_text, experiment_text, final, format_seeds, notes, ours_text, spread_text, strip_places)
    environment.globals |= {one.__name__: one for one in (*texts, stuck_tokens, tally, values_text)}
    environment.globals |= {"AUTHORS": AUTHORS, "FINAL": FINAL, "MAX_PANELS": MAX_PANELS, "MAX_SEEDS": MAX_SEEDS}
    return environment.get_template(template).render(
        paper=paper,
        runs=runs,
        version=__version__,
        VERDICTS=VERDICTS,
        counted=[result for result in results if result.claim.counted],
        summary=summary(results),
        sections={name: [r for r in results if r.claim.section == name] for name in paper.sections},
        missing=missing(results, paper, runs),
        **more,
    )


def cell(value: object) -> str:
    """Escape text for a table of Markdown, so that it adds no column, line, HTML or link."""
    return printable(str(value)).replace("|", "\\|").replace("<", "&lt;").replace("](", "]\\(")


def _picture(path: Path) -> str | None:
    """The PNG of a probe as a data URL; None if it is missing or too large."""
    if not path.is_file() or path.stat().st_size > LARGEST:
        return None
    return "data:image/png;base64," + b64encode(path.read_bytes()).decode()


def _curves(found: Collection) -> list[tuple[str, int, str | None]]:
    """Title, number of seeds and learning curves of up to two dozen experiments."""
    rows = found.metrics.merge(found.replicas["key"], left_on="replica", right_index=True)
    out: list[tuple[str, int, str | None]] = []
    for key, part in [*rows.groupby("key", sort=False)][:MAX_PANELS]:
        with plain_text():
            panel = embedded(svg_of(small_panel(part), "runs"))
        out.append((experiment_text(found, str(key), task=True), part["seed"].nunique(), panel))
    return out


def unfinished(found: Collection) -> list[str]:
    """A line for each unfinished run: ``add-random-...: epoch 30 of 60``."""
    runs = found.replicas[~found.replicas["finished"]].drop_duplicates("run")
    return [f"{run.run}: epoch {run.epochs} of {run.max_epochs}" for run in runs.itertuples()]


def final(finished: pd.DataFrame, column: str, unit: str) -> tuple[str, str]:
    """The mean of an accuracy or error of finished replicas, or the median of epochs to 95%, and its interval."""
    known = finished[column].astype(float)
    if finished.empty if column == "epochs_to_95" else known.isna().all():
        return "", ""
    if column == "epochs_to_95":  # who never got there counts as later than the end
        estimate = Estimate.of_median((known.fillna(finished["epochs"]), known.fillna(np.inf)))
    else:
        estimate = Estimate.of_means([Mean.of(known.dropna())], SPANS[unit])
    return estimated(estimate, unit).removesuffix(" epochs"), interval_text(estimate.interval, unit)


def stuck_tokens(replicas: pd.DataFrame) -> str:
    """Tokens that some seeds never learned: ``seed 3: r6 never learnt; seeds 0-1: r6, r7 never learnt``."""
    stuck = replicas[[isinstance(names, str) and names != "" for names in replicas["never_learnt"]]]
    groups = stuck.groupby("never_learnt", sort=False)["seed"]
    parts = [(str(names), format_seeds(seeds.tolist())) for names, seeds in groups]
    texts = [f"seed{'' if who.isdigit() else 's'} {who}: {names} never learnt" for names, who in parts[:MAX_STUCK]]
    return "; ".join(texts + ["..."] * (len(parts) > MAX_STUCK))


def strip_places(result: Result) -> dict[str, float] | None:
    """Places in [4, 116] of a small plot: tolerance (bar), paper (tick in the middle), ours (dot and line)."""
    claim, estimate = result.claim, result.estimate
    if estimate is None or result.votes or claim.accepted == (estimate.value, estimate.value):
        return None
    low, high = estimate.interval or (estimate.low, estimate.high)
    left, right = claim.accepted
    apart = pd.Series({"left": left, "right": right, "ours": estimate.low, "from": low, "to": high}) - claim.value
    reach = apart[np.isfinite(apart)].abs().max() * 1.25 or max(abs(claim.value), 1.0)
    return (60 + 56 * (apart / reach).clip(-1, 1)).round(2).to_dict()


def claims_table(results: Sequence[Result], found: Collection, paper: Paper, runs: Path) -> pd.DataFrame:
    """The table ``claims.csv``, with a row per claim. Numbers are in the claim's unit, or empty."""
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
    """The table ``runs.csv``, with a row per seed."""
    return found.replicas.drop(columns=["kind", "key", "trajectory"])


def summary(results: Sequence[Result]) -> str:
    """A summary such as ``Of 60 results: 9 reproduced, 51 not run. ... 17 of 18 settings match the paper.``"""
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
    """Our estimate with its interval: ``99.9% [99.8, 100]``, ``> 50 epochs``, ``layer 3 (4 of 5 seeds)``, or empty."""
    return f"{estimate_text(result)} {spread_text(result)}".strip()


def estimate_text(result: Result) -> str:
    """Our estimate: ``99.9%``, ``> 50 epochs``, ``layer 2: 3, layer 3: 2``."""
    unit = result.claim.unit
    if len(result.modes) == 1:
        return f"{result.modes[0].learning} of {result.modes[0].n} seeds learn"
    if result.votes:
        return ", ".join(f"{number(layer, unit)}: {count}" for layer, count in result.votes.items())
    return estimated(result.estimate, unit) if result.estimate else ""


def spread_text(result: Result) -> str:
    """The interval of our estimate; for votes the share of the published layer with its interval."""
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
    """The value of every seed, ``27 37 34 >50``; several kinds of run are separated by a slash."""
    if result.exact or not result.n:
        return ""
    unit = result.claim.unit
    if len(result.samples) > 1 and not getattr(result.claim.measure, "minus_column", ""):
        unit = {"ratio": "epochs", "points": "accuracy"}.get(unit, unit)
    bounds = (sample[["low", "high"]].values.tolist() for sample in result.samples)
    texts = ([f"{'' if low == high else '>'}{bare(low, unit)}" for low, high in of] for of in bounds)
    return " / ".join(map(" ".join, texts))


def notes(result: Result) -> list[str]:
    """Remarks beside the numbers."""
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


def probe_tables(found: Collection) -> list[tuple[str, str, pd.DataFrame]]:
    """Title, note and table for each probe, task and experiment, with means over the experiment's seeds."""
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
            tables.append((f"{name.replace('_', ' ')}: {title}", note, cells))
    return tables


def experiment_text(found: Collection, key: str, task: bool = False) -> str:
    """The settings of an experiment that are not defaults: ``transformer, vs_v, 50 epochs``."""
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
