"""The boundary of a program: every exception leaves as one line.

Exit statuses of ``train.py``, ``probe.py`` and the other programs:

=====================  =================================================================================================
0                      done; every job of a sweep is finished
1 (`FAILED`)           refused input, a failed run (your own loss that raises, too), or a sweep with such a job
2                      an option that Hydra or argparse does not know
70 (`INTERNAL`)        an error of ours; the line names the file with the traceback
75 (`BUSY`)            another process trains this run; try again later
128 + signal           stopped: 130 Ctrl-C, 143 SIGTERM, 129 SIGHUP, 138 SIGUSR1 (Linux); the same command continues
=====================  =================================================================================================
"""

import contextlib
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator

from ..errors import UserError, first_line, printable
from .lock import InUseError
from .signals import signals_caught

FAILED = 1
FAILURE = "failed: "
"""How a note begins on an exception of code that is not ours; which code follows."""
INTERNAL = 70
"""EX_SOFTWARE of sysexits.h."""
BUSY = 75
"""EX_TEMPFAIL of sysexits.h."""


def explain(error: Exception) -> tuple[str, int]:
    """One line for people, and the exit status. A traceback is in the file of its note, or a new one."""
    if isinstance(error, UserError):
        return str(error), BUSY if isinstance(error, InUseError) else FAILED
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}; files that were complete before are intact", FAILED
    seen, failure = (_notes(error, start) for start in ("see ", FAILURE))
    if not seen:
        with tempfile.NamedTemporaryFile("w", prefix="arith_erd-error-", suffix=".txt", delete=False) as file:
            traceback.print_exception(error, file=file)
        seen = [file.name]
    whose, status = (failure[-1], FAILED) if failure else ("internal error", INTERNAL)
    return f"{whose}: {printable(first_line(error))}; the traceback is in {seen[-1]}", status


def _notes(error: Exception, start: str) -> list[str]:
    return [note.removeprefix(start) for note in getattr(error, "__notes__", ()) if note.startswith(start)]


@contextlib.contextmanager
def program() -> Iterator[None]:
    """The block is a whole program: exceptions become one line, and signals end it as `signals` says."""
    with one_line_errors(), signals_caught():
        yield


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """Exit with a line on standard error if the block raises. `SystemExit`, a stop on a signal included, passes."""
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BrokenPipeError:  # who read the output has ended, as ``head`` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        raise SystemExit(FAILED) from None
    except Exception as error:
        line, status = explain(error)
        print(f"error: {line}", file=sys.stderr)
        raise SystemExit(status) from None
