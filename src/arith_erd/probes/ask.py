"""One probe, from a configuration to ``rows.csv``, ``figure.png`` and a table on the terminal."""

from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table

from ..config.build import build
from ..errors import UserError
from ..launch.cli import overridden
from ..loggers import Logger
from ..runs import Config, Run
from ..splits import Split
from ..system.files import replacing, require_writable, write_atomically
from ..tasks import Task
from .probe import Probe

MAX_TABLE_ROWS = 40
KINDS = {"task": Task, "split": Split}


def probe(config: Config) -> None:
    """Ask one question, of a task or of every run that ``run=`` names.

    Raises:
        UserError: if the probe lacks a run, a checkpoint or a task, or has too much of them.
    """
    name, needs = config["probe"]["name"], config["probe"]["needs"]
    sources = [key for key in ("run", "checkpoint") if config[key] is not None]
    if "subjects" not in needs:
        if sources:
            raise UserError(f"{sources[0]}={config[sources[0]]}: probe={name} asks about a task and takes none")
        names = [name, *(config[group]["name"] for group in needs)]
        folder = Path(config["out"] or f"{config['runs_dir']}/probes/{'-'.join(names)}")
        ask(config, {group: build(config[group], KINDS[group]) for group in needs}, folder, [])
        return
    if len(sources) != 1:
        raise UserError(f"probe={name}: expected either run=DIR or checkpoint=FILE task=NAME")
    answers = _subjects(config)
    for folder, subjects in answers.items():
        if config["out"]:  # one run's answers go straight there, those of several side by side
            folder = Path(config["out"]) / (subjects[0].name if len(answers) > 1 else "")
        ask(config, {"subjects": subjects}, folder, subjects)


def ask(config: Config, arguments: dict[str, Any], folder: Path, subjects: list[Any]) -> None:
    """Measure, write, show, log."""
    name = config["probe"]["name"]
    require_writable("out" if config["out"] else "runs_dir", folder)
    question: Probe = build(config["probe"], Probe, **arguments)
    rows = pd.DataFrame(question.rows(), columns=list(question.columns))
    figure = question.figure(rows)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "rows.csv", rows.to_csv(index=False, float_format="%.9g"))
    with replacing(folder / "figure.png") as beside:
        figure.savefig(beside, format="png")
    show(question.table(rows), question.notes())
    print(f"{folder}: rows.csv ({len(rows):,} rows), figure.png")
    logger: Logger = build(config["logger"], Logger)
    for subject in subjects:
        logger.probe(subject.name, subject.seed, name, rows[rows["seed"] == subject.seed], folder / "figure.png")


def show(table: pd.DataFrame, notes: list[str]) -> None:
    """Print a table as wide as the terminal, at most forty rows of it."""
    console = Console()
    drawn = Table(*map(str, table.columns), box=None, header_style="bold", pad_edge=False)
    for values in table.head(MAX_TABLE_ROWS).itertuples(index=False):
        drawn.add_row(*map(str, values))
    console.print(drawn)
    if len(table) > MAX_TABLE_ROWS:
        console.print(f"... and {len(table) - MAX_TABLE_ROWS} more")
    for note in notes:
        console.print(f"note: {note}", style="yellow")


def _subjects(config: Config) -> dict[Path, list[Any]]:
    """Trained networks by the folder that their answers go to."""
    from ..interp.load import load_checkpoint, load_runs

    if config["run"] is not None:
        given = overridden("task", "split")
        if given:
            raise UserError(f"{given[0]}: not together with run=, whose own task and split count")
        by_run: dict[Path, list[Any]] = {}
        for path, subject in load_runs(config["run"]):
            Run(path).require_plain()
            by_run.setdefault(Run(path).probe(config["probe"]["name"]), []).append(subject)
        return by_run
    if not overridden("task"):
        raise UserError(f"checkpoint={config['checkpoint']}: expected its task too, as task=add")
    subject = load_checkpoint(config["checkpoint"], build(config["task"], Task))
    return {Path(config["runs_dir"]) / "probes" / f"{config['probe']['name']}-{config['task']['name']}": [subject]}
