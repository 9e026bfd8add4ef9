"""The paper beside ours, from run directories: ``python -m arith_erd.report runs/``."""

import argparse
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure

from ..errors import UserError
from ..system.files import require_writable, write_atomically
from . import claim_tables, claims, page
from .collect import Collection, collect
from .paper import load_paper
from .paper_figures import PaperFigure, paper_figures

DPI = 130


def build(runs: Path, out: Path) -> tuple[Collection, list[claims.Result]]:
    """Read a folder of runs and write the report.

    ``claims.md``, ``claims.csv``, ``runs.csv`` (a row a seed), ``figures/*.png`` and ``.svg``, and ``index.html``,
    which needs none of the others.

    Raises:
        UserError: if there is no such folder, or ``out`` cannot be written.
    """
    if not runs.is_dir():
        raise UserError(f"{runs}: no such folder; expected one of run directories, as train.py makes in runs/")
    require_writable("--out", out)
    paper = load_paper()
    found = collect(runs, paper.setup)
    results = claims.evaluate(paper, found)
    (out / "figures").mkdir(parents=True, exist_ok=True)
    figures: dict[str, tuple[PaperFigure, str | None]] = {}
    for about, figure in paper_figures(found, results):
        figures[about.name] = about, _save(figure, out / "figures" / about.name)
    write_atomically(out / "claims.md", claim_tables.markdown(results, paper, runs))
    write_atomically(out / "claims.csv", spreadsheet(claim_tables.table(results, found, paper, runs)))
    write_atomically(out / "runs.csv", spreadsheet(replicas(found), float_format="%.9g"))
    write_atomically(out / "index.html", page.render(paper, found, results, figures, runs))
    return found, results


def replicas(found: Collection) -> pd.DataFrame:
    """``runs.csv``: a row a seed, without what only this package needs."""
    return found.replicas.drop(columns=["kind", "key", "trajectory"])


def spreadsheet(table: pd.DataFrame, float_format: str | None = None) -> str:
    """CSV without formulas: text from a run that a spreadsheet would compute stands behind an apostrophe."""

    def inert(value: object) -> object:
        return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@")) else value

    return table.map(inert).rename(columns=inert).to_csv(index=False, float_format=float_format)


def _save(figure: Figure | None, path: Path) -> str | None:
    """Write PNG and SVG, the same for the same data; remove what an earlier report left where there is nothing."""
    if figure is None:
        for suffix in (".png", ".svg"):
            path.with_suffix(suffix).unlink(missing_ok=True)
        return None
    svg = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": path.name}):
        figure.savefig(svg, format="svg", metadata={"Date": None})
    figure.set_layout_engine("none")  # laid out already, which takes as long as drawing
    figure.savefig(path.with_suffix(".png"), dpi=DPI)
    write_atomically(path.with_suffix(".svg"), svg.getvalue())
    return svg.getvalue()


def describe(found: Collection, results: list[claims.Result], runs: Path) -> None:
    """Say how many claims have which verdict, what was left out, and the commands that would make what is missing."""
    count = {verdict: sum(result.verdict == verdict for result in results) for verdict in claims.VERDICTS}
    print(f"{len(results)} claims: " + ", ".join(f"{number} {verdict}" for verdict, number in count.items()))
    for name, problem in found.problems.items():
        print(f"left out: {name}: {problem}")
    for run in found.unfinished.drop_duplicates("run").itertuples():
        print(f"unfinished: {run.run}: epoch {run.epochs} of {run.max_epochs}")
    for command, waiting in claims.missing(results, load_paper(), runs).items():
        print(f"missing, {len(waiting)} claim{'s' if len(waiting) > 1 else ''}: {command}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m arith_erd.report",
        description="Print the paper's numbers beside ours: claims with verdicts, figures, and one HTML page.",
    )
    parser.add_argument("runs", type=Path, nargs="?", default=Path("runs"), help="folder of run directories (runs)")
    parser.add_argument("--out", type=Path, default=Path("report"), help="folder to write to (report)")
    options = parser.parse_args(arguments)
    try:
        found, results = build(options.runs, options.out)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    try:
        describe(found, results, options.runs)
        print(options.out / "index.html", flush=True)
    except BrokenPipeError:  # `| head`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python still flushes at its end
    return 0


if __name__ == "__main__":
    sys.exit(main())
