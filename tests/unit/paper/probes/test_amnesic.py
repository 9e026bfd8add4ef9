"""The paper's accuracy is noted only beside the network and the options that the paper measured."""

import pytest

from arith_erd.paper.probes.amnesic import PaperAmnesic
from arith_erd.tasks import Add, Mul, Task
from tests.unit.probes.small import untrained


@pytest.mark.parametrize(("task", "named"), [(Add(), True), (Add(3), False), (Add(1, base=10), False), (Mul(3), False)])
def test_published_accuracy_is_noted_for_the_papers_addition_only(task: Task, named: bool) -> None:
    notes = PaperAmnesic([untrained(task)], "dec.1").notes()
    assert any("an accuracy of 0.13%" in note for note in notes) == named
