"""What runs there are, and how far each has got."""

import fcntl
import json
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from glob import glob
from pathlib import Path

from ..errors import UserError, bad_value
from .directory import Run
from .overwriting import successor


@dataclass(frozen=True)
class Listed:
    """One line of the list. None where something is not known."""

    run: str
    state: str
    """``finished``, ``training``, ``failed``, ``killed`` or ``stopped``; ``unreadable`` for a damaged folder.
    ``overwriting, stopped`` and so on for the new run of ``overwrite=true``, which is listed beside the old one."""
    epochs: int | None = None
    """That have ended."""
    max_epochs: int | None = None
    val_seq_acc: float | None = None
    """Validation sequence accuracy after the last of them, the mean over the seeds; a fraction."""
    worst: float | None = None
    """The same of the worst seed."""
    device: str | None = None
    age: float = 0.0
    """Seconds since something was written."""


KEYS = tuple(field.name for field in fields(Listed))
HEADINGS = {"accuracy": "val_seq_acc"}
"""Of the table, where they differ from `KEYS`."""


def list_runs(pattern: str, sort: str = "run", reverse: bool = False) -> list[Listed]:
    """The runs that a glob names, or those inside a folder of runs; unknown values come last.

    Args:
        pattern: the glob, or the folder.
        sort: one of `KEYS`, or of `HEADINGS`.
        reverse: largest first.

    Raises:
        UserError: if there are none, or no such key.
    """
    key = HEADINGS.get(sort, sort)
    if key not in KEYS:
        raise bad_value("--sort", sort, f"one of {', '.join((*KEYS, *HEADINGS))}")
    inside = Path(pattern).is_dir() and not Path(pattern, "config.yaml").is_file()
    paths = [path for path in Path(pattern).iterdir() if path.name[0] != "."] if inside else map(Path, glob(pattern))
    runs = [Run(path) for path in paths if (path / "config.yaml").is_file()]
    new = [(run.name, successor(run)) for run in runs if run.name and successor(run).config_file.is_file()]
    listed = [*map(_listed, runs), *(_overwriting(_listed(run), name) for name, run in new)]
    if not listed:
        raise UserError(f"{pattern}: no run there; expected a folder of runs, or a glob of run directories in quotes")
    known = sorted((x for x in listed if getattr(x, key) is not None), key=lambda x: getattr(x, key), reverse=reverse)
    return known + [x for x in listed if getattr(x, key) is None]


def as_json(listed: Iterable[Listed]) -> str:
    return json.dumps([asdict(run) for run in listed], indent=2)


def _listed(run: Run) -> Listed:
    written = (run.config_file, run.metrics_file, run.summary_file, run.checkpoint)
    newest = max(path.stat().st_mtime for path in written if path.is_file())
    age = max(time.time() - newest, 0.0)
    try:
        rows, config = run.metrics(), run.config()
        epochs = max((row["epoch"] for row in rows), default=0)
        last = [row["val_seq_acc"] for row in rows if row["epoch"] == epochs]
        return Listed(
            run=run.name,
            state=_state(run),
            epochs=epochs,
            max_epochs=int(config["trainer"]["max_epochs"]),
            val_seq_acc=sum(last) / len(last) if last else None,
            worst=min(last, default=None),
            device=str(run.summary()["device"]) if run.finished else None,
            age=age,
        )
    except (UserError, KeyError, TypeError, ValueError):
        return Listed(run.name, "unreadable", age=age)


def _overwriting(new: Listed, name: str) -> Listed:
    """The new run of ``overwrite=true``, under the name of the run that it will replace."""
    return replace(new, run=name, state=f"overwriting, {new.state}")


def _state(run: Run) -> str:
    if run.finished:
        return "finished"
    if _is_locked(run):
        return "training"
    return "failed" if run.error.is_file() else "killed" if run.killed else "stopped"


def _is_locked(run: Run) -> bool:
    """Whether a process holds the lock of the run; the file is only read."""
    with suppress(OSError), (run.path / ".lock").open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
