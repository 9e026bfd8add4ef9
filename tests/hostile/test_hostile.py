"""Hostile input is refused in one line or read correctly: no code runs, nothing outside is written or revealed."""

import pytest

from .cases import CASES
from .world import Case, attempt


def test_case_names_are_unique() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names) >= 60


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_hostile_input_has_no_side_effect(case: Case) -> None:
    attempt(case)
