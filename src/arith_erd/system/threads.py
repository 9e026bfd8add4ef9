"""Threads: how many compute, and whether they sleep or spin while they wait for one another."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

from .processors import Available, room_for_threads, usable_processors

LOOK = 0.5
"""Seconds between two looks at the machine."""
FIRST = 0.1
"""Seconds before the first look."""
NAP = 30.0
"""Seconds for which threads sleep at most before the machine is looked at while they spin."""
CHOSEN = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_PROC_BIND", "OMP_PLACES")
"""Environment variables with which somebody else has decided how threads wait, or where they run."""
MOST = 256
"""Idle threads that are worth it."""


def settle_threads(root: Path = Path("/")) -> None:
    """Make torch use the processors that this process may use. Call before torch is loaded.

    ``OMP_NUM_THREADS``, if it is set, is kept. The number does not depend on what else runs, so results do not either.
    """
    processors = usable_processors(root)
    if processors < (os.cpu_count() or 1):
        os.environ.setdefault("OMP_NUM_THREADS", str(processors))


@contextlib.contextmanager
def sleeping_beside_others(root: Path = Path("/")) -> Iterator[None]:
    """In this block, torch's threads sleep at barriers while other programs compute, and spin while none does.

    GNU OpenMP's threads spin at every barrier. On an idle machine that is right: threads that sleep have to be woken
    hundreds of times a step. Where others compute too, the thread for which all wait has no processor, and spinning
    makes a step several times slower than sleeping (``benchmarks/README.md``). So the machine is looked at twice a
    second. Nothing is done with one thread, if the environment says how threads wait or where they run (`CHOSEN`), or
    where the system does not say what its processors do.
    """
    import torch  # not at the top, as in `machine`

    threads, available = torch.get_num_threads(), Available(root)
    if threads == 1 or any(name in os.environ for name in CHOSEN) or not available.known:
        yield
        return
    ended = Event()
    watch = Thread(target=_watch, args=(threads, available, ended), name="watch", daemon=True)
    with contextlib.suppress(RuntimeError):  # no more threads can be started
        watch.start()
    try:
        yield
    finally:
        ended.set()
        if watch.ident is not None:
            watch.join()


def _watch(threads: int, available: Available, ended: Event) -> None:
    """Have threads sleep while others compute, until the event.

    Threads begin to sleep when one of them lacks more than half a processor. They spin again when less than a quarter
    is missing. But others with a low priority use what sleeping threads leave, so now and then one look decides while
    threads spin.
    """
    wait = FIRST
    while not ended.wait(wait):
        wait = LOOK
        if available.processors() < threads - 0.5:
            with _more_threads_than_processors(threads):
                until = time.monotonic() + NAP
                while not ended.wait(LOOK) and available.processors() < threads - 0.25 and time.monotonic() < until:
                    pass


@contextlib.contextmanager
def _more_threads_than_processors(threads: int) -> Iterator[None]:
    """In this block GNU OpenMP has more threads than processors; then those that wait sleep after some 100 turns.

    Once the library is loaded, this is the only way to tell it. It counts the threads of the team that computes, 2 at
    least, and those of all other teams. The other teams have nothing to do: each belongs to a Python thread that waits,
    and ends with it. Other OpenMP libraries take no notice.
    """
    import torch

    def lead_a_team(begun: Event) -> None:
        try:
            torch.ones(threads * 65536, device="cpu").add_(1)  # large enough for all threads
        except RuntimeError:
            pass  # no memory: one team fewer
        finally:
            begun.set()
        ended.wait()

    ended = Event()
    leaders: list[Thread] = []
    teams = -(-(len(os.sched_getaffinity(0)) - 1) // (threads - 1))
    try:
        # OpenMP ends the process if it cannot start a thread.
        if teams * threads <= MOST and room_for_threads(2 * teams * threads):
            for _ in range(teams):
                begun = Event()
                leader = Thread(target=lead_a_team, args=(begun,), name="leader", daemon=True)
                leader.start()
                leaders.append(leader)
                begun.wait()
    except RuntimeError:
        pass  # no more threads can be started
    try:
        yield
    finally:
        ended.set()
        for leader in leaders:
            leader.join()
