"""Every figure of the paper, redrawn from our runs. ``paper.yaml`` has their titles, captions and commands."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import pandas as pd
from matplotlib.figure import Figure

from ..plots import correlations, discontinuities, erasures
from ..plots.style import TASKS
from . import ablation, curves
from .claims import Result, Results
from .collect import EXACT, GIVEN, OURS, Collection, matches
from .paper import Paper, PaperFigure


def distance_correlation(found: Collection, results: Results) -> Figure | None:
    rows = probe_rows(found, "distance_correlation", correlations.COLUMNS, min_epochs=10)
    rows = rows[rows["method"] == "pearson"] if len(rows) else rows
    ours: dict[str, pd.DataFrame] = {}
    theirs: dict[str, pd.DataFrame] = {}
    besides: dict[str, pd.DataFrame] = {}
    for task, title in TASKS.items():
        mine, given = (rows[(rows["task"] == task) & (rows["source"] == source)] for source in (OURS, GIVEN))
        if len(mine):
            ours[title] = mine
            besides |= {title: given} if len(given) else {}
        elif len(given):
            theirs[f"{title}: the authors' weights"] = given
    return correlations.draw_correlations(ours | theirs, besides) if ours or theirs else None


def discontinuity(found: Collection, results: Results) -> Figure | None:
    rows = probe_rows(found, "discontinuity", discontinuities.COLUMNS)
    tables = {title: part for task, title in TASKS.items() if len(part := rows[rows["task"] == task])}
    return discontinuities.draw_discontinuities(tables, published=TASKS["add"]) if tables else None


def amnesic(found: Collection, results: Results) -> Figure | None:
    rows = probe_rows(found, "amnesic", erasures.COLUMNS, min_epochs=10)
    rows = rows[(rows["site"] == "dec.3") & (rows["task"] == "add")] if len(rows) else rows
    ours = rows[rows["source"] == OURS] if len(rows) else rows
    shown = ours if len(ours) else rows
    if shown.empty:
        return None
    whose = "" if len(ours) else ", the authors' weights"
    published = bool((shown.loc[shown["method"] == "inlp", "iterations"] == 2).all())
    return erasures.draw_erasures(shown, f"Addition: sequence accuracy after erasing a concept{whose}", published)


def probe_rows(found: Collection, name: str, columns: Mapping[str, type], **runs: int) -> pd.DataFrame:
    """What a probe found with the paper's settings: of tasks, of finished runs and of the authors' weights.

    Args:
        columns: what the figure needs, with their types; without them there is nothing to draw.
        runs: what is asked of the runs, as ``min_epochs``.
    """
    rows = found.probes.get(name)
    nothing = pd.DataFrame(columns=["task", "source"])
    if rows is None or not set(columns) <= set(rows):
        return nothing
    if not all(kind is str or pd.api.types.is_numeric_dtype(rows[column]) for column, kind in columns.items()):
        return nothing
    replicas = found.replicas[found.replicas["finished"]]
    ids = {i for task in TASKS for i in replicas.index[matches(replicas, {**runs, "task": task})]}
    shown = rows[(rows["departs"] == "") & (rows["source"].isin([GIVEN, EXACT]) | rows["replica"].isin(ids))]
    return shown if len(shown) else nothing


DRAWN: Mapping[str, Callable[[Collection, Results], Figure | None]] = {
    "fig1": curves.learning,
    "fig2": curves.random_output,
    "fig3": curves.splits,
    "fig4": distance_correlation,
    "table3": ablation.ablation_table,
    "appendixA": discontinuity,
    "figC6": curves.bit_order,
    "appendixD": amnesic,
    "figE7": curves.nanogpt,
    "figE8": curves.nanogpt_splits,
}


def paper_figures(
    paper: Paper, found: Collection, results: Sequence[Result]
) -> Iterator[tuple[PaperFigure, Figure | None]]:
    """Every figure of the paper, in its order; None where there is nothing to draw yet."""
    by_id = {result.claim.id: result for result in results}
    for about in paper.figures:
        yield about, DRAWN[about.name](found, by_id)
