"""Changes of every input, each counted once."""

import numpy as np
import pandas as pd
import pytest

from arith_erd.digits import to_digits
from arith_erd.paper.probes.discontinuity import Discontinuity, change_counts
from arith_erd.tasks import Add, Add3, ModAdd, Mul, RandomOutput, Sub, Task

TASKS = [Add(3), Mul(2), RandomOutput(3), Sub(2, base=3), Mul(1, base=10), Add3(2), ModAdd(3, modulus=5)]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: f"{task.name}{task.base}")
def test_counts_are_those_of_all_pairs_of_rows(task: Task) -> None:
    examples = task.examples()
    inputs = examples.prompt.tolist()
    answers = to_digits(examples.answer, task.width, task.base).tolist()
    counts = np.zeros((task.num_operands * task.bits + 1, task.width + 1), dtype=int)
    for x, p in zip(inputs, answers, strict=True):
        for y, q in zip(inputs, answers, strict=True):
            counts[sum(c != d for c, d in zip(x, y, strict=True)), sum(c != d for c, d in zip(p, q, strict=True))] += 1
    np.testing.assert_array_equal(change_counts(task), counts)


def test_two_flipped_bits_change_three_of_the_sum_as_often_as_the_paper_says() -> None:
    """Appendix A: at seven bits, two flipped bits change three bits of the sum in 27.9% of the cases."""
    probe = Discontinuity(Add())
    rows = pd.DataFrame(probe.rows())
    cell = rows[(rows["input_bits"] == 2) & (rows["output_bits"] == 3)]["percent"].item()
    assert round(cell, 1) == 27.9
    assert len(rows) == 15 * 9  # zeros included
    np.testing.assert_allclose(rows.groupby("input_bits")["percent"].sum(), 100)
