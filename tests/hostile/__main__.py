"""Attack the programs: ``python -m tests.hostile --cases 300``.

Each of the four causes of earlier findings has generators of cases, and takes its share. Most cases run in this
process, some in processes of their own. A line for each case that was not harmless and not refused in one line; then
the exit status is 1.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import cycle, islice

from arith_erd.errors import printable

from . import code, damage, inputs
from .world import Cause, Outcome, attempt

CAUSES: dict[str, list[Cause]] = {
    "1 code of others": code.CODE,
    "2 damaged neighbours": damage.NEIGHBOURS,
    "3 too large": inputs.TOO_LARGE,
    "4 any input": inputs.INPUTS,
}
PROCESSES = [("1 code of others", code.in_the_current_folder, n) for n in range(10)]
PROCESSES += [("4 any input", inputs.surroundings, n) for n in range(24)]
"""All cases in processes of their own, which take seconds each."""


def cases(causes: dict[str, list[Cause]], each: int) -> Iterator[tuple[str, Cause, int]]:
    """``each`` cases of every cause, in turn from its generators; one that is listed twice gives twice as many."""
    for name, generators in causes.items():
        given = Counter[Cause]()
        for cause in islice(cycle(generators), each):
            yield name, cause, given[cause]
            given[cause] += 1


def run_all(number: int, seed: int = 0, only: str = "") -> list[tuple[str, Outcome]]:
    """Try at least ``number`` cases; the outcomes with their causes. What does not hold is said at once."""
    outcomes: list[tuple[str, Outcome]] = []
    for name, cause, n in (*cases(CAUSES, -(-number // len(CAUSES))), *PROCESSES):
        if name.startswith(only):
            outcomes.append((name, outcome := attempt(cause, n, seed)))
            if outcome.wrong:
                print(printable(f"{name}, {outcome.name}: {outcome.wrong}")[:1000], flush=True)
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=300, help="at least so many (300)")
    parser.add_argument("--cause", default="", help="of this number alone, 1 to 4")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn (0)")
    options = parser.parse_args()
    outcomes = run_all(options.cases, options.seed, options.cause)
    for name in CAUSES:
        lines = [one.line for cause, one in outcomes if cause == name]
        print(f"{name}: {len(lines)} cases, {sum(map(bool, lines))} refused")
    wrong = sum(bool(one.wrong) for _, one in outcomes)
    print(f"{wrong} of {len(outcomes)} were not harmless and not refused in one line")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
