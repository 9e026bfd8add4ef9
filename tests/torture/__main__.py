"""Kill training at random moments and see that nothing is lost: ``python -m tests.torture --kills 200``.

Moments are drawn evenly from the time that a run lasts; every fourth SIGKILL waits for the next save from there. Half
as many runs get a SIGTERM, a quarter a SIGHUP, and a fortieth goes through the command line. Then come ``--attacks``
hostile inputs. ``--overhead`` also trains two epochs of addition, to see what a checkpoint costs. One line for each
figure; the exit status is 1 if one was missed.
"""

import argparse
import random
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from tests.hostile.__main__ import run_all

from .overhead import checkpoint_and_epoch
from .victims import Victims


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=20, help="runs that get a SIGKILL")
    parser.add_argument("--attacks", type=int, default=60, help="hostile inputs")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--overhead", action="store_true", help="also measure what a checkpoint costs an epoch")
    options = parser.parse_args()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored under nohup, and then by the runs too
    folder = Path(tempfile.mkdtemp(prefix="torture-"))
    failed = [not ok for ok in figures(options, folder)]
    if any(failed):
        print(f"missed: {sum(failed)}; the runs are in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


def figures(options, folder):  # type: ignore[no-untyped-def]
    """Measure and print, one after the other; yields whether each was reached."""
    moments = random.Random(options.seed)
    victims = Victims(folder)
    kills = [victims.killed_and_resumed(moments, in_save=n % 4 == 0) for n in range(options.kills)]
    yield figure(sum(kill.same for kill in kills), len(kills), "SIGKILL: resumed to the same, bit for bit")
    saving, quarter = sum(kill.while_saving for kill in kills), options.kills // 4
    print(f"  of those {saving} inside a save (at least {quarter} wanted)", flush=True)
    yield saving >= quarter

    for number, share in ((signal.SIGTERM, 2), (signal.SIGHUP, 4)):
        stops = [victims.stopped_and_resumed(number, moments) for _ in range(options.kills // share)]
        good = sum(stop.same and stop.seconds < 5 for stop in stops)
        yield figure(good, len(stops), f"{number.name}: ended within 5 s, resumed to the same, bit for bit")
        print(f"  the slowest ended after {max((stop.seconds for stop in stops), default=0):.2f} s", flush=True)

    typed = [victims.typed_and_resumed(moments) for _ in range(-(-options.kills // 40))]
    yield figure(sum(typed), len(typed), "SIGKILL, then SIGTERM, on the command line, resumed to the same")

    held, failed = run_all(options.attacks, options.seed)
    yield figure(len(held), len(held) + len(failed), "hostile inputs: no side effect, a short line or a result")
    print(*(f"  {line}" for line in failed), sep="\n", end="")

    if options.overhead:
        saved, epoch = checkpoint_and_epoch(folder / "addition")
        print(f"checkpoint after every epoch: {saved:.3f} s of {epoch:.1f} s, {saved / epoch:.2%} of an addition epoch")
        yield saved < 0.02 * epoch


def figure(good: int, of: int, what: str) -> bool:
    print(f"{good} of {of}  {what}", flush=True)
    return good == of


if __name__ == "__main__":
    sys.exit(main())
