"""Run a module as if this were Windows: ``python -m tests.behaviour.without_posix MODULE ARGUMENT..``

What only POSIX has is gone for our modules: other libraries, which ask for the platform, are imported before.
``msvcrt`` is a stand-in.
"""

import fcntl
import os
import runpy
import signal
import sys
from enum import IntEnum
from types import SimpleNamespace

import matplotlib.figure  # noqa: F401
import sklearn.linear_model  # noqa: F401
import wandb  # noqa: F401
from lightning.pytorch.trainer.connectors import signal_connector

MODULES = ("fcntl", "pwd", "resource", "termios")
NAMES = {
    os: ("sysconf", "geteuid", "getuid", "fork", "killpg", "setsid"),
    signal: ("SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM", "setitimer", "ITIMER_REAL", "pthread_sigmask"),
}
SIGNALS = ("SIGABRT", "SIGFPE", "SIGILL", "SIGINT", "SIGSEGV", "SIGTERM")  # those of Windows


def locking(descriptor: int, mode: int, size: int) -> None:
    """``msvcrt.locking``: lock so many bytes from here on for this process; mode 0 waits."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | (mode and fcntl.LOCK_NB), size, 0, os.SEEK_CUR)
    except BlockingIOError as error:
        raise PermissionError(*error.args) from error


if __name__ == "__main__":
    sys.modules["msvcrt"] = SimpleNamespace(locking=locking, LK_LOCK=0, LK_NBLCK=1)
    sys.modules |= dict.fromkeys(MODULES)
    for module, names in NAMES.items():
        for name in names:
            delattr(module, name)
    signal.Signals = IntEnum("Signals", [(name, signal.Signals[name]) for name in SIGNALS])
    signal.valid_signals = lambda: {*signal.Signals}
    signal_connector._IS_WINDOWS = True
    _, sys.argv = sys.argv[0], sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
