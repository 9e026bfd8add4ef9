"""Bring ``paper/results/`` up to date with finished runs.

    python -m arith_erd.paper.publish runs/ --results paper/results

``runs/`` there has the data behind every published number, as run directories with the weights of seed 0 and without
pictures and checkpoints; its ``README.md`` describes the rest. ``make tables`` then updates the pages.
"""

import argparse
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import yaml

from arith_erd.bundled import RESULTS
from arith_erd.errors import UserError
from arith_erd.report.__main__ import build
from arith_erd.report.claims_file import CLAIMS, load_paper
from arith_erd.runs.directory import Run
from arith_erd.system.cli_errors import one_line_errors
from arith_erd.system.files import write_atomically

WEIGHTS = "weights/seed=0.safetensors"
LARGEST = 2**19  # bytes of a table; probe=dataset and probe=errors write more, and no published number needs them


def copy_runs(runs: Path, results: Path, *weights: str) -> list[str]:
    """Copy ``weights`` and the small files of every finished run and every probe; returns the names of the runs."""
    if not runs.is_dir():
        raise UserError(f"{runs}: no such folder; expected a folder of run directories")
    finished = [run for run in map(Run, sorted(runs.iterdir())) if run.summary_file.is_file()]
    for run in finished:
        target = results / "runs" / run.name
        _copy(run.path, target, "metrics.csv", "summary.json", *weights)
        config = run.config() | {"runs_dir": "runs"}  # not the folders of this machine
        write_atomically(target / "config.yaml", yaml.safe_dump(config, sort_keys=False))
    for folder in [runs, *(run.path for run in finished)]:
        for rows in sorted(folder.glob("probes/*/rows.csv")):
            if rows.stat().st_size <= LARGEST:
                target = results / "runs" / rows.parent.relative_to(runs)
                _copy(rows.parent, target, "rows.csv", "probe.json", "profile.json")
    return [run.name for run in finished]


def _copy(folder: Path, target: Path, *names: str) -> None:
    for name in names:
        if (folder / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / name, target / name)


def publish(results: Path, claims_file: Path) -> None:
    """Recompute the claims, ``runs.csv`` and figures of a folder of results from the runs in it."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        folders = [path for name in ("runs", "older") if (path := results / name).is_dir()]
        build(folders, out, runs_name=Path("runs"), paper=load_paper(claims_file))
        _copy(out, results, "claims.csv", "claims.md", "runs.csv")
        _copy(out / "figures", results, *(path.name for path in (out / "figures").glob("*.png")))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="*", help="folders of runs to add; none to recompute only")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder to bring up to date (paper/results)")
    parser.add_argument("--mini", action="store_true", help="the runs are those of scale=mini")
    options = parser.parse_args(arguments)
    to, claims_file, weights = options.results, CLAIMS, [WEIGHTS]
    if options.mini:
        to, claims_file, weights = to / "mini", CLAIMS.with_name("mini.yaml"), []
    with one_line_errors():
        for runs in options.runs:
            print("\n".join(f"kept {name}" for name in copy_runs(runs, to, *weights)))
        publish(to, claims_file)


if __name__ == "__main__":
    main()
