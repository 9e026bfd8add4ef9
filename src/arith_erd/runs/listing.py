"""What runs there are, and how far each has got."""

import fcntl
import json
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from glob import glob
from pathlib import Path

from ..errors import UserError
from .directory import Run


@dataclass(frozen=True)
class Listed:
    """One line of the list. None where something is not known."""

    run: str
    state: str
    """``finished``, ``training``, ``failed``, ``killed`` or ``stopped``; ``unreadable`` for a damaged folder."""
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


def list_runs(pattern: str, sort: str = "run", reverse: bool = False) -> list[Listed]:
    """The runs that a glob names, or those inside a folder of runs; unknown values come last.

    Raises:
        UserError: if there are none.
    """
    inside = Path(pattern).is_dir() and not Path(pattern, "config.yaml").is_file()
    paths = [Path(path) for path in (glob(f"{pattern}/*") if inside else glob(pattern))]
    listed = [_listed(Run(path)) for path in paths if (path / "config.yaml").is_file()]
    if not listed:
        raise UserError(f"{pattern}: no run there; expected a folder of runs, or a glob of run directories in quotes")
    known = sorted((x for x in listed if getattr(x, sort) is not None), key=lambda x: getattr(x, sort), reverse=reverse)
    return known + [x for x in listed if getattr(x, sort) is None]


def as_json(listed: Iterable[Listed]) -> str:
    return json.dumps([asdict(run) for run in listed], indent=2)


def _listed(run: Run) -> Listed:
    newest = max(path.stat().st_mtime for path in (run.config_file, run.summary_file, run.checkpoint) if path.is_file())
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
