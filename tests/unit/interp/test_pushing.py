"""Pushing a carry beyond 0 and 1 tells a total that is read as a number from a carry of two states."""

import pytest
from arith_erd.interp.stages import Stages

from arith_erd.interp.pushing import Pushed, pushes
from arith_erd.models.references import reference
from arith_erd.tasks import Add

BIT = 4
NOTHING, TWO_STATES, TOTAL = ((1, 0, 0, 0, 0), (0, 1, 0, 0, 0), (0, 0, 0, 1, 0))


def at_every_stage(name: str, seed: int) -> list[Pushed]:
    network = reference(name, seed).network
    stages = [stage for stage in Stages(network).names if stage.startswith("dec.")]
    return [one for stage in stages for one in pushes(network, Add(), {BIT: stage}, pairs=96, fitted=256)]


@pytest.mark.parametrize(
    ("name", "turns"),
    [("local_remainder", {TOTAL}), ("graded_carry", {TWO_STATES, TOTAL}), ("prefix_carry", {TOTAL})],
)
def test_references_count_where_a_total_is_read_and_only_there(name: str, turns: set[tuple[float, ...]]) -> None:
    """``graded_carry`` cuts its number to a carry of two states, and adds that to a_t and b_t one layer later."""
    found = at_every_stage(name, seed=1)
    assert {one.turns for one in found} - {NOTHING} == turns
    for one in found:
        assert one.beyond == 0
        assert one.further == (one.turns == TOTAL)


def test_network_without_carries_follows_no_push() -> None:
    assert all(one.turns == NOTHING and one.further == 0 for one in at_every_stage("erd", seed=1))


def test_rows_name_the_stage_and_the_bit() -> None:
    rows = [*Pushed("dec.2", 3, 0.5, 0.25, (0.0, 0.0, 0.25, 0.75, 0.0), 0.1).rows()]
    assert rows[0] == ("pushed_further", "dec.2", "3", 0.5)
    assert rows[-2:] == [("turns_4", "dec.2", "3", 0.0), ("turns_at_random", "dec.2", "3", 0.1)]
