"""Training a run anew beside the old one, which is kept until the new one has finished.

The new run is trained in ``.NAME.new``, where neither a glob nor the report finds it. Then the two change places. If
that is cut off, the next command completes it (`settle`).

Of several runs that are overwritten one after another, the folders ``.NAME.new`` of those that are left are there from
the moment that one has finished, so that the same command continues with them (`begun_at`).
"""

import shutil
from collections.abc import Sequence

from ..system import lock
from .directory import Run


def successor(run: Run) -> Run:
    """Where the new run is trained."""
    return Run(run.path.with_name(f".{run.name}.new"))


def begun_at(runs: Sequence[Run], none: int = 0) -> int:
    """The number of the run that an interrupted command has yet to overwrite first; ``none`` if there is none."""
    return next((number for number, run in enumerate(runs) if successor(run).path.exists()), none)


def settle(run: Run, left: Sequence[Run] = ()) -> bool:
    """Put a successor that has finished in the place of the old run, and remove the old one.

    Args:
        run: the old one.
        left: runs that are to be overwritten after it.

    Returns:
        Whether there was one.

    Raises:
        UserError: if another process trains the old run.
    """
    new = successor(run)
    if not new.finished:
        return False
    for other in left:  # before the change of places: a kill between the two must not hide what is left
        successor(other).path.mkdir(exist_ok=True)
    old = run.path.with_name(f".{run.name}.old")
    if run.path.exists():
        with lock.holding(run.path):
            shutil.rmtree(old, ignore_errors=True)
            run.path.rename(old)
            new.path.rename(run.path)
    else:
        new.path.rename(run.path)
    shutil.rmtree(old, ignore_errors=True)
    return True
