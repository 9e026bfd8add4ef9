"""The accuracy that the paper reports is named beside the network and the options that it is of."""

import pytest

from arith_erd.paper.probes.amnesic import PaperAmnesic
from arith_erd.tasks import Add, Mul, Task
from tests.unit.probes.small import untrained


@pytest.mark.parametrize(("task", "named"), [(Add(), True), (Add(3), False), (Add(1, base=10), False), (Mul(3), False)])
def test_note_on_the_published_accuracy_is_of_the_papers_addition_alone(task: Task, named: bool) -> None:
    notes = PaperAmnesic([untrained(task)], "dec.1").notes()
    assert any("an accuracy of 0.13%" in note for note in notes) == named
