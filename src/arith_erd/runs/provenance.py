"""Which code a finished run was trained by."""

from ..errors import UserError, printable
from ..system.machine import commit
from .directory import Run


def skipped(run: Run) -> str:
    """The line for a finished run that is not trained again; it says so if other code had trained it."""
    line = f"{run.path}: finished already, skipped"
    try:
        then = run.summary()["versions"]["commit"]
    except (UserError, KeyError, TypeError):
        return line
    now = commit()
    if then is None or now is None or (then == now and not now.endswith("-dirty")):
        return line
    return f"{line}; trained at commit {_described(then)}, this is {_described(now)}"


def _described(commit: object) -> str:
    """``4575d76, with changes``."""
    return printable(str(commit)[:50]).replace("-dirty", ", with changes")
