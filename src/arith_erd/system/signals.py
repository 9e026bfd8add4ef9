"""Signals: SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 and Ctrl-C end a program between two steps, after a checkpoint.

Slurm sends SIGUSR1 before a time limit (``#SBATCH --signal=USR1@60``). Third-party handlers of SIGUSR1 and SIGUSR2
keep their signals, and are also called between two steps.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Any

from ..errors import UserError, first_line, last_line
from .slurm_commands import requeue

SIGNALS = [s for s in signal.Signals if s.name in ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGINT")]
"""Windows has only SIGTERM and SIGINT."""
THIRD_PARTY_SIGNALS = [s for s in SIGNALS if s.name in ("SIGUSR1", "SIGUSR2")]
DEFAULT_HANDLERS = (signal.SIG_DFL, signal.default_int_handler)
GRACE_SECONDS = 3.0
"""A process that still runs this many seconds after a signal is ended by force."""


class ProgramExit(SystemExit):
    """Ends the program on purpose, unlike a `SystemExit` from a user's own code."""


class Interrupted(ProgramExit):
    """Raised to end the program, including a sweep. No job's error handling catches it."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(128 + number)
        self.signal = number


@dataclass
class _SignalQueue:
    """The signals that have arrived and are not handled yet."""

    received: signal.Signals | None = None  # the signal that we must handle
    deferred_calls: dict[int, Callable[[], object]] = field(default_factory=dict)  # signal -> third-party handler
    catching: bool = False
    deferring: bool = False


_queue = _SignalQueue()  # one for this process


@contextlib.contextmanager
def catch_signals() -> Iterator[None]:
    """Turn the first of `SIGNALS` into `Interrupted`: raised at once, or within `defer_signals` by `raise_pending`.

    A second Ctrl-C exits immediately. Ignored signals stay ignored (``nohup`` ignores SIGHUP). After a signal any other
    exception of the block also becomes `Interrupted`, since it may come from the clean-up of third-party code.
    """
    if not _in_main_thread():
        yield
        return
    outermost, _queue.catching = not _queue.catching, True
    handlers: dict[signal.Signals, Any] = {}
    for number in SIGNALS if outermost else ():
        handler = signal.getsignal(number)
        if handler in DEFAULT_HANDLERS or (number == signal.SIGTERM and handler != signal.SIG_IGN):
            handlers[number] = signal.signal(number, _receive)
    try:
        try:
            if hasattr(signal, "pthread_sigmask"):
                signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # `start` blocks them until we can handle them
            yield
        except Exception as error:
            if _queue.received is None:
                raise
            raise Interrupted(_queue.received) from error
    except Interrupted as stop:
        if outermost:
            print(f"{stop.signal.name}: stopped", file=sys.stderr)  # a run says that it can continue
            requeue(stop.signal)
        raise
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if outermost:
            set_alarm(0)
            _queue.received, _queue.catching = None, False


@contextlib.contextmanager
def defer_signals() -> Iterator[None]:
    """Within the block signals wait for `raise_pending` or the end of the block, also those of third-party handlers."""
    if _queue.deferring or not _in_main_thread():
        yield  # the outer block checks
        return
    _queue.deferring = True
    handlers = {number: signal.getsignal(number) for number in THIRD_PARTY_SIGNALS}
    others: dict[int, Any] = {number: old for number, old in handlers.items() if callable(old) and old != _receive}
    for number in others:
        signal.signal(number, lambda n, frame: _queue.deferred_calls.update({n: partial(others[n], n, frame)}))
    try:
        yield
    finally:
        for number, handler in others.items():
            signal.signal(number, handler)
        _queue.deferring = False
        raise_pending()  # also replaces Lightning's own SIGTERMException


def pending() -> bool:
    return _queue.received is not None or bool(_queue.deferred_calls)


def raise_pending() -> None:
    """Call the waiting third-party handlers; then raise `Interrupted` if a signal was for us."""
    if not _in_main_thread():
        return
    while _queue.deferred_calls:
        _, handler = _queue.deferred_calls.popitem()
        set_alarm(0)  # a handler may put the job back into the queue, which can take long
        try:
            handler()
        except SystemExit as stop:
            _queue.received = None  # the program ends here anyway, and a handler may have requeued the job
            raise ProgramExit(stop.code) from stop
    if _queue.received is not None:
        raise Interrupted(_queue.received)


def _receive(number: int, frame: FrameType | None) -> None:
    if _queue.received is not None:
        if number == signal.SIGINT:  # a second Ctrl-C
            if os.isatty(2):
                os.write(2, b"\x1b[?25h\n")  # the progress bar hid the cursor
            os._exit(128 + signal.SIGINT)
        return
    _queue.received = signal.Signals(number)
    set_alarm(GRACE_SECONDS)
    if not _queue.deferring:
        raise_pending()


def set_alarm(seconds: float) -> None:
    """End this process after this many seconds, unless the alarm is set again; 0 means never. Windows has no alarm."""
    if not hasattr(signal, "setitimer"):
        return
    if seconds:
        signal.signal(signal.SIGALRM, _exit_after_grace)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _exit_after_grace(*_: object) -> None:
    """End a process that is stuck in a long step or waits for a server. Files are atomic, so none is half-written."""
    if _queue.received is not None:
        requeue(_queue.received)
        os._exit(128 + _queue.received)


@contextlib.contextmanager
def exits_are_errors() -> Iterator[None]:
    """Within the block, or the decorated function, ``sys.exit`` and the like in a user's code raise a `UserError`."""
    try:
        yield
    except (Exception, KeyboardInterrupt, ProgramExit):
        raise
    except BaseException as error:  # a status of 0 would look like success
        if isinstance(error.__context__, KeyboardInterrupt):  # Lightning exits after one
            raise error.__context__ from None
        if type(error).__module__.startswith("lightning."):  # the calling program does not catch SIGTERM
            raise
        # Ours is not the last line of all, since wandb wraps exit.
        place = last_line(error, lambda path: "site-packages" not in path) or last_line(error, lambda path: True)
        raise UserError(f"{place}: {first_line(error)}; expected a result, or an error such as ValueError") from error


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()  # handlers can be set only there
