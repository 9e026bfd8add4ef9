"""The command ``arith-report runs/``, which compares a paper with the runs in a folder."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from ..checks import user_path
from ..errors import UserError, bad_value, counted
from ..plots.style import save_png, to_svg
from ..plots.tables import csv_text
from ..system.cli_errors import one_line_errors
from ..system.files import atomic_file, require_writable, write_atomically
from ..system.signals import catch_signals
from . import claims, page
from .claims_file import CLAIMS, Paper, load_paper
from .collect import RunData, collect
from .figures import paper_figures

BUNDLED = {name: CLAIMS.with_name(f"{name}.yaml") for name in ("claims", "mini")}


def build(
    folders: Sequence[Path], out: Path, runs_name: Path | None = None, paper: Paper | None = None
) -> tuple[RunData, list[claims.Result]]:
    """Read folders of runs and write ``claims.{md,csv}``, ``runs.csv`` (one row per seed), figures, ``index.html``.

    If a replica is in several folders, the first folder wins. Files below ``out`` are replaced one by one; links are
    not followed. Commands in the report name the folder ``runs_name``, by default the first one.
    """
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"{folder}: no such folder; expected a folder of run directories, such as runs/")
    require_writable("--out", out)
    if (out / "figures").is_symlink():
        raise UserError(f"--out={out}: its folder figures is a link; expected a folder, or nothing there yet")
    paper, runs_name = paper or load_paper(), runs_name or folders[0]
    data = collect(folders, paper.setup)
    results = claims.evaluate_claims(paper, data)
    drawn = {spec.name: figure for spec, figure in paper_figures(paper, data, results)}
    svgs = {name: to_svg(figure, name) for name, figure in drawn.items() if figure}
    texts = {
        "claims.md": page.markdown(results, paper, runs_name),
        "claims.csv": csv_text(page.claims_table(results, data, paper, runs_name)),
        "runs.csv": csv_text(page.replicas_table(data), float_format="%.9g"),
        "index.html": page.render(paper, data, results, svgs, runs_name, out),
    }
    texts |= {f"figures/{name}.svg": svg for name, svg in svgs.items()}
    (out / "figures").mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_atomically(out / name, text)
    for name, figure in drawn.items():
        png = out / "figures" / f"{name}.png"
        if figure is None:  # an earlier report may have left a file
            png.unlink(missing_ok=True)
            png.with_suffix(".svg").unlink(missing_ok=True)
            continue
        figure.set_layout_engine("none")  # it has its layout, which takes as long as drawing
        with atomic_file(png) as partial:
            save_png(figure, partial)
    return data, results


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="arith-report",
        description="Write the paper's numbers beside ours: claims with verdicts, figures, and one HTML page.",
    )
    spec = "folders of run directories (runs); duplicates of a seed: the first folder wins"
    parser.add_argument("runs", type=lambda text: user_path(text, "runs"), nargs="*", default=[Path("runs")], help=spec)
    parser.add_argument("--out", type=lambda text: user_path(text, "--out"), default="report", help="folder (report)")
    spec = f"claims to judge: a file, or one of this package's, {' or '.join(BUNDLED)} (claims)"
    parser.add_argument("--claims", default=CLAIMS.stem, help=spec)
    spec = "run the Python files that the claims file names"
    parser.add_argument("--trust", action="store_true", help=spec)
    with one_line_errors(), catch_signals():
        options = parser.parse_args(arguments)
        file = BUNDLED.get(options.claims) or user_path(options.claims, "--claims")
        if not file.is_file():
            raise bad_value("--claims", options.claims, f"a file, or one of {', '.join(BUNDLED)}")
        paper = load_paper(file, options.trust)
        data, results = build(options.runs, options.out, paper=paper)
        lines = [page.summary(results)]
        lines += [f"left out: {name}: {problem}" for name, problem in data.problems.items()]
        lines += [f"unfinished: {line}" for line in page.unfinished(data)]
        for command, waiting in claims.missing_commands(results, paper, options.runs[0]).items():
            lines.append(f"missing, {counted(len(waiting), 'claim')}: {command}")
        print("\n".join(lines), options.out / "index.html", sep="\n")


if __name__ == "__main__":
    main()
