"""Training a run anew beside the old one, which is kept until the new one has finished.

The new run is trained in ``.NAME.new``, where neither a glob nor the report finds it. Then the two change places. If
that is cut off, the next command completes it (`settle`).
"""

import shutil

from ..system import lock
from .directory import Run


def successor(run: Run) -> Run:
    """Where the new run is trained."""
    return Run(run.path.with_name(f".{run.name}.new"))


def settle(run: Run) -> None:
    """Put a successor that has finished in the place of the old run, and remove the old one.

    Raises:
        UserError: if another process trains the old run.
    """
    new = successor(run)
    if not new.finished:
        return
    old = run.path.with_name(f".{run.name}.old")
    if run.path.exists():
        with lock.holding(run.path):
            shutil.rmtree(old, ignore_errors=True)
            run.path.rename(old)
            new.path.rename(run.path)
    else:
        new.path.rename(run.path)
    shutil.rmtree(old, ignore_errors=True)
