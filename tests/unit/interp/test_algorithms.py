"""Causal models of what networks do after wrong prefixes."""

import numpy as np
import pytest

from arith_erd.errors import UserError
from arith_erd.interp import algorithms
from arith_erd.interp.causal_model import CausalModel
from arith_erd.mechanism.place_value import ColumnSums
from arith_erd.mechanism.prefixes import Sample, predicted_bits
from arith_erd.tasks import Add, Mul

EXPECTED = {"PromptOnly": "prompt_only", "PrefixCarry": "local_carry", "LocalRemainder": "local_remainder"}


@pytest.mark.parametrize(("name", "hypothesis"), EXPECTED.items())
def test_answers_after_any_prefix_are_those_of_the_hypotheses_of_the_card(name, hypothesis):
    task, rng = Add(4), np.random.default_rng(0)
    sample = Sample.without_replacement(CausalModel(task), 256, rng)
    model = getattr(algorithms, name)(task)
    prefix = rng.integers(0, 32, len(sample))
    digits = model.answers(model.values(sample.examples, {"prefix": prefix}))
    for t in range(1, task.width):
        expected = predicted_bits(ColumnSums(task), sample, (prefix[:, None] >> np.arange(t)) & 1)[hypothesis]
        clear = expected >= 0
        assert (digits[:, t] == expected)[clear].all()
        assert name == "PromptOnly" or (digits[:, t] != sample.values["answer"][:, t]).any()


def test_other_tasks_are_refused():
    for task in (Mul(3), Add(2, base=3), Add(3, completion_order="plain")):
        with pytest.raises(UserError, match=r"^task=.*: expected add in base 2"):
            algorithms.PrefixCarry(task)
