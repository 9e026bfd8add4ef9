"""A lock on a run directory: only one process at a time trains in it."""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import UserError


class InUseError(UserError):
    """Another process has the folder; its name and host are in the message."""


@contextmanager
def holding(folder: Path) -> Iterator[None]:
    """Hold ``folder/.lock`` for the length of the block; the folder is made if it does not exist.

    If another process holds it, an `InUseError` names the process and its host. The kernel releases the lock when its
    holder ends, however it ends. The file stays: without it two processes could lock two files of one name. On a file
    system without locks the block runs unlocked, and says so.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / ".lock").open("a+", encoding="utf-8")  # NFS wants write access for a lock
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error.strerror})") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.truncate(0)
            print(f"process {os.getpid()} on {socket.gethostname()}", file=file, flush=True)
        except BlockingIOError:
            file.seek(0)
            raise InUseError(f"{folder}: in use by {file.read().strip()}; wait for it, or end it") from None
        except OSError as error:
            alone = "make sure that no other process trains the same run"
            print(f"{folder}: cannot be locked here ({error.strerror}); {alone}")
        yield


def is_held(folder: Path) -> bool:
    """Whether a process holds the lock of a folder; the file is only read."""
    try:
        with (folder / ".lock").open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no lock was ever made
        pass
    return False
