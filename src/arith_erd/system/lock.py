"""One process at a time in a run directory."""

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from ..errors import UserError


@contextlib.contextmanager
def holding(folder: Path) -> Iterator[None]:
    """Hold ``folder/.lock`` for the length of the block; the folder is made if need be.

    The kernel lets go of the lock when its holder ends, however it ends, so no stale lock is ever left. The file stays:
    to remove it would be to let two processes lock two files of one name. On a network file system the lock reaches
    other hosts where the server supports it (NFS does); a file system without locks is used without.

    Raises:
        UserError: if another process holds it, naming the process and its host; or if the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / ".lock").open("a+")  # NFS wants a lock's file open for writing
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error.strerror})") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise UserError(f"{folder}: in use by {holder}; wait for it, or end it") from None
        except OSError as error:
            print(f"{folder}: cannot be locked here ({error.strerror}); see that no other process trains the same run")
        else:
            with contextlib.suppress(OSError):  # a full disk: the lock is held all the same
                file.truncate(0)
                os.write(file.fileno(), f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        yield
