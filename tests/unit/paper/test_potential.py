"""What the fourth preregistration counts, on answers whose c is known, and on answers without a c."""

import numpy as np
import pandas as pd
import pytest

from arith_erd.models import NanoGPT
from arith_erd.paper.studies import potential
from arith_erd.tasks import Add, Add3, Task
from tests.unit.probes.small import untrained


def rows_of(task: Task, noise: float) -> tuple[pd.DataFrame, dict[str, float]]:
    """The rows of answers that round c plus noise, or that are random."""
    asked, rng = potential.questions(task), np.random.default_rng(0)
    if np.isinf(noise):
        margins = rng.standard_normal(len(asked))
    else:
        c = asked["c"] + rng.normal(0, noise, len(asked))
        rounding = np.abs(c - np.floor(c) - 0.5)
        margins = rounding * (1 - 2 * ((asked["column"] + np.round(c)) % 2 == 0))
    table = potential.answered(asked, np.asarray(margins))
    return potential.by_distance(table), potential.summary(table)


@pytest.mark.parametrize("task", [Add(bits=5), Add3(bits=4)], ids=["add", "add3"])
def test_noise_in_c_confirms_and_random_answers_refute(task: Task) -> None:
    noisy, found = rows_of(task, 0.15)
    assert potential.ratio(noisy) >= potential.MIN_RATIO
    assert found["correlation"] >= potential.MIN_CORRELATION
    for name in ("threshold_0", "threshold_1")[: task.num_operands - 1]:
        assert abs(found[name] - 0.5) <= potential.MAX_OFF
    random, nothing = rows_of(task, np.inf)
    assert potential.NULL_RATIO[0] <= potential.ratio(random) <= potential.NULL_RATIO[1]
    assert abs(nothing["correlation"]) <= potential.NULL_CORRELATION


def test_a_right_prefix_has_the_carry_as_its_c() -> None:
    task = Add3(bits=2)
    asked, examples = potential.questions(task), task.examples()
    answer = examples.answer[asked["example"]]
    right = asked[asked["prefix"] == answer % 2 ** asked["bit"]]
    assert len(right)
    assert (right["c"] == right["carry"]).all()
    assert (right["expected"] == answer[right.index] >> right["bit"] & 1).all()


def test_slips_take_the_answer_of_the_run_that_they_read() -> None:
    """An interchange of the last layer gives the source's answer: a clamped one its own, another slip a wrong one."""
    model = untrained(Add(bits=3), NanoGPT)
    asked = potential.questions(model.task)
    table = potential.answered(asked, potential.ask(model, asked))
    rows = pd.DataFrame(potential.mend(model, table))
    at_last = rows[rows["layer"] == -1].set_index("source")["right"]
    assert at_last["slip"] == 0
    assert set(rows["source"]) == {"clamped", "slip"}
