"""`patch` is the loop over runs with one intervention, for any metric."""

import numpy as np
import pytest
import torch

from arith_erd.catalog.loading import load_handcoded
from arith_erd.errors import UserError
from arith_erd.interp.hooked import Hooked
from arith_erd.interp.interventions import Replace
from arith_erd.interp.patching import patch
from arith_erd.interp.sites import expand_sites
from arith_erd.models import NanoGPT
from arith_erd.tasks import Add
from tests.unit.probes.small import untrained

TASK = Add(3)
CLEAN, CORRUPTED = TASK.examples([3, 1, 7], [5, 1, 0]), TASK.examples([2, 1, 6], [5, 3, 0])


@pytest.fixture(scope="module")
def model() -> Hooked:
    return untrained(TASK, NanoGPT)


def test_values_are_those_of_runs_with_one_activation_replaced(model: Hooked) -> None:
    def metric(logits: torch.Tensor) -> torch.Tensor:
        return logits[:, 2, 3] - logits[:, 2, 4]

    found = patch(model, CLEAN, CORRUPTED, ["dec.*", "dec.1.attn.z"], metric)
    assert (found.clean, found.corrupted) == pytest.approx(
        tuple(float(metric(model.run(x)).mean()) for x in (CLEAN, CORRUPTED))
    )
    assert [*found.rows["site"].unique()] == [*expand_sites(model.sites, "dec.*"), "dec.1.attn.z"]
    assert found.rows.query("site == 'dec.1'")["position"].tolist() == [*TASK.prompt_names, *TASK.answer_names]
    _, cache = model.run_with_cache(CLEAN, "dec.1")
    for name in ("r1", "r2"):
        own = float(metric(model.run(CORRUPTED, Replace("dec.1", name, cache["dec.1"][:, int(name[1])]))).mean())
        (row,) = found.rows.query("site == 'dec.1' and position == @name").to_dict("records")
        assert row["value"] == pytest.approx(own, rel=1e-5)
        assert row["recovered"] == pytest.approx((own - found.corrupted) / (found.clean - found.corrupted), abs=1e-4)


def test_tokens_that_differ_are_recovered_by_their_own_position_in_the_last_layer() -> None:
    known = load_handcoded("prefix_carry")
    clean, corrupted = known.task.examples([64], [1]), known.task.examples([0], [1])  # bit 6 alone
    table = patch(known, clean, corrupted, "dec.6").table()
    assert table.loc["dec.6", "r6"] == pytest.approx(1)
    assert table.loc["dec.6"].drop("r6").abs().max() < 1e-6
    figure = patch(known, clean, corrupted, ["enc.1", "dec.6"]).figure()
    assert [ax.get_title("left") for ax in figure.axes if ax.get_title("left")] == ["a0 .. b6", "r0 .. r7"]


def test_padding_does_not_count_as_a_differing_token() -> None:
    task = Add(bits=3, min_bits=1)
    model = untrained(task, NanoGPT)
    clean, corrupted = task.examples([1], [1], length=[3]), task.examples([1], [0], length=[1])
    logits = model.run(clean)[0, :2]
    assert clean.completion[0, :2].tolist() == [3, 4]
    assert corrupted.completion[0].tolist() == [4, 3, 0, 0]
    expected = (logits[0, 3] - logits[0, 4] + logits[1, 4] - logits[1, 3]).item() / 2
    assert patch(model, clean, corrupted, "dec.1").clean == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": "add-nanogpt"}, "model: received str; expected Hooked"),
        ({"clean": 3}, "clean: received int; expected Examples"),
        ({"corrupted": [3]}, "corrupted: received list; expected Examples"),
        ({"corrupted": CORRUPTED[:2]}, "3 clean and 2 corrupted examples"),
        ({"corrupted": CLEAN}, "clean and corrupted have the same answers"),
        ({"metric": lambda logits: 1.0}, "the metric is 1 in both runs"),
        ({"metric": lambda logits: logits.absent}, "metric: AttributeError"),
        ({"metric": lambda logits: np.nan}, "metric: is nan"),
    ],
)
def test_bad_input_is_refused_in_one_line(model: Hooked, given, message: str) -> None:
    with pytest.raises(UserError, match=f"^patch: {message}"):
        patch(**{"model": model, "clean": CLEAN, "corrupted": CORRUPTED, "sites": "dec.1"} | given)
