"""One probe, from a job to ``rows.csv``, ``figure.png`` and a table on the terminal."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from rich.console import Console
from rich.table import Table

from ..config.job import ProbeJob
from ..errors import UserError
from ..loggers import Logger
from ..runs import Run
from ..system.files import replacing, require_writable, write_atomically
from .probe import Probe

if TYPE_CHECKING:
    from ..interp.subject import Subject

MAX_TABLE_ROWS = 40


def answer(job: ProbeJob) -> None:
    """Ask one question, of a task or of every run that ``run=`` names.

    Raises:
        UserError: if the probe lacks a run, a checkpoint or a task, or is given too many of them.
    """
    name = job.probe.name
    sources = [
        f"{key}={value}"
        for key, value in (("run", job.run), ("checkpoint", job.checkpoint), ("reference", job.reference))
        if value
    ]
    if "subjects" not in job.needs:
        if sources:
            raise UserError(f"{sources[0]}: probe={name} asks about a task and takes none")
        folder = job.out or job.runs_dir / "probes" / _folder_name(job, job.needs)
        ask(job, {need: getattr(job, need) for need in job.needs}, folder, [])
        return
    if len(sources) != 1:
        raise UserError(f"probe={name}: expected one of run=DIR, checkpoint=FILE task=NAME and reference=NAME")
    by_folder = _subjects(job)
    for folder, subjects in by_folder.items():
        if job.out:  # the answers of one run go straight there, those of several side by side
            folder = job.out / (subjects[0].name if len(by_folder) > 1 else "")
        ask(job, {"subjects": subjects}, folder, subjects)


def ask(job: ProbeJob, arguments: dict[str, Any], folder: Path, subjects: Sequence["Subject"]) -> None:
    """Measure, write, show, log.

    Args:
        job: with the probe.
        arguments: what it needs.
        folder: for ``rows.csv``, ``probe.json`` and ``figure.png``; made if need be.
        subjects: whose rows go to the logger.
    """
    require_writable("out" if job.out else "runs_dir", folder)
    probe = job.probe.build(Probe, **arguments)
    rows = pd.DataFrame(probe.rows(), columns=list(probe.columns))
    figure = probe.figure(rows)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "rows.csv", rows.to_csv(index=False, float_format="%.9g"))
    files = {"probe.json": probe.sheet(str(job.probe.name), rows, _settings(job)).to_json(), **probe.files()}
    for file, text in files.items():
        write_atomically(folder / file, text)
    with replacing(folder / "figure.png") as beside:
        figure.savefig(beside, format="png")
    show(probe.table(rows), probe.notes())
    print(", ".join([f"{folder}: rows.csv ({len(rows):,} rows)", *files, "figure.png"]))
    logger = job.logger.build(Logger)
    for subject in subjects:
        own = rows[rows["seed"] == subject.seed]
        logger.probe(subject.name, subject.seed, str(job.probe.name), own, folder / "figure.png")


def show(table: pd.DataFrame, notes: list[str]) -> None:
    """Print a table as wide as the terminal, at most forty of its rows."""
    console = Console()
    drawn = Table(*map(str, table.columns), box=None, header_style="bold", pad_edge=False)
    for values in table.head(MAX_TABLE_ROWS).itertuples(index=False):
        drawn.add_row(*map(str, values))
    console.print(drawn)
    if len(table) > MAX_TABLE_ROWS:
        console.print(f"... and {len(table) - MAX_TABLE_ROWS} more")
    for note in notes:
        console.print(f"note: {note}", style="yellow")


def _settings(job: ProbeJob) -> dict[str, Any]:
    """What the rows depend on beside the runs that they are of: options of the probe, and of a task without a run."""
    groups = ["probe"]
    if job.run is None:
        groups += ["task"] if "subjects" in job.needs else job.needs
    return {group: {key: value for key, value in job.resolved[group].items() if key[0] != "_"} for group in groups}


def _folder_name(job: ProbeJob, groups: Sequence[str]) -> str:
    """``dataset-add-vs_t-1f0c2d3e``: like the name of a run, readable parts and a hash of the settings."""
    settings = json.dumps([_settings(job), job.checkpoint], sort_keys=True)
    parts = [str(job.probe.name), *(job.names[group] for group in groups)]
    return "-".join([*parts, hashlib.sha256(settings.encode()).hexdigest()[:8]])


def _subjects(job: ProbeJob) -> dict[Path, list["Subject"]]:
    """Networks by the folder that their answers go to."""
    # These load torch, which a question about a task does without.
    from ..interp.subject import load_checkpoint, load_references, load_runs, load_state

    name = str(job.probe.name)
    if job.run is not None:
        if job.typed:
            raise UserError(f"{job.typed[0]}: not together with run=, which has its own")
        by_folder: dict[Path, list[Subject]] = {}
        for path, subject in load_runs(job.run):
            Run(path).require_plain()
            by_folder.setdefault(Run(path).probe(name), []).append(subject)
        return by_folder
    unread = "model" if job.reference is not None else "seed"
    if given := [override for override in job.typed if override.startswith(unread)]:
        raise UserError(f"{given[0]}: expected only with {'reference' if unread == 'seed' else 'checkpoint'}=")
    if job.reference is not None:
        return {
            job.runs_dir / "probes" / f"{name}-{job.reference}": load_references(job.reference, job.seeds, job.task)
        }
    if not any(override.startswith("task") for override in job.typed):
        raise UserError(f"checkpoint={job.checkpoint}: expected its task too, as task=add")
    if job.model is None:
        subject = load_checkpoint(str(job.checkpoint), job.task)
    else:
        subject = load_state(str(job.checkpoint), job.task, job.network)
    return {job.runs_dir / "probes" / _folder_name(job, ["task"]): [subject]}
