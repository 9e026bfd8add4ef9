"""Threads: how many compute, and whether they sleep or spin while they wait. Call before torch is loaded."""

import contextlib
import math
import os
import time
from pathlib import Path

PASSIVE = {"OMP_WAIT_POLICY": "PASSIVE"}
LOOK = 0.1  # seconds for which others are watched
CHOSEN = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


def settle_threads(root: Path = Path("/")) -> None:
    """Make torch use the processors that this process may use; beside other work its threads sleep at barriers.

    GNU OpenMP's threads spin at every barrier. On an idle machine that is right: where threads sleep, a step takes 2.5
    times as long, since they have to be woken hundreds of times. Where others compute too, the thread for which all
    wait has no processor, and spinning makes a step 2 to 10 times slower than sleeping. So what the machine does at
    the start of a run decides. The number of threads does not depend on it, so that results do not either. Values that
    the environment already has (``OMP_NUM_THREADS``, ``OMP_WAIT_POLICY``, ``GOMP_SPINCOUNT``) are kept.
    """
    processors = usable_processors(root)
    if processors < (os.cpu_count() or 1):
        os.environ.setdefault("OMP_NUM_THREADS", str(processors))
    threads = _requested_threads() or processors
    if threads > 1 and not any(name in os.environ for name in CHOSEN):
        idle = _idle_processors(root)
        if idle is not None and idle < threads - 0.5:
            os.environ |= PASSIVE


def _requested_threads() -> int | None:
    """The number that ``OMP_NUM_THREADS`` begins with, if it does; it may list one for each level of nesting."""
    number = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(number) if number.isdecimal() else None


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


def _idle_processors(root: Path) -> float | None:
    """How many of the processors allowed to this process did nothing for `LOOK` seconds; None if it cannot be told."""
    before = _idle_ticks(root)
    time.sleep(LOOK)
    after = _idle_ticks(root)
    ticks = LOOK * os.sysconf("SC_CLK_TCK")
    return sum(min((after[p] - before[p]) / ticks, 1.0) for p in before if p in after) if before else None


def _idle_ticks(root: Path) -> dict[int, int]:
    """Clock ticks for which each processor allowed to this process has been idle since the start; {} if not known."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = [line.split() for line in (root / "proc/stat").read_text().splitlines()]
        ticks = {int(line[0][3:]): int(line[4]) for line in lines if line[0][:3] == "cpu" and line[0] != "cpu"}
        return {processor: count for processor, count in ticks.items() if processor in allowed}
    return {}
