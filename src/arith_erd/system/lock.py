"""A lock on a run directory: only one process at a time trains in it."""

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from ..errors import UserError


class InUseError(UserError):
    """Another process has the folder; its name and host are in the message."""


@contextlib.contextmanager
def holding(folder: Path) -> Iterator[None]:
    """Hold ``folder/.lock`` for the length of the block; the folder is made if it does not exist.

    If another process holds it, an `InUseError` names the process and its host. The kernel releases the lock when its
    holder ends, however it ends. The file stays: without it two processes could lock two files of one name. On a file
    system without locks the block runs unlocked, and says so. ``.lock`` may not be a link.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK  # NFS wants write access for a lock
        descriptor = os.open(folder / ".lock", flags, 0o666)
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error.strerror})") from error
    with os.fdopen(descriptor, "r+", encoding="utf-8", errors="replace") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise InUseError(f"{folder}: in use by {holder}; wait for it, or end it") from None
        except OSError as error:
            alone = "make sure that no other process trains the same run"
            print(f"{folder}: cannot be locked here ({error.strerror}); {alone}")
        else:
            with contextlib.suppress(OSError):  # on a full disk the lock is held without a name in it
                file.truncate(0)
                os.write(file.fileno(), f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        yield
