"""Attack the programs: ``python -m tests.hostile --cases 300``.

Each of the six causes of earlier findings has generators of cases, and takes its share. Most cases run in this process,
some in processes of their own. A table at the end, and a line for each case that was not harmless and not refused in
one line; then the exit status is 1.
"""

import argparse
import sys
from collections.abc import Iterable

import pandas as pd

from arith_erd.errors import printable

from . import code, damage, inputs
from .world import Cause, Outcome, attacks, attempt

CAUSES: dict[str, list[Cause]] = {
    "1 code of others": [code.others_experiment, code.others_class, code.gadget, code.others_run_that_trusts],
    "2 damaged neighbours": damage.NEIGHBOURS,
    "3 cannot be read": damage.UNREADABLE,
    "4 counted ends": damage.COUNTED,
    "5 too large": inputs.SIZES,
    "6 any input": inputs.INPUTS,
}
PROCESSES: dict[str, list[Cause]] = {
    "1 code of others": [code.in_the_current_folder],
    "6 any input": [inputs.other_surroundings],
}
"""The sample in processes of their own, which takes seconds a case."""


def run_all(number: int, seed: int = 0, only: str = "") -> list[tuple[str, Outcome]]:
    """Try at least ``number`` attacks, with the cause of each; what fails is said at once."""
    outcomes = []
    sample = max(1, number // 60)
    for causes, each in ((CAUSES, -(-number // len(CAUSES))), (PROCESSES, sample if number >= 60 else 0)):
        for cause, attack in attacks({k: v for k, v in causes.items() if k.startswith(only)}, each, seed):
            outcome = attempt(attack)
            outcomes.append((cause, outcome))
            if not outcome.held:
                print(printable(f"{attack.name}: {outcome.wrong or outcome.line}")[:1000], flush=True)
    return outcomes


def table(outcomes: Iterable[tuple[str, Outcome]]) -> pd.DataFrame:
    """A row for each cause, and the sum."""
    rows = pd.DataFrame(
        [
            {
                "cause": cause,
                "cases": 1,
                "refused": bool(one.line),
                "tracebacks": one.traceback,
                "status 70": one.internal,
                "files outside": one.outside,
                "other faults": not one.held and not (one.traceback or one.internal or one.outside),
            }
            for cause, one in outcomes
        ]
    )
    sums = rows.groupby("cause").sum()
    return pd.concat([sums, sums.sum().to_frame("all").T])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=300, help="at least so many (300)")
    parser.add_argument("--cause", default="", help="of this number alone, 1 to 6")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn (0)")
    options = parser.parse_args()
    outcomes = run_all(options.cases, options.seed, options.cause)
    print(table(outcomes).to_string())
    return 0 if all(one.held for _, one in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
