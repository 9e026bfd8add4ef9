"""Steps along a direction: their size, and which variables follow them."""

import pandas as pd
import pytest
import torch

from arith_erd.interp.causal_model import CausalModel
from arith_erd.interp.erasure import whiten
from arith_erd.interp.hooked import Hooked
from arith_erd.models import Transformer
from arith_erd.probes import dose
from arith_erd.probes.dose import Dose
from arith_erd.tasks import Add, Sub, Task
from tests.unit.interp.toys import InDirections, OneNumber
from tests.unit.probes.small import measured, untrained


def difference(task: Task) -> CausalModel:
    return CausalModel(task, {"difference": lambda a, b: abs(a - b)})


def test_dose_accepts_any_task_whose_causal_model_has_the_answer_as_a_variable() -> None:
    probe = Dose([untrained(Sub(3))], "dec.1", delta=1, num_examples=8, causal_model=difference)
    rows = measured(probe)
    assert (rows["n"] == 8).all()
    assert "sum" not in " ".join(ax.get_title(loc="left") for ax in probe.figure(rows).axes)


@pytest.mark.slow
def test_one_number_follows_every_dose_with_every_direction_and_carries_follow_none(monkeypatch) -> None:
    task = Add(4)
    number, carries = (Hooked(kind(task), task=task) for kind in (OneNumber, InDirections))
    rows = measured(Dose([number], delta=[1, 2, 8], num_examples=60))
    assert len(rows) == 3 * 3
    assert (rows["followed"] > 0.9).all()
    assert (rows["no_intervention"] == 0).all()
    assert (rows["random"] < 0.5).all()
    rows = measured(Dose([carries], "dec.1", ["slope", "leace"], [1, 2, 8], 60))
    assert (rows["followed"] < 0.2).all()
    monkeypatch.setattr(dose, "NUM_FITTED", 30)  # of 256 examples; some sums, and the largest, are in none of them
    rows = measured(Dose([number], "dec.1", "centroids", [1, 2], 60))
    assert (rows["followed"] == 1).all()


def test_a_step_adds_one_unit_of_the_value() -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randint(0, 20, (2000,), generator=generator)
    direction = torch.tensor([1.0, 2, 0, 0], dtype=torch.float64)
    x = values[:, None] * direction + torch.randn(2000, 4, generator=generator, dtype=torch.float64)
    by_slope, by_reading = (step(whiten(x), values) for step in (dose.slope, dose.leace_step))
    torch.testing.assert_close(by_slope, direction, atol=0.03, rtol=0)
    assert float(by_slope @ by_reading / by_slope.norm() / by_reading.norm()) == pytest.approx(1)
    weights = torch.linalg.lstsq(x - x.mean(dim=0), (values - values.double().mean())[:, None]).solution[:, 0]
    assert float(weights @ by_reading) == pytest.approx(1)
    torch.testing.assert_close(dose.centroids(x, values, 21)[7], x[values == 7].mean(dim=0))


def test_a_step_along_no_direction_changes_nothing() -> None:
    model = untrained(Add(3), Transformer)
    for parameter in model.network.parameters():
        parameter.data.zero_()
    rows = pd.DataFrame(Dose([model], site="dec.1", method=["leace", "slope"]).rows())
    assert (rows["followed"] == rows["no_intervention"]).all()
