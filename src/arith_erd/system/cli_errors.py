"""The boundary of a program: every exception becomes one line, and a broken standard output does not end it.

Exit statuses of ``train.py``, ``probe.py`` and the other programs:

======================  ================================================================================================
0                       done; every job of a sweep is finished
1 (`EXIT_FAILED`)       refused input, a failed run (also if your own loss raises), or a sweep with such a job
2                       an option that argparse refuses, after its usage
70 (`EXIT_INTERNAL`)    a fault of this program; the line names the file with the traceback
75 (`EXIT_BUSY`)        another process trains this run; try again later
128 + signal            stopped: 130 Ctrl-C, 143 SIGTERM, 129 SIGHUP, 138 SIGUSR1 (Linux); see `signals`
======================  ================================================================================================
"""

import contextlib
import io
import os
import re
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from typing import Any, TextIO

from ..errors import UserError, excerpt, first_line, printable
from .files import InUseError

EXIT_FAILED, EXIT_INTERNAL, EXIT_BUSY = 1, 70, 75  # the last two are EX_SOFTWARE and EX_TEMPFAIL of sysexits.h
LINE_CODES, TERMINAL_CODES = re.compile(r"([\n\t])"), re.compile(r"([\r\n\t]|\x1b\[[\d;]*[mAK]|\x1b\[\?25[hl])")
USER_CODE_NOTE = "failed: "
"""Prefix of the note that names the user's code that raised an exception."""


def line_and_status(error: Exception) -> tuple[str, int]:
    """An error as one line, and the exit status. Its traceback is in the file that a note names, or in a new file."""
    if isinstance(error, UserError):
        return str(error), EXIT_BUSY if isinstance(error, InUseError) else EXIT_FAILED
    if isinstance(error, PermissionError) and error.filename is not None:
        return first_line(error), EXIT_FAILED
    if isinstance(error, FileNotFoundError):
        where = "the current folder" if error.filename is None else excerpt(str(error.filename))  # os.getcwd names none
        return printable(f"{where}: {error.strerror or first_line(error)}"), EXIT_FAILED
    if isinstance(error, OSError) and error.filename is not None:
        reassurance = "files that were complete before are intact"
        line = f"{excerpt(str(error.filename))}: {error.strerror or first_line(error)}; {reassurance}"
        return printable(line), EXIT_FAILED
    files, user_code = (_notes(error, start) for start in ("see ", USER_CODE_NOTE))
    where = files[-1] if files else "no file"
    with contextlib.suppress(OSError):
        if not files:
            descriptor, where = tempfile.mkstemp(prefix="arith_erd-error-", suffix=".txt")
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                traceback.print_exception(error, file=file)
    origin, status = (user_code[-1], EXIT_FAILED) if user_code else ("internal error", EXIT_INTERNAL)
    return f"{origin}: {printable(first_line(error))}; the traceback is in {where}", status


@contextlib.contextmanager
def naming_user_code(place: str, *parts: object) -> Iterator[None]:
    """Add to an exception of the block a note that names the objects among ``parts`` whose class is the user's own."""
    try:
        yield
    except Exception as error:
        names = [f"{kind.__module__}.{kind.__name__}" for kind in map(type, parts)]
        own = [name for name in names if not name.startswith(("arith_erd.", "torch."))]
        if own and not _notes(error, USER_CODE_NOTE):
            error.add_note(f"{USER_CODE_NOTE}{place}: {' or '.join(own)}")
        raise


def _notes(error: Exception, start: str) -> list[str]:
    return [note.removeprefix(start) for note in getattr(error, "__notes__", ()) if note.startswith(start)]


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """If the block raises, print one line on standard error and exit. `SystemExit`, also after a signal, passes.

    A warning is also one line, printed once. In the block, ``/dev/null`` replaces a closed or full standard output or
    error.
    """
    os.environ["MPLBACKEND"] = "agg"  # figures go to files; a value unknown to matplotlib would stop it
    before, format_before = (sys.stdout, sys.stderr), warnings.formatwarning
    printed: set[str] = set()

    def format_once(message: Warning | str, *_: Any, **__: Any) -> str:
        line = f"warning: {printable(str(message))}\n"
        is_new = line not in printed
        printed.add(line)
        return line if is_new else ""

    warnings.formatwarning = format_once
    with open(os.devnull, "w") as nowhere:  # it takes the number of a closed descriptor, so that no file gets it
        sys.stdout, sys.stderr = (_non_failing(stream or nowhere) for stream in before)
        try:
            yield
        except KeyboardInterrupt:
            raise SystemExit(130) from None
        except Exception as error:
            line, status = line_and_status(error)
            print(f"error: {line}", file=sys.stderr)
            raise SystemExit(status) from None
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            sys.stdout, sys.stderr = before
            warnings.formatwarning = format_before


class NonFailingFile(io.FileIO):
    """An open descriptor whose writes do not fail: it drops what it cannot write."""

    def write(self, data: Any) -> int:
        with contextlib.suppress(OSError):
            return super().write(data)
        return len(data)


class EscapingText(io.TextIOWrapper):
    """A stream that escapes control characters, for example in names of folders, except rich's own on a terminal."""

    def write(self, text: str) -> int:
        codes = TERMINAL_CODES if self.isatty() or "FORCE_COLOR" in os.environ else LINE_CODES
        return super().write("".join(part if codes.fullmatch(part) else printable(part) for part in codes.split(text)))


def _non_failing(stream: TextIO) -> TextIO:
    """The same output through a `NonFailingFile`, line by line; it escapes characters that the encoding lacks."""
    try:
        buffer = io.BufferedWriter(NonFailingFile(stream.fileno(), "wb", closefd=False))
    except OSError:  # not a file
        return stream
    return EscapingText(buffer, stream.encoding, "backslashreplace", line_buffering=True)
