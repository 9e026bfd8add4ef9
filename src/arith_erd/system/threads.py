"""Threads: how many compute, and whether they sleep or spin while they wait. Call before torch is loaded."""

import math
import os
from pathlib import Path

WAITING = {"OMP_WAIT_POLICY": "PASSIVE"}


def settle_threads(root: Path = Path("/")) -> None:
    """Make torch use the processors that this process may use, with threads that sleep at barriers.

    By default GNU OpenMP's threads spin at every barrier. On a machine with other work, the thread that they wait for
    then has no processor to run on, and a training step takes ten to a hundred times as long. Values that the
    environment already has (``OMP_NUM_THREADS``, ``OMP_WAIT_POLICY``, ``GOMP_SPINCOUNT``) are kept.
    """
    if "GOMP_SPINCOUNT" not in os.environ:
        for name, value in WAITING.items():
            os.environ.setdefault(name, value)
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
    try:
        quota, period = (groups / "cpu.max").read_text().split()  # version 2
    except (OSError, ValueError):
        try:
            quota = (groups / "cpu/cpu.cfs_quota_us").read_text()  # version 1
            period = (groups / "cpu/cpu.cfs_period_us").read_text()
        except OSError:
            return None
    try:
        return int(quota) / int(period) if int(quota) > 0 and int(period) > 0 else None
    except ValueError:  # "max"
        return None
