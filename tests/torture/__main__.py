"""Send signals to training at random moments and see that nothing is lost: ``python -m tests.torture --sigkill 200``.

The runs are new ones, ones that overwrite an old one, and ones that continue a shorter one, in turns. Moments are drawn
evenly from the time that a run lasts; every fourth SIGKILL waits for the next save from there. One run in ten is
``python train.py`` in a process of its own, the others are forks of this one.

One line for each run that got a signal, and one for each figure; the exit status is 1 if one was missed.
"""

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from .victims import KINDS, Victims

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP)
SECONDS = 5
"""From a signal to the end of the process, at most."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__.partition("\n")[0])
    for number, default in zip(SIGNALS, (20, 10, 5), strict=True):
        name = number.name
        parser.add_argument(f"--{name.lower()}", type=int, default=default, help=f"runs that get a {name} ({default})")
    parser.add_argument("--fresh", type=int, default=10, help="one run in so many is a process of its own (10)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (0)")
    options = parser.parse_args()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored under nohup, and then by the runs too
    folder = Path(tempfile.mkdtemp(prefix="torture-"))
    victims, reached = Victims(folder), []
    for number in SIGNALS:
        if wanted := getattr(options, number.name.lower()):
            moments = random.Random(f"{options.seed} {number.name}")
            reached += tortured(victims, number, wanted, options.fresh, moments)
    if not all(reached):
        print(f"missed: {reached.count(False)}; the runs are in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


def tortured(
    victims: Victims, number: signal.Signals, wanted: int, fresh: int, moments: random.Random
) -> Iterator[bool]:
    """Send one signal to so many runs."""
    good, in_saves, slowest, began = 0, 0, 0.0, time.monotonic()
    for n in range(wanted):
        kind, own_process, started = KINDS[n % len(KINDS)], n % fresh == fresh - 1, time.monotonic()
        if own_process:
            outcome = victims.fresh(number, kind, moments)
        else:
            outcome = victims.forked(number, kind, moments, in_save=number == signal.SIGKILL and n // 3 % 4 == 0)
        wrong = outcome.wrong or ("ended late" if outcome.seconds > SECONDS else "")
        good += not wrong
        in_saves += outcome.while_saving
        slowest = max(slowest, outcome.seconds)
        where = " in its own process" if own_process else ", inside a save" if outcome.while_saving else ""
        took = time.monotonic() - started
        print(f"  {number.name} {n + 1}: {kind} run{where}: {wrong or 'the same bits'} ({took:.1f} s)", flush=True)
    each = (time.monotonic() - began) / wanted
    figure = f"{good} of {wanted}  {number.name}: resumed to the same, bit for bit"
    print(f"{figure}; {in_saves} inside a save, the slowest ended after {slowest:.2f} s, {each:.1f} s each", flush=True)
    yield good == wanted
    if number == signal.SIGKILL:
        yield in_saves >= wanted // 8


if __name__ == "__main__":
    sys.exit(main())
