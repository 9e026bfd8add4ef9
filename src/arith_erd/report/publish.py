"""Bring ``results/`` up to date with finished runs: ``python -m arith_erd.report.publish runs/ --results results``.

``results/runs/`` keeps what every published number is computed from, in the layout of run directories: ``config.yaml``,
``metrics.csv``, ``summary.json``, the weights and the rows of probes, without pictures and checkpoints.
`load_pretrained` finds the networks there. ``results/older/`` keeps runs of earlier commits, without weights; a seed
that is in both counts as in ``results/runs/``. From them come ``claims.csv``, ``claims.md``, ``runs.csv``, the figures,
and the tables between markers in ``README.md`` and ``docs/found/amnesic.md``.
"""

import argparse
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd
import yaml

from ..errors import UserError, printable
from ..runs import Run
from ..stats import MIN_SEEDS
from ..system.files import write_atomically
from .__main__ import build
from .collect import GIVEN, RUN_FILES

WEIGHTS, BOX = 3_000_000, 40_000_000  # bytes of one file of weights, and of all of them
LARGEST = 2**19  # bytes of a table; probe=dataset and probe=errors write more, and no published number needs them
SHOWN = ("statement", "paper_says", "ours_says", "n", "verdict")
AMNESIC = ("concept", "method", "rank", "seq_acc_after", "control_variance_mean", "control_signs_mean")


def keep(runs: Path, results: Path) -> list[str]:
    """Copy the light files of every finished run, and of every probe; the names of what was copied."""
    copied = []
    for path in sorted(runs.iterdir()):
        run = Run(path)
        if path.is_dir() and RUN_FILES & {file.name for file in path.iterdir()} and run.has_summary:
            target = results / "runs" / run.name
            target.mkdir(parents=True, exist_ok=True)
            for name in ("metrics.csv", "summary.json"):
                shutil.copyfile(path / name, target / name)
            config = run.config() | {"runs_dir": "runs"}  # not the folders of this machine
            write_atomically(target / "config.yaml", yaml.safe_dump(config, sort_keys=False))
            _keep_weights(path / "weights", target / "weights", results / "runs")
            _keep_probes(path / "probes", target / "probes")
            copied.append(run.name)
    _keep_probes(runs / "probes", results / "runs" / "probes")
    return copied


def _keep_weights(weights: Path, target: Path, box: Path) -> None:
    """Copy the weights of every seed, as far as the limits go."""
    room = BOX - sum(file.stat().st_size for file in box.glob("*/weights/*.safetensors"))
    for file in sorted(weights.glob("seed=*.safetensors")):
        size = file.stat().st_size
        known = (target / file.name).is_file()
        if size <= WEIGHTS and (known or size <= room):
            target.mkdir(exist_ok=True)
            shutil.copyfile(file, target / file.name)
            room -= 0 if known else size


def _keep_probes(probes: Path, target: Path) -> None:
    for rows in sorted(probes.glob("*/rows.csv")):
        if rows.stat().st_size <= LARGEST:
            (target / rows.parent.name).mkdir(parents=True, exist_ok=True)
            for name in ("rows.csv", "probe.json"):
                if (rows.parent / name).is_file():
                    shutil.copyfile(rows.parent / name, target / rows.parent.name / name)


def recompute(results: Path, out: Path) -> None:
    """The report of what ``results/`` keeps: ``claims.csv``, ``claims.md``, ``runs.csv`` and ``figures/``."""
    build([folder for folder in (results / "runs", results / "older") if folder.is_dir()], out, named=Path("runs"))


def publish(results: Path) -> None:
    """Replace the tables and figures of ``results/`` by those of what it keeps."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        recompute(results, out)
        for name in ("claims.csv", "claims.md", "runs.csv"):
            shutil.copyfile(out / name, results / name)
        for figure in sorted((out / "figures").glob("*.png")):
            shutil.copyfile(figure, results / figure.name)


def results_table(results: Path) -> str:
    """The table of README: the counted results of three seeds or more, and the exact ones, from ``claims.csv``."""
    claims = pd.read_csv(results / "claims.csv", dtype=str, keep_default_na=False)
    own = claims[(claims["kind"] == "result") & (claims["same_as"] == "")]
    tally = own["verdict"].value_counts()
    counts = ", ".join(f"{tally.get(name, 0)} {name}" for name in ("reproduced", "differs", "inconclusive", "not run"))
    measured = own[(own["verdict"] != "not run") & (own["measured_on"] != GIVEN)]
    shown = measured[~measured["n"].isin([str(n) for n in range(1, MIN_SEEDS)])]
    lines = [f"Of {len(own)} results of the paper: {counts}.", ""]
    lines += ["| result | paper | ours [95% interval] | seeds | verdict |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| {' | '.join(_cell(row[column]) for column in SHOWN)} |" for _, row in shown.iterrows()]
    return "\n".join(lines)


def amnesic_table(results: Path) -> str:
    """The table of ``docs/found/amnesic.md``: accuracy after erasure on the authors' weights, beside its controls."""
    paths = sorted((results / "runs" / "probes").glob("amnesic-add-*/rows.csv"))
    if not paths:
        return "Not measured yet."
    rows = pd.read_csv(paths[0])
    rows = rows[rows["site"] == "dec.3"]
    lines = ["| concept | method | rank | accuracy | random, same variance | signs flipped |"]
    lines += ["| --- | --- | --- | --- | --- | --- |"]
    for _, row in rows.iterrows():
        cells = [str(row[name]).replace("_", " ") for name in AMNESIC[:3]]
        lines.append(f"| {' | '.join([*cells, *(f'{row[name]:.1%}' for name in AMNESIC[3:])])} |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return printable(text).replace("|", "\\|").replace("<", "&lt;")


def blocks(results: Path) -> Iterator[tuple[Path, str, str]]:
    """Every generated table: the file, the name of its markers, and the text that belongs between them."""
    root = results.resolve().parent
    yield root / "README.md", "results", results_table(results)
    yield root / "docs" / "found" / "amnesic.md", "amnesic", amnesic_table(results)


def between(text: str, name: str) -> str | None:
    """What stands between ``<!-- name:begin -->`` and ``<!-- name:end -->``; None without such markers."""
    found = re.search(rf"<!-- {name}:begin -->\n(.*?)\n?<!-- {name}:end -->", text, re.DOTALL)
    return found[1] if found else None


def write_blocks(results: Path) -> None:
    """Write the generated tables into the files that have their markers."""
    for path, name, block in blocks(results):
        text = path.read_text() if path.is_file() else ""
        if between(text, name) is not None:
            head, _, rest = text.partition(f"<!-- {name}:begin -->\n")
            tail = rest.partition(f"<!-- {name}:end -->")[2]
            write_atomically(path, f"{head}<!-- {name}:begin -->\n{block}\n<!-- {name}:end -->{tail}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m arith_erd.report.publish", description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="*", help="folders of runs to add; none to recompute only")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder to bring up to date (results)")
    options = parser.parse_args(arguments)
    try:
        for runs in options.runs:
            if not runs.is_dir():
                raise UserError(f"{runs}: no such folder; expected one of run directories")
            print("\n".join(f"kept {name}" for name in keep(runs, options.results)))
        publish(options.results)
        write_blocks(options.results)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
