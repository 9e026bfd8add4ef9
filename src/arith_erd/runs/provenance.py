"""What a finished run that is not trained again may lack: the code of today, weights over time."""

from ..errors import UserError, printable
from ..system.machine import commit
from .directory import Run
from .kept import NOTHING, Keep
from .overwriting import successor


def skipped(run: Run, keep: Keep = NOTHING) -> str:
    """The line for a finished run that is not trained again.

    It says so if other code had trained it, if it lacks weights that ``keep`` asks for, or if a new run that is to
    replace it has not finished.
    """
    line = f"{run.path}: finished already, skipped"
    new = successor(run)
    if new.config_file.is_file() and not new.finished:
        line += f"; {new.name} is half trained: overwrite=true completes it"
    try:
        summary = run.summary()
        then, seeds = summary["versions"]["commit"], [row["seed"] for row in summary["seeds"]]
        missing = run.missing_epochs(keep, seeds, summary["epochs"]) if keep != NOTHING else []
    except (UserError, KeyError, TypeError):
        return line
    now = commit()
    if then is not None and now is not None and (then != now or now.endswith("-dirty")):
        line += f"; trained at commit {_described(then)}, this is {_described(now)}"
    if missing:
        line += f"; it kept no weights of {len(missing)} epoch(s): overwrite=true trains it again and keeps them"
    return line


def _described(commit: object) -> str:
    """``4575d76, with changes``."""
    return printable(str(commit)[:50]).replace("-dirty", ", with changes")
