"""Threads: how many compute, and how long they spin while they wait for one another."""

import os

SPINS = "30000"
"""Turns, some 0.1 ms. GNU OpenMP's own 300,000 make a step several times slower where other programs compute too: the
thread for which all wait then has no processor. Threads that always sleep have to be woken hundreds of times a step,
which doubles its time on an idle machine. Measurements: ``benchmarks/README.md``."""
CHOSEN = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME")
"""With any of these somebody else has decided how threads wait."""


def settle_threads() -> None:
    """Use the processors that affinity and the container's quota allow, and spin for a moment. Before torch is loaded.

    Neither depends on what else runs, so results do not either. ``OMP_NUM_THREADS`` and `CHOSEN` are kept if set.
    """
    from joblib import cpu_count  # not at the top: only a job that was accepted needs it

    usable = int(cpu_count())
    if usable < (os.cpu_count() or 1):
        os.environ.setdefault("OMP_NUM_THREADS", str(usable))
    if not any(name in os.environ for name in CHOSEN):
        os.environ["GOMP_SPINCOUNT"] = SPINS
