"""Hostile input is refused in one line or read correctly: no code runs, nothing outside is written or revealed.

``python -m tests.hostile --cases 300`` tries more of every cause.
"""

import pytest

from . import code
from .__main__ import CAUSES, cases, run_all
from .world import Cause, attempt

FILES = [("an experiment", code.others_experiment, n) for n in range(len(code.HYDRA))]
FILES += [("a run", code.others_class, n) for n in range(code.TARGETS)]


DEEP = "typed_sizes"  # 400 layers, whose memory takes ten seconds to count
ALL = [*cases(CAUSES, each=2), *FILES]


@pytest.mark.parametrize(
    ("name", "cause", "n"),
    [pytest.param(*case, marks=pytest.mark.slow if (case[1].__name__, case[2]) == (DEEP, 0) else ()) for case in ALL],
)
def test_hostile_input_has_no_side_effect(name: str, cause: Cause, n: int) -> None:
    outcome = attempt(cause, n)
    assert not outcome.wrong, outcome


@pytest.mark.slow
def test_three_hundred_cases_of_all_causes() -> None:
    assert [outcome for _, outcome in run_all(300, seed=1) if outcome.wrong] == []
