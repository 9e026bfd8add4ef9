"""The result of a probe, from Python or the command line: its rows, table, figure and files."""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Console

from ..checks import user_path
from ..errors import UserError, counted
from ..plots.curves import EpochCurves
from ..plots.style import own_style, save_png
from ..plots.tables import column_kinds, print_table
from ..system.files import atomic_file, remove_partial_files, require_writable, write_atomically
from ..system.signals import exits_are_errors
from ..tasks import SAMPLE_SIZE
from .probe import Probe

MAX_PRINTED_ROWS = 40
PROGRESS_INTERVAL = 30.0  # seconds between progress lines without a terminal
MAX_WRITE_TIME = 3600.0  # seconds after which an unfinished file is that of a killed process


@dataclass(frozen=True)
class ProbeResult:
    """The result of a probe: its ``rows``, and a table and a figure of them.

    Attributes:
        probe: the probe that measured.
        rows: the measurements, with the columns that the probe's docstring describes.
        curves: over several epochs of training; table and figure show these curves.
        name: the name of the probe.
        settings: the options on which the rows depend.
    """

    probe: Probe
    rows: pd.DataFrame
    curves: EpochCurves | None = None
    name: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"ProbeResult({self.name}: {len(self.rows)} rows of {', '.join(map(str, self.rows))})"

    @classmethod
    def of(cls, probe: Probe, name: str = "", settings: Mapping[str, Any] | None = None) -> "ProbeResult":
        rows = pd.DataFrame(measure(probe, name or type(probe).__name__), columns=[*probe.columns] or None)
        return cls(probe, rows, name=name or type(probe).__name__.lower(), settings=settings or {})

    def table(self) -> pd.DataFrame:
        """The table that the command line prints."""
        return self.curves.summary_table() if self.curves else self.probe.table(self.rows)

    @own_style()
    def figure(self) -> Figure:
        """The figure that the command line writes."""
        title = f"{self.name.removesuffix('-epochs')} over training"
        return self.curves.draw(title) if self.curves else self.probe.figure(self.rows)

    def summary(self) -> list[str]:
        """Sentences on what the rows say, for probes that have some."""
        return self.probe.summary()

    def notes(self) -> list[str]:
        """Sentences on the limits of the rows."""
        task = getattr(self.probe, "task", None)
        sampled = task is not None and not task.enumerable
        limit = f"measured on at most {SAMPLE_SIZE:,} of the task's examples"
        return [*self.probe.notes(), *([limit] if sampled else [])]

    def save(self, folder: Path | str) -> list[str]:
        """Write ``rows.csv``, ``probe.json``, the probe's own files and ``figure.png``, and return their names."""
        folder = user_path(folder, "folder")
        require_writable("folder", folder)
        folder.mkdir(parents=True, exist_ok=True)
        remove_partial_files(folder, MAX_WRITE_TIME)
        columns = column_kinds(self.rows, self.probe.units)
        description = {"name": self.name, "columns": columns, "across": self.probe.across, "settings": self.settings}
        files: dict[str, str | bytes] = {"rows.csv": self.rows.to_csv(index=False, float_format="%.9g")}
        files["probe.json"] = json.dumps(description, indent=2, default=str) + "\n"  # a causal model becomes text
        files |= {} if self.curves else self.probe.files()
        for file, content in files.items():
            write_atomically(folder / file, content)
        with atomic_file(folder / "figure.png") as partial:  # last, since the rows took longer to measure
            save_png(self.figure(), partial)
        return [*files, "figure.png"]


@exits_are_errors()
def measure(probe: Probe, title: str) -> list[dict[str, Any]]:
    """The rows of a probe, if all its networks can be asked; else a `UserError`. The title is shown while it runs."""
    models = getattr(probe, "models", ())
    for task in {model.task for model in models}:
        task.require_token_names()
        if task.min_bits is not None:
            lengths = f"{task.min_bits} to {task.bits} {task.digit_noun}"
            raise UserError(f"task={task.name}: has operands of {lengths}; expected one length, as in every probe")
    for model in models:
        model.require_causal()
    return collect_rows(probe.rows(), title, len(models))


def collect_rows(rows: Iterable[dict[str, Any]], name: str, networks: int) -> list[dict[str, Any]]:
    """Collect the rows of a probe. Show their number on standard error, always on a terminal, else every 30 s."""
    measured: list[dict[str, Any]] = []
    seeds = set[Any]()
    console = Console(stderr=True, force_jupyter=False)  # a notebook or a script may have replaced the stream
    started = printed = time.monotonic()
    with console.status(name) if console.is_terminal else nullcontext() as status:
        for row in rows:
            measured.append(row)
            seeds.add(row.get("seed"))
            now, site = time.monotonic(), row.get("site")
            places = [f"{len(seeds) - 1} of {networks} networks done"] * (networks > 1) + [f"at {site}"] * bool(site)
            text = ", ".join([name, *places, f"{counted(len(measured), 'row')} after {now - started:.0f} s"])
            if status:
                status.update(text)
            elif now - printed >= PROGRESS_INTERVAL:
                print(text, file=console.file)
                printed = now
    return measured


def print_result(table: pd.DataFrame, notes: Sequence[str], summary: Sequence[str] = ()) -> None:
    """Print the summary, at most forty rows of a table, and the notes."""
    console = Console(markup=False, highlight=False)
    for line in summary:
        console.print(line)
    print_table(table.head(MAX_PRINTED_ROWS), fold=True)
    if len(table) > MAX_PRINTED_ROWS:
        console.print(f"... and {len(table) - MAX_PRINTED_ROWS} more")
    for note in notes:
        console.print(f"note: {note}", style="yellow")
