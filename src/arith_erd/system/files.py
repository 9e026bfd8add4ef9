"""Atomic writes."""

import contextlib
import errno
import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ..errors import UserError

PARTIAL = ".partial-"
"""How the names of unfinished files begin."""


def require_writable(key: str, folder: Path | str) -> None:
    """Refuse, naming the key that set it, a folder that cannot be made or written; nothing is left behind."""
    whole = Path(folder).absolute()
    try:
        with tempfile.TemporaryDirectory(dir=next(path for path in (whole, *whole.parents) if path.exists())):
            pass
    except OSError as error:
        accepted = f"cannot be written ({error.strerror}); expected a folder to write to"
        raise UserError(f"{key}={folder}: {accepted}") from error


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """An `OSError` of the block names ``path``. Else a failed write names no file, or a temporary one."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno or errno.EIO, error.strerror or str(error), str(path)) from error


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Write a file whole or not at all: the block writes to the path it is given, in the same folder.

    After the block that file is flushed and takes the place of ``path``; if the block fails it is removed. Several
    processes may write the same file at once: the last one to finish wins. An `OSError` names ``path``.
    """
    partial = path.with_name(f"{PARTIAL}{secrets.token_hex(8)}")
    try:
        with naming(path):
            yield partial
            _flush(partial)
            partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # not every file system can flush a folder
        _flush(path.parent)  # a rename is an entry there, and has to survive a power cut too


def remove_partial_files(folder: Path) -> None:
    """Remove what a killed `replacing` left in a folder. The caller must be the only one who writes there."""
    for path in folder.glob(f"{PARTIAL}*"):
        path.unlink(missing_ok=True)


def write_atomically(path: Path, text: str) -> None:
    """`replacing`, for text, as UTF-8; half of a surrogate pair is escaped."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8", errors="backslashreplace")


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
