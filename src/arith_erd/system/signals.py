"""Asked to leave: SIGTERM, SIGUSR1 and Ctrl-C end a program between two steps of training.

A checkpoint is written first (`checkpoint.ResumePoint`), and the same command goes on from that step.

SIGTERM is what schedulers, containers and `kill` send; SIGUSR1 is for Slurm, ahead of a time limit. What happens to a
job of Slurm then says `requeue`.

Another's handler of SIGUSR1 or SIGUSR2 keeps its signal, and is called between two steps too: under
hydra-submitit-launcher it is submitit that is told of a time limit, requeues the job, and exits.

The exit status is 128 + the signal's number: 143, 138 (on Linux) or 130.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType

from .requeue import requeue

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
OTHERS = (signal.SIGUSR1, signal.SIGUSR2)
GRACE = 3.0
"""Seconds after which a process that has not got to its end leaves all the same."""
NOTICE = 10.0
"""Seconds after which another's handler is called in the middle of a step; submitit's notice is minutes."""


class Preempted(SystemExit):
    """Ends the program, a sweep and all; no job's error handling catches it."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(128 + number)
        self.signal = number


_received: signal.Signals | None = None
_deferring = False
_waiting: dict[int, Callable[[], object]] = {}
"""Others' handlers with their arguments, by signal: to be called at the next `check`."""
_called: int | None = None
"""The signal whose handler, another's, is running."""


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()  # only there can one say what a signal does


@contextlib.contextmanager
def signals_caught() -> Iterator[None]:
    """Turn the first of `SIGNALS` into `Preempted`: raised at once, or within `deferred` by `check`.

    A second Ctrl-C ends the process on the spot. Signals that are ignored stay so, and SIGUSR1 stays with whoever
    listens already.
    """
    global _received
    if not _in_main_thread():
        yield
        return
    defaults = (signal.SIG_DFL, signal.default_int_handler)
    before = {number: signal.getsignal(number) for number in SIGNALS}
    ours = [n for n, old in before.items() if old in defaults or (n == signal.SIGTERM and old != signal.SIG_IGN)]
    outermost = _receive not in before.values()
    for number in ours:
        signal.signal(number, _receive)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])
        if outermost:
            signal.setitimer(signal.ITIMER_REAL, 0)
            _received = None


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Within the block a signal waits for the next `check`, or for the block's end. Others' handlers wait likewise."""
    global _deferring
    if _deferring or not _in_main_thread():
        yield  # the outer block sees to it
        return
    handlers = {number: signal.getsignal(number) for number in OTHERS}
    others = {number: old for number, old in handlers.items() if callable(old) and old is not _receive}

    def put_off(number: int, frame: FrameType | None) -> None:
        if number != _called:
            _waiting.setdefault(number, partial(others[signal.Signals(number)], number, frame))
            if _received is None and _called is None:  # else there is an alarm, and sooner, or there will be
                _leave_in(NOTICE)

    _deferring = True
    try:
        for number in others:
            signal.signal(number, put_off)
        yield
    finally:
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {*OTHERS, signal.SIGALRM})
        for number, handler in others.items():
            signal.signal(number, handler)
        _deferring = False
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        check()  # instead of Lightning's own SIGTERMException too


def asked() -> bool:
    """Whether a signal waits."""
    return _received is not None or bool(_waiting)


def check() -> None:
    """Call others' handlers that wait, and go on if they come back; raise `Preempted` if a signal was for us."""
    if not _in_main_thread():
        return
    _call_others()
    if _received is not None:
        raise Preempted(_received)


def _call_others() -> None:
    global _received, _called
    while _waiting and _called is None:
        try:
            _called, handler = _waiting.popitem()
        except KeyError:  # an alarm came in between, and has called it
            return
        try:
            handler()
        except SystemExit:
            _received = None  # this is the end already, and the job may be back in the queue
            raise
        finally:
            _called = None
            if _received is not None:
                _leave_in(GRACE)


def _receive(number: int, frame: FrameType | None) -> None:
    global _received
    if _received is not None:
        if number == signal.SIGINT:
            _out_at_once()
        return
    _received = signal.Signals(number)
    if _called is not None:
        return
    _leave_in(GRACE)
    if not _deferring:
        check()


def _leave_in(seconds: float) -> None:
    signal.signal(signal.SIGALRM, _leave)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _leave(*_: object) -> None:
    """End a process that a long step, or a server, keeps; files are replaced whole, so none is left half-written.

    Others' handlers come first, if they wait. One that runs is left to its end.
    """
    if _called is not None:
        return
    ours = _received  # what comes while others' handlers run has its own alarm
    _call_others()
    if ours is not None:
        requeue(ours)
        os._exit(128 + ours)


def _out_at_once() -> None:
    if sys.stderr.isatty():
        os.write(2, b"\x1b[?25h\n")  # the progress bar hid the cursor
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
    os._exit(128 + signal.SIGINT)  # the first process of a container is not ended by a signal
