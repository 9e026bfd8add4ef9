"""Which positions bring a token back, and how prompts are corrupted."""

import numpy as np
import pandas as pd
import pytest

from arith_erd.models import NanoGPT, Transformer
from arith_erd.probes.patching import Patching, change_digit, other_operands
from arith_erd.tasks import Add, Add3, ModAdd, Mul, Sub, Task
from tests.unit.probes.small import measured, untrained


@pytest.mark.parametrize(("model", "embedded"), [(Transformer, "enc.embed"), (NanoGPT, "dec.embed")])
@pytest.mark.parametrize("task", [Add(3), Add3(2)], ids=lambda task: task.name)
def test_changed_digits_recover_the_first_token_and_last_layer_positions_their_own(task, model, embedded):
    """The inputs of the first token are the prompt and ``<start>``, so the corrupted digit makes the clean run."""
    probe = Patching([untrained(task, model)], site=[embedded, "dec.2"], num_examples=40)
    rows = measured(probe)
    assert "in the last layer a position" in " ".join(probe.notes())
    assert "last layer" not in " ".join(Patching(probe.models, site="dec.1", num_examples=4).notes())
    first = rows[(rows["site"] == embedded) & (rows["token"] == "r0")].set_index("position")
    assert list(first.index) == task.prompt_names + (task.answer_names if model is NanoGPT else [])
    assert first["recovered"].sum() == pytest.approx(1, abs=1e-3)
    operators = [name for name in task.prompt_names if name.startswith(task.operator)]
    assert (first.loc[operators, "recovered"].abs() < 1e-3).all()
    last = rows[(rows["site"] == "dec.2") & (rows["n"] > 0)]
    assert set(last["position"]) == set(task.answer_names)
    np.testing.assert_allclose(last["recovered"], last["position"] == last["token"], atol=1e-3)


@pytest.mark.parametrize("task", [Add3(2), Sub(2, base=10), ModAdd(4, modulus=11)], ids=lambda task: task.name)
def test_corrupted_digit_is_one_digit_of_one_operand(task: Task) -> None:
    clean = task.examples()
    other = change_digit(task, clean, np.random.default_rng(0))
    assert ((clean.prompt != other.prompt).sum(axis=1) == 1).all()
    assert ((other.operands >= 0) & (other.operands < task.limit)).all()
    changed = (clean.prompt != other.prompt).any(axis=0)
    assert changed.sum() == task.num_operands * task.bits  # every digit of every operand is changed somewhere
    pair = other_operands(task, clean, np.random.default_rng(0))
    assert (clean.operands != pair.operands).any(axis=1).all()


def test_a_figure_without_a_number_says_so() -> None:
    probe = Patching([untrained(Mul(3), NanoGPT)], num_examples=1, seed=11, site="dec.1")
    rows = pd.DataFrame(probe.rows())
    (ax,) = probe.figure(rows.assign(recovered=float("nan"))).axes
    assert [text.get_text() for text in ax.texts] == ["no row has a number to draw"]
