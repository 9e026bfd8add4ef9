"""Threads: how many compute, and whether they sleep or spin while they wait for one another."""

import contextlib
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

LOOK = 0.5
"""Seconds between two looks at the machine."""
CHOSEN = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
"""Environment variables with which somebody else has decided how threads wait."""


def settle_threads(root: Path = Path("/")) -> None:
    """Make torch use the processors that this process may use. Call before torch is loaded.

    ``OMP_NUM_THREADS``, if it is set, is kept. The number does not depend on what else runs, so results do not either.
    """
    processors = usable_processors(root)
    if processors < (os.cpu_count() or 1):
        os.environ.setdefault("OMP_NUM_THREADS", str(processors))


def usable_processors(root: Path = Path("/")) -> int:
    """Processors that this process may use, by affinity and by the quota of its container; at least one."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota(root)
    return max(1, allowed if quota is None else min(allowed, math.ceil(quota)))


def _quota(root: Path) -> float | None:
    """Processors that the control group may use, 1.5 for example; None without a limit."""
    groups = root / "sys/fs/cgroup"
    for files in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):  # of version 2, of version 1
        with contextlib.suppress(OSError, ValueError):  # no such file, or the word "max"
            quota, period = map(int, " ".join((groups / name).read_text() for name in files).split())
            return quota / period if quota > 0 and period > 0 else None
    return None


@contextlib.contextmanager
def sleeping_beside_others(root: Path = Path("/")) -> Iterator[None]:
    """In this block, torch's threads sleep at barriers while other programs compute, and spin while none does.

    GNU OpenMP's threads spin at every barrier. On an idle machine that is right: threads that sleep have to be woken
    hundreds of times a step. Where others compute too, the thread for which all wait has no processor, and spinning
    makes a step several times slower than sleeping (``benchmarks/README.md``). So the machine is looked at twice a
    second. Nothing is done where there is no ``/proc/stat``, with one thread, or if the environment says how threads
    wait (``OMP_WAIT_POLICY``, ``GOMP_SPINCOUNT``).
    """
    import torch  # not at the top, as in `machine`

    threads = torch.get_num_threads()
    if threads == 1 or any(name in os.environ for name in CHOSEN) or _work(root) is None:
        yield
        return
    ended = Event()
    watch = Thread(target=_watch, args=(threads, ended, root), name="watch", daemon=True)
    watch.start()
    try:
        yield
    finally:
        ended.set()
        watch.join()


def _watch(threads: int, ended: Event, root: Path) -> None:
    """Have threads sleep while others compute, until the event."""
    others, allowed = Others(root), len(os.sched_getaffinity(0))
    while not ended.wait(LOOK):
        if crowded(others.used(), allowed, threads):
            with _more_threads_than_processors(threads, allowed):
                while not ended.wait(LOOK) and crowded(others.used(), allowed, threads, already=True):
                    pass


def crowded(others: float, allowed: int, threads: int, already: bool = False) -> bool:
    """Whether others use so many of the allowed processors that some thread has to wait for one.

    Half a processor may be missing. Threads that sleep already spin again once at most a quarter is.
    """
    return others > allowed - threads + (0.25 if already else 0.5)


class Others:
    """How many processors other programs use, of those that this process may use.

    Args:
        root: of the file system.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.before = self._now()

    def used(self) -> float:
        """The average since the last call, or since the start; 0 if it cannot be told."""
        before, self.before = self.before, self._now()
        all_work, own_work, seconds = (after - b for after, b in zip(self.before, before, strict=True))
        return (all_work - own_work) / seconds if seconds > 0 else 0.0

    def _now(self) -> tuple[float, float, float]:
        own = time.process_time()
        work = _work(self.root)
        return own if work is None else work, own, time.monotonic()


def _work(root: Path) -> float | None:
    """Seconds for which the processors allowed to this process have worked since the machine started.

    Not counted: waiting for a disk, and what a hypervisor takes away. None if the system does not say.
    """
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = [line.split() for line in (root / "proc/stat").read_text().splitlines()]
        processors = {int(line[0][3:]): line[1:] for line in lines if line[0][:3] == "cpu" and line[0] != "cpu"}
        user_nice_system_irq_softirq = (0, 1, 2, 5, 6)
        ticks = sum(
            int(processors[p][field]) for p in allowed & processors.keys() for field in user_nice_system_irq_softirq
        )
        return ticks / os.sysconf("SC_CLK_TCK") if allowed & processors.keys() else None
    return None


@contextlib.contextmanager
def _more_threads_than_processors(threads: int, allowed: int) -> Iterator[None]:
    """In this block GNU OpenMP has more threads than processors; then those that wait sleep after some 100 turns.

    Once the library is loaded, this is the only way to tell it. The additional threads have nothing to do: they are
    teams of Python threads that wait, and they end with those. Other OpenMP libraries take no notice.
    """
    import torch

    ended = Event()

    def lead_a_team(begun: Event) -> None:
        torch.ones(threads * 65536, device="cpu").add_(1)  # large enough for all threads
        begun.set()
        ended.wait()

    teams = (allowed - 1) // (threads - 1)  # beside the team that computes, each adds threads - 1
    leaders = []
    for _ in range(teams):
        begun = Event()
        leaders.append(Thread(target=lead_a_team, args=(begun,), name="leader", daemon=True))
        leaders[-1].start()
        begun.wait()
    try:
        yield
    finally:
        ended.set()
        for leader in leaders:
            leader.join()
