"""Check paths in runs, write files completely or not at all, and lock run directories, one process for each."""

import errno
import math
import os
import secrets
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import yaml

from ..errors import UserError

fcntl: Any = None
msvcrt: Any = None
try:
    import fcntl
except ImportError:  # Windows
    import msvcrt

MAX_YAML_BYTES, MAX_YAML_VALUES, MAX_YAML_DEPTH = 2**20, 10_000, 50
PARTIAL_PREFIX = ".partial-"
"""Prefix of the names of unfinished files."""
MAX_SIZE = 2**28  # bytes of a file that is read whole, such as the rows of 4,000 epochs and 600 seeds


def run_path(path: Path, root: Path | None = None, limit: float = MAX_SIZE) -> Path:
    """Check and return a path before we read, write or delete a file or folder of a run: a stranger may have made it.

    Raises an `OSError` for a link out of ``root`` (by default the folder of ``path``), a file of more than ``limit``
    bytes, and a pipe or device, which may never end. The root may be a link, and links may stay inside it.
    """
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root or path.parent)):
        raise OSError(errno.ELOOP, "a link out of the run directory; expected a file or folder in it", str(path))
    with suppress(FileNotFoundError):  # a new file
        status = path.stat()
        if not (stat.S_ISDIR(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_size <= limit)):
            raise OSError(errno.EINVAL, f"expected an ordinary file of at most {limit:,} bytes", str(path))
    return path


def is_small_yaml(text: str | bytes, loader: Any, aliases: bool) -> bool:
    """Whether a YAML text has at most 50 levels, and with ``aliases`` 10,000 values, else neither aliases nor tags.

    Aliases can expand a kilobyte to any size, and each level of nesting is a recursive call, also in the YAML library
    in C, whose stack can overflow. So we look at one event at a time, before ``loader`` builds anything.
    """
    sizes: dict[str | None, float] = {}  # anchor -> number of values
    open_nodes: list[tuple[str | None, float]] = []  # anchor, and the number of values before it
    count = 0.0
    for event in yaml.parse(text, loader):
        if isinstance(event, yaml.AliasEvent):
            count += sizes.get(event.anchor, math.inf)  # a node that is still open would contain itself
        elif isinstance(event, yaml.NodeEvent):
            open_nodes.append((event.anchor, count))
            count += 1
        if isinstance(event, yaml.ScalarEvent | yaml.CollectionEndEvent):
            anchor, before = open_nodes.pop()
            sizes[anchor] = count - before
        alias_or_tag = isinstance(event, yaml.AliasEvent) or getattr(event, "tag", None)
        if len(open_nodes) > MAX_YAML_DEPTH or (count > MAX_YAML_VALUES if aliases else alias_or_tag):
            return False
    return True


def require_small_yaml(path: Path) -> None:
    """Raise a `UserError` for a YAML file that is not an ordinary file, or that becomes too large when it is read."""
    with suppress(OSError, yaml.YAMLError, UnicodeError):  # reading the file will report these
        is_small = path.is_file() and path.stat().st_size <= MAX_YAML_BYTES
        if not (is_small and is_small_yaml(path.read_bytes(), yaml.SafeLoader, aliases=True)):
            limits = f"at most {MAX_YAML_VALUES:,} values, {MAX_YAML_DEPTH} levels and no loop"
            raise UserError(f"{path}: expected an ordinary file of {limits}")


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write bytes, or text as UTF-8, by `atomic_file`; half of a surrogate pair is escaped."""
    with atomic_file(path) as partial:
        partial.write_bytes(content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content)


@contextmanager
def atomic_file(path: Path, root: Path | None = None) -> Iterator[Path]:
    """Write a file completely or not at all. The block writes to another path, which then replaces ``path``.

    Several processes may write the same file at once: the last one to finish wins. An `OSError` names ``path``.
    If ``path`` is a link, the link is replaced. Its folder must be in ``root``, as in `run_path`.
    """
    run_path(path.parent, root or path.parent)
    partial = path.with_name(f"{PARTIAL_PREFIX}{secrets.token_hex(8)}")
    with oserrors_naming(path):
        try:
            yield partial
            _flush(partial)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    with suppress(OSError):  # not every file system can flush a folder
        _flush(path.parent)  # so that the rename also survives a power cut


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)  # Windows flushes what it may write
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def oserrors_naming(path: Path) -> Iterator[None]:
    """Make every `OSError` of the block name ``path``: a failed write may name no file, or a temporary one."""
    try:
        yield
    except OSError as error:
        if error.filename is not None and PARTIAL_PREFIX not in str(error.filename):
            raise  # it concerns another file, which the block reads
        raise OSError(error.errno or errno.EIO, error.strerror or str(error), str(path)) from error


def remove_partial_files(folder: Path, min_age: float = -math.inf) -> None:
    """Remove the files that a killed `atomic_file` left in a folder. Only the caller may write there.

    Others may too with a ``min_age``, of the seconds since something was written to a file.
    """
    for path in folder.glob(f"{PARTIAL_PREFIX}*"):
        with suppress(OSError):  # removed by another process, or not a file
            if time.time() - path.lstat().st_mtime >= min_age:
                path.unlink()


def require_writable(key: str, folder: Path | str) -> None:
    """Raise a `UserError` that names the key if a folder cannot be made or written. Nothing is left behind."""
    path = Path(folder).absolute()
    try:
        with tempfile.TemporaryDirectory(dir=next(parent for parent in (path, *path.parents) if parent.exists())):
            pass
    except OSError as error:
        problem = f"cannot be written ({error.strerror}); expected a folder to write to"
        raise UserError(f"{key}={folder}: {problem}") from error


def lock(file: IO[str], shared: bool = False, wait: bool = False) -> None:
    """Lock an open file until it is closed; without ``wait`` a `BlockingIOError` says that a process holds it.

    Windows has no shared locks. There, of two processes that only check a lock, one may find it held.
    """
    if fcntl:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        return
    file.seek(MAX_SIZE)  # lock beyond the text, so that others can read it
    try:
        msvcrt.locking(file.fileno(), msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
    except PermissionError as error:
        raise BlockingIOError(errno.EAGAIN, error.strerror) from error


class InUseError(UserError):
    """Another process uses the folder; its number and host are in the message."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold ``folder/.lock`` within the block. The folder is made if it does not exist.

    If another process holds the lock, an `InUseError` names it. The system releases a lock when its holder ends. The
    file stays: if it were removed, two processes could lock two files of one name.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = run_path(folder / ".lock").open("a+", encoding="utf-8")  # NFS needs write access for a lock
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error.strerror})") from error
    with file:
        try:
            lock(file)
            if os.fstat(file.fileno()).st_nlink == 1:  # with a second name it may be a user's own file
                file.truncate(0)
                print(f"process {os.getpid()} on {socket.gethostname()}", file=file, flush=True)
        except BlockingIOError:
            file.seek(0)
            raise InUseError(f"{folder}: in use by {file.read().strip()}; wait for it, or end it") from None
        except OSError as error:
            advice = "make sure that no other process trains the same run"
            print(f"{folder}: cannot be locked here ({error.strerror}); {advice}")
        yield


def is_locked(folder: Path) -> bool:
    """Whether a process holds the lock of a folder. The file is only read."""
    try:
        with run_path(folder / ".lock").open() as file:
            lock(file, shared=True)
    except BlockingIOError:
        return True
    except OSError:  # no lock was ever made
        pass
    return False
