"""Hostile input is refused in one line or read correctly: no code runs, nothing outside is written or revealed.

``python -m tests.hostile --attacks 500`` tries more of every cause.
"""

import pytest

from .__main__ import CAUSES
from .world import Attack, attacks, attempt

READERS = {name: cause for name, cause in CAUSES.items() if name.startswith("foreign") or name == "table"}
PROGRAMS = {name: cause for name, cause in CAUSES.items() if name not in READERS}  # these take up to a second each


@pytest.mark.parametrize(
    "attack", [*attacks(READERS, each=10), *attacks(PROGRAMS, each=3)], ids=lambda attack: attack.name
)
def test_hostile_input_has_no_side_effect(attack: Attack) -> None:
    attempt(attack)
