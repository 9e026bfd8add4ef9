"""Stopping on request: SIGTERM, SIGHUP, SIGUSR1 and Ctrl-C end a program between two steps of training.

A checkpoint is written first (`training.checkpoint.ResumePoint`), and the same command resumes at that step.

SIGTERM is sent by schedulers, containers and `kill`; SIGHUP when a terminal or an ssh session closes; SIGUSR1 by
Slurm, ahead of a time limit. `requeue` says what happens to a job of Slurm then.

Third-party handlers of SIGUSR1 and SIGUSR2 keep their signals, and are called between two steps too: under
hydra-submitit-launcher, submitit is told of a time limit, requeues the job, and exits.

`boundary` documents the exit status.
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

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGINT)
OTHERS = (signal.SIGUSR1, signal.SIGUSR2)
GRACE = 3.0
"""Seconds before a process that is still running is ended by force."""
NOTICE = 10.0
"""Seconds before a third-party handler is called in the middle of a step; submitit's notice is minutes."""


class Preempted(SystemExit):
    """Ends the program, including a sweep; no job's error handling catches it."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(128 + number)
        self.signal = number


class Inbox:
    """The signals that have arrived and are not handled yet. There is one for the process."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        """For us."""
        self.waiting: dict[int, Callable[[], object]] = {}
        """Third-party handlers with their arguments, by signal, to be called at the next `check`."""
        self.running: int | None = None
        """Signal whose third-party handler is running."""
        self.deferring = False

    @contextlib.contextmanager
    def caught(self) -> Iterator[None]:
        """Turn the first of `SIGNALS` into `Preempted`: raised at once, or within `deferred` by `check`.

        A second Ctrl-C exits immediately. Ignored signals stay ignored (``nohup`` ignores SIGHUP), and SIGUSR1 stays
        with a third-party handler if there is one.
        """
        if not _in_main_thread():
            yield
            return
        defaults = (signal.SIG_DFL, signal.default_int_handler)
        before = {number: signal.getsignal(number) for number in SIGNALS}
        ours = [n for n, old in before.items() if old in defaults or (n == signal.SIGTERM and old != signal.SIG_IGN)]
        outermost = self._receive not in before.values()
        for number in ours:
            signal.signal(number, self._receive)
        try:
            yield
        finally:
            for number in ours:
                signal.signal(number, before[number])
            if outermost:
                signal.setitimer(signal.ITIMER_REAL, 0)
                self.received = None

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Within the block signals wait for the next `check`, or for the block's end; third-party handlers too."""
        if self.deferring or not _in_main_thread():
            yield  # the outer block checks
            return
        handlers = {number: signal.getsignal(number) for number in OTHERS}
        others = {number: old for number, old in handlers.items() if callable(old) and old != self._receive}

        def put_off(number: int, frame: FrameType | None) -> None:
            if number != self.running:
                self.waiting.setdefault(number, partial(others[signal.Signals(number)], number, frame))
                if self.received is None and self.running is None:  # else an earlier alarm is set, or will be
                    self._leave_in(NOTICE)

        self.deferring = True
        try:
            for number in others:
                signal.signal(number, put_off)
            yield
        finally:
            blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {*OTHERS, signal.SIGALRM})
            for number, handler in others.items():
                signal.signal(number, handler)
            self.deferring = False
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            self.check()  # also replaces Lightning's own SIGTERMException

    def asked(self) -> bool:
        """Whether a signal waits."""
        return self.received is not None or bool(self.waiting)

    def check(self) -> None:
        """Call the third-party handlers that wait; then raise `Preempted` if a signal was for us."""
        if not _in_main_thread():
            return
        self._call_others()
        if self.received is not None:
            raise Preempted(self.received)

    def _call_others(self) -> None:
        while self.waiting and self.running is None:
            try:
                self.running, handler = self.waiting.popitem()
            except KeyError:  # an alarm came in between, and has called it
                return
            try:
                handler()
            except SystemExit:
                self.received = None  # the program ends here anyway, and the job may be back in the queue
                raise
            finally:
                self.running = None
                if self.received is not None:
                    self._leave_in(GRACE)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            if number == signal.SIGINT:
                _exit_immediately()
            return
        self.received = signal.Signals(number)
        if self.running is not None:
            return
        self._leave_in(GRACE)
        if not self.deferring:
            self.check()

    def _leave_in(self, seconds: float) -> None:
        signal.signal(signal.SIGALRM, self._leave)
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def _leave(self, *_: object) -> None:
        """End a process stuck in a long step, or waiting for a server; files are atomic, so none is half-written.

        Third-party handlers that wait are called first; one that is running is left to finish.
        """
        if self.running is not None:
            return
        ours = self.received  # a signal that arrives while others' handlers run sets its own alarm
        self._call_others()
        if ours is not None:
            requeue(ours)
            os._exit(128 + ours)


_inbox = Inbox()
signals_caught, deferred, asked, check = _inbox.caught, _inbox.deferred, _inbox.asked, _inbox.check


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()  # handlers can be set only there


def _exit_immediately() -> None:
    if sys.stderr.isatty():
        os.write(2, b"\x1b[?25h\n")  # the progress bar hid the cursor
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
    os._exit(128 + signal.SIGINT)  # the first process of a container is not ended by a signal
