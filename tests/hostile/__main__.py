"""Attack the programs in this process: ``python -m tests.hostile --attacks 500``.

Every cause has a generator of attacks, and takes its share. One line for each attack that had an effect; the exit
status is 1 if there was one.
"""

import argparse
import sys
import traceback

from arith_erd.errors import first_line, printable

from . import configurations, files, weights
from .world import Cause, attacks, attempt

CAUSES: dict[str, Cause] = {**configurations.CAUSES, **files.CAUSES, **weights.CAUSES}


def run_all(number: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Try at least ``number`` attacks: the lines that refused them ("" where one was harmless), and the failures."""
    held, failed = [], []
    for attack in attacks(CAUSES, each=-(-number // len(CAUSES)), seed=seed):
        try:
            held.append(attempt(attack))
        except Exception as error:  # whatever it is, it is counted
            where = traceback.extract_tb(error.__traceback__)[-1]
            failed.append(printable(f"{attack.name}: {first_line(error)} ({where.name}, line {where.lineno})"))
    return held, failed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__.partition("\n")[0])
    parser.add_argument("--attacks", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn")
    options = parser.parse_args()
    held, failed = run_all(options.attacks, options.seed)
    internal = [line for line in held if "internal error" in line]
    print(*failed, *internal, sep="\n")
    print(f"{len(held)} of {len(held) + len(failed)} attacks had no effect")
    print(f"{sum(map(bool, held))} were refused in one line, {len(internal)} of them as an internal error")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
