"""Hostile input is refused in a line or read as it should be: no code runs, nothing outside is touched or told."""

import pytest

from .cases import CASES
from .world import Case, attempt


def test_every_case_has_a_name_of_its_own() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names) >= 60


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_side_effect(case: Case) -> None:
    attempt(case)
