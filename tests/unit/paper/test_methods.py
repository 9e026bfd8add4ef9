"""The area under the curve of a method's scores needs no threshold, and its interval holds chance."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import arith_erd as ae
from arith_erd.catalog.scoring import SCORE_COLUMNS, name_algorithms, score_network
from arith_erd.catalog.zoo import zoo
from arith_erd.errors import UserError
from arith_erd.interp.interchange_accuracy import PairEvaluation
from arith_erd.interp.patching import patched_runs
from arith_erd.paper.studies import methods
from arith_erd.paper.studies.methods import area_under_curve
from tests.unit.catalog.test_scoring import table
from tests.unit.interp.toys import InDirections, OneNumber
from tests.unit.probes.small import untrained

TASK = ae.Add(4)


def test_interval_of_the_area_holds_one_half_for_noise():
    rng = np.random.default_rng(1)
    areas = [area_under_curve(table(rng.normal(size=24)), 200) for _ in range(40)]
    assert np.mean([low <= 0.5 <= high for _, low, high in areas]) > 0.8  # three kinds of each: a narrow bootstrap
    assert area_under_curve(table(np.arange(24)[::-1]))[0] == 1


def test_area_of_one_algorithm_alone_is_refused():
    with pytest.raises(UserError, match="scores of sum; expected some of sum and of carries"):
        area_under_curve(table(np.zeros(24))[:12])


def test_mean_outcome_of_the_pairs_is_their_accuracy():
    model, pairs = ae.Hooked(OneNumber(TASK), task=TASK), ae.CounterfactualDataset.sample(ae.CausalModel(TASK), n=100)
    evaluation = PairEvaluation(model, pairs, "dec.1", 2, "carry")
    outcomes = methods.balanced_outcomes(evaluation, None)
    assert outcomes.shape == (100,)
    assert outcomes.mean() == pytest.approx(evaluation.accuracy(None))


@pytest.fixture
def one_layer(monkeypatch):
    """Toys have a single layer, which has to be scored though it is the last. Short searches suffice for them."""
    monkeypatch.setattr(methods, "scored_sites", lambda model: ["dec.1"])
    monkeypatch.setattr(methods, "DAS_CONFIG", replace(methods.DAS_CONFIG, num_test=128, steps=8))
    monkeypatch.setattr(methods, "NON_LINEAR_STEPS", 40)
    monkeypatch.setattr(methods, "MAX_LEARNED_RANK", 2)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("method", ["DAS, learned rank", "DAS, non-linear"])
def test_searches_name_the_algorithm_of_networks_written_by_hand_and_abstain_from_an_untrained_one(one_layer, method):
    networks = {
        "carries": ae.Hooked(InDirections(TASK), task=TASK),
        "sum": ae.Hooked(OneNumber(TASK), task=TASK),
        "none": untrained(TASK, ae.NanoGPT),
    }
    lines = [score_network(method, methods.METHODS[method], zoo()[0], model) for model in networks.values()]
    rows = pd.DataFrame(lines, columns=SCORE_COLUMNS).assign(kind=[*networks], algorithm=[*networks])
    found = name_algorithms(rows, methods.MIN_ACCURACY)
    assert found["named"].tolist() == ["carries", "sum", "abstains"]
    assert found["gap_carries"][0] <= 0.1
    assert found["gap_sum"][1] <= 0.1


def test_plot_finds_a_sum_along_one_axis_and_nothing_in_an_untrained_network(one_layer):
    """It abstains from the toy with carries: their directions are no principal axes."""
    of_sum, of_carry, *_ = methods.METHODS["PLOT"](ae.Hooked(OneNumber(TASK), task=TASK))
    assert of_sum.mean() > 0.9 > 0.75 > of_carry.mean()
    assert max(term.mean() for term in methods.METHODS["PLOT"](untrained(TASK, ae.NanoGPT))[:2]) < 0.75


def test_transport_gives_each_variable_the_axes_with_its_own_effect():
    own = torch.eye(3).repeat(1, 2)  # of three variables, on six axes
    shares = methods.transport(1 - own)
    assert torch.allclose(shares, own / 2, atol=1e-3)


def test_cka_is_higher_with_the_values_that_a_network_holds(one_layer):
    of_sum, of_carries, *_ = methods.score_cka(ae.Hooked(OneNumber(TASK), task=TASK))
    assert of_sum > 0.9 > of_carries
    of_sum, of_carries, *_ = methods.score_cka(ae.Hooked(InDirections(TASK), task=TASK))
    assert of_carries > of_sum
    x, noise = np.random.default_rng(0).normal(size=(2, 2000, 3))
    assert methods.linear_cka(x, 3 * x @ np.linalg.qr(x[:3])[0]) == pytest.approx(1)
    assert methods.linear_cka(x, noise) < 0.01


def test_attribution_is_exact_where_the_rest_of_the_network_is_linear():
    class Linear(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(5, 8)
            self.read = torch.nn.Linear(8 * TASK.prompt_length, 5 * TASK.width)

        def forward(self, prompt, answer_in):
            logits = self.read(self.embedding(prompt).flatten(1)).view(len(prompt), TASK.width, 5)
            return logits[:, : answer_in.shape[1]]

    torch.manual_seed(0)
    network = Linear()
    model = ae.Hooked(network, {"enc.1": network.embedding}, task=TASK)
    clean, corrupted = TASK.examples([3, 9], [5, 1]), TASK.examples([2, 9], [5, 4])
    effects, before = methods.attributed_effects(model, clean, corrupted, "enc.1")
    for i, (_, _, logits) in enumerate(patched_runs(model, clean, corrupted, ["enc.1"])):
        ends = [logits.gather(-1, torch.as_tensor(x.completion)[..., None])[..., 0] for x in (clean, corrupted)]
        torch.testing.assert_close(before + effects[i], ends[0] - ends[1], atol=1e-4, rtol=1e-4)
    assert effects.abs().max() > 0.1
