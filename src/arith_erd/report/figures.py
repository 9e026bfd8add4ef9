"""Every figure of the paper, redrawn from our runs. ``paper.yaml`` has their titles, captions, curves and commands."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import pandas as pd
from matplotlib.figure import Figure

from ..plots import correlations, erasures
from ..plots.ablation import Cell, draw_ablations
from ..plots.curves import Line, draw_compared, thinned
from ..plots.style import TASKS, plain_text
from ..probes.discontinuity import COLUMNS, draw_discontinuities
from .claims import Result, Results
from .collect import EXACT, GIVEN, OURS, Collection
from .paper import Paper, PaperFigure


def learning_curves(paper: Paper, about: PaperFigure, found: Collection, results: Results) -> Figure | None:
    """The panels and lines that ``paper.yaml`` gives; a diamond at the end of a line marks its claim's number.

    A panel is left out where nothing is drawn, or only lines for comparison.
    """
    panels: dict[str, tuple[int, list[Line]]] = {}
    assert about.curves is not None
    for task, last in about.curves["epochs"].items():
        lines, worth_it = [], False
        for entry in about.curves["lines"]:
            rows = curves(found, last, task=task, **entry.get("runs", {}))
            worth_it |= len(rows) > 0 and not entry.get("besides", False)
            claim, column = entry.get("claim", "").format(task=task), entry.get("column", "val_seq_acc")
            published = [(last, results[claim].claim.value, "")] if claim else []
            lines.append(Line(rows, entry["label"], entry["style"], column, published))
        if worth_it:
            panels[task] = last, lines
    return draw_compared(panels) if panels else None


def random_output(paper: Paper, about: PaperFigure, found: Collection, results: Results) -> Figure | None:
    rows = curves(found, 4000, task="random_output")
    last = max(1000, int(rows["epoch"].max())) if len(rows) else 0
    told = (("fig2-train", 1000, "as printed"), ("fig2-train-4000", 4000, "as corrected"))
    published = [(epoch, results[name].claim.value, word) for name, epoch, word in told if epoch <= last]
    lines = [Line(rows, "training", "reference", "train_seq_acc", published), Line(rows, "validation", "first")]
    return draw_compared({"Random answers": (last, lines)}) if len(rows) else None


def curves(found: Collection, last: int, **runs: str) -> pd.DataFrame:
    """Metric rows up to an epoch, of the finished replicas that trained that long, or else of the longest ones.

    Runs that depart from the paper's settings are left out.
    """
    replicas = found.chosen(runs, finished=True)
    longest = replicas["epochs"].clip(upper=last)
    replicas = replicas[longest == longest.max()].sort_values("epochs", kind="stable")
    replicas = replicas.drop_duplicates(["trajectory", "seed"])
    rows = found.metrics[found.metrics["replica"].isin(replicas.index) & (found.metrics["epoch"] <= last)]
    return thinned(rows) if rows["epoch"].nunique() > 1 else rows.iloc[:0]  # one epoch is no curve


def ablations(paper: Paper, about: PaperFigure, found: Collection, results: Results) -> Figure | None:
    def cell(result: Result) -> Cell:
        estimate, never = result.estimate, result.claim.unit != "epochs"  # the paper never got to 95%
        if estimate is None:
            return Cell(result.claim.value, never)
        return Cell(result.claim.value, never, estimate.low, estimate.value, estimate.interval, result.samples[0])

    cells = {
        title: {label: cell(results[f"table3-{task}-{name}"]) for name, label in paper.ablations.items()}
        for task, title in TASKS.items()
    }
    return draw_ablations(cells) if any(len(c.seeds) for row in cells.values() for c in row.values()) else None


def distance_correlation(paper: Paper, about: PaperFigure, found: Collection, results: Results) -> Figure | None:
    rows = probe_rows(found, "distance_correlation", correlations.COLUMNS, min_epochs=10).query("method == 'pearson'")
    ours, theirs = (by_task(rows[rows["source"] == source]) for source in (OURS, GIVEN))
    alone = {f"{title}: the authors' weights": part for title, part in theirs.items() if title not in ours}
    besides = {title: part for title, part in theirs.items() if title in ours}
    return correlations.draw_correlations(ours | alone, besides) if ours or alone else None


def discontinuity(paper: Paper, about: PaperFigure, found: Collection, results: Results) -> Figure | None:
    tables = by_task(probe_rows(found, "discontinuity", COLUMNS))
    return draw_discontinuities(tables, published=TASKS["add"]) if tables else None


def amnesic(paper: Paper, about: PaperFigure, found: Collection, results: Results) -> Figure | None:
    rows = probe_rows(found, "amnesic", erasures.COLUMNS, min_epochs=10)
    rows = rows[(rows["site"] == about.site) & (rows["task"] == "add")]
    shown = ours if len(ours := rows[rows["source"] == OURS]) else rows
    if shown.empty:
        return None
    whose = "" if len(ours) else ", the authors' weights"
    published = bool((shown.loc[shown["method"] == "inlp", "iterations"] == 2).all())
    return erasures.draw_erasures(shown, f"Addition: sequence accuracy after erasing a concept{whose}", published)


def by_task(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The rows of each task of the paper that has some, by its title."""
    return {title: part for task, title in TASKS.items() if len(part := rows[rows["task"] == task])}


def probe_rows(found: Collection, name: str, columns: Mapping[str, type], **runs: int) -> pd.DataFrame:
    """Rows of a probe with the paper's settings: of tasks, of finished runs and of the authors' weights.

    ``columns`` are what the figure needs, with their types: without them there is nothing to draw.
    """
    rows, needed = found.probes.get(name, pd.DataFrame()), columns.items()
    if any(c not in rows or not (kind is str or pd.api.types.is_numeric_dtype(rows[c])) for c, kind in needed):
        return pd.DataFrame(columns=["task", "source", *columns])
    ids = {i for task in TASKS for i in found.chosen({**runs, "task": task}, finished=True).index}
    return rows[(rows["departs"] == "") & (rows["source"].isin([GIVEN, EXACT]) | rows["replica"].isin(ids))]


Draw = Callable[[Paper, PaperFigure, Collection, Results], Figure | None]
DRAWN: Mapping[str, Draw] = {  # those without curves of their own
    "fig2": random_output,
    "fig4": distance_correlation,
    "table3": ablations,
    "appendixA": discontinuity,
    "appendixD": amnesic,
}


def paper_figures(
    paper: Paper, found: Collection, results: Sequence[Result]
) -> Iterator[tuple[PaperFigure, Figure | None]]:
    """Every figure, in the order of its file; None where there is nothing to draw yet."""
    by_id = {result.claim.id: result for result in results}
    for about in paper.figures:
        with plain_text():
            figure = (learning_curves if about.curves else DRAWN[about.name])(paper, about, found, by_id)
        yield about, figure
