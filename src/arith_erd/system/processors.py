"""Processors: how many this process may use, and how many of them other programs leave to it."""

import contextlib
import math
import os
import time
from pathlib import Path

USER_NICE_SYSTEM_IRQ_SOFTIRQ = (0, 1, 2, 5, 6)
"""The fields of a line of ``/proc/stat`` that count work. Left out: waiting for a disk, and what a hypervisor takes."""


def usable_processors(root: Path = Path("/")) -> int:
    """Processors that this process may use, by affinity and by the quota of its container; at least one."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min([allowed, *_quotas(root).values()])))


def _quotas(root: Path) -> dict[Path, float]:
    """Processors that each control group of this process may use, 1.5 for example; groups without a limit are left out.

    The groups are those from the top down to this process's own, and in version 1 what a container sees as the top.
    """
    top = root / "sys/fs/cgroup"
    own = ""
    with contextlib.suppress(OSError):
        lines = (root / "proc/self/cgroup").read_text().splitlines()
        own = next((line[len("0::/") :] for line in lines if line.startswith("0::/")), "")
    folder, found = top / own, {}
    for group in [*(group for group in (folder, *folder.parents) if group.is_relative_to(top)), top / "cpu"]:
        for files in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):  # of version 2, of version 1
            with contextlib.suppress(OSError, ValueError):  # no such file, or the word "max"
                quota, period = map(int, " ".join((group / name).read_text() for name in files).split())
                if quota > 0 and period > 0:
                    found[group] = quota / period
    return found


class Available:
    """How many processors this process could use: those that it may use, less what other programs use of them.

    Programs that this process has started are others, too.

    Args:
        root: of the file system.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root
        self.before = self._now()

    @property
    def known(self) -> bool:
        """Whether the system says what its processors do."""
        return bool(self.before[2])

    def processors(self) -> float:
        """The average since the last call, or since the start. Infinite if it is not known."""
        (seconds_before, own_before, before), self.before = self.before, self._now()
        seconds_now, own_now, now = self.before
        seconds, own = seconds_now - seconds_before, own_now - own_before
        if seconds <= 0:
            return math.inf
        both = now.keys() & before.keys()  # an affinity or a quota may have changed
        return min((key[1] - (now[key] - before[key] - own) / seconds for key in both), default=math.inf)

    def _now(self) -> tuple[float, float, dict[tuple[str, float], float]]:
        """The time, the seconds that this process has worked, and all work on processors of which there is a number."""
        work: dict[tuple[str, float], float] = {}
        own = time.process_time()
        allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
        with contextlib.suppress(OSError, ValueError, IndexError):
            lines = [line.split() for line in (self.root / "proc/stat").read_text().splitlines()]
            fields = {int(line[0][3:]): line[1:] for line in lines if line[0][:3] == "cpu" and line[0] != "cpu"}
            ours = sorted(allowed & fields.keys())
            ticks = sum(int(fields[processor][field]) for processor in ours for field in USER_NICE_SYSTEM_IRQ_SOFTIRQ)
            if ours:
                work[str(ours), len(ours)] = ticks / os.sysconf("SC_CLK_TCK")
        for group, quota in _quotas(self.root).items():
            with contextlib.suppress(OSError, ValueError, IndexError):
                name, microseconds = (group / "cpu.stat").read_text().split()[:2]
                if name == "usage_usec":
                    work[str(group), quota] = int(microseconds) / 1e6
        return time.monotonic(), own, work


def room_for_threads(number: int, root: Path = Path("/")) -> bool:
    """Whether the container allows so many threads more."""
    with contextlib.suppress(OSError, ValueError):  # no limit
        most, now = (int((root / "sys/fs/cgroup" / name).read_text()) for name in ("pids.max", "pids.current"))
        return now + number < most
    return True
