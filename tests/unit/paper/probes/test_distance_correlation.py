"""Correlations between distances: the authors' model gives the authors' numbers, and every cell is what it says."""

import json
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from arith_erd.interp.hooked import Hooked, Provenance
from arith_erd.models import NanoGPT, Network, Transformer
from arith_erd.models.network import greedy_decode, shift_right
from arith_erd.models.weights import load_authors_network
from arith_erd.paper.probes.distance_correlation import DistanceCorrelation, operands_compared, pearson, spearman
from arith_erd.seeds import derive_seed
from arith_erd.tasks import Add, Mul
from tests.unit.probes.small import measured, untrained

OFFICIAL = Path(__file__).parents[5] / "shared" / "official"
CELL = ["stack", "layer", "level", "space", "method"]


def measure(*models: Hooked) -> pd.DataFrame:
    return measured(DistanceCorrelation(models))


@pytest.mark.skipif(not OFFICIAL.is_dir(), reason="../shared/official is absent: the authors' weights are not ours")
def test_authors_weights_give_the_authors_correlations() -> None:
    expected = json.loads((OFFICIAL / "expected.json").read_text())["distance_correlation"]["values"]
    task = Add()
    rows = measure(Hooked(load_authors_network(OFFICIAL / "add_model", task), name="official", task=task))
    found = rows.set_index(CELL)["correlation"]
    assert len(expected) == 48
    for key, values in expected.items():
        site, against = key.split()
        stack, layer = site.split(".")
        for method, value in zip(("pearson", "spearman"), values, strict=True):
            # Rounded to four decimals and then to three, so off by up to 0.00055.
            cell = (stack, int(layer), *against.split("_"), method)
            assert found[cell] == pytest.approx(value, abs=0.0006), cell


def test_correlations_equal_scipy_ties_included_and_are_nan_for_a_constant_row() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 5, (2, 30)), np.vstack([rng.integers(0, 5, (2, 30)), np.full(30, 0.1)])
    for correlate, scipys in ((pearson, stats.pearsonr), (spearman, stats.spearmanr)):
        found = correlate(x, y)
        assert np.isnan(found[:, 2]).all()
        np.testing.assert_allclose(found[:, :2], [[scipys(p, q).statistic for q in y[:2]] for p in x], rtol=1e-10)


def test_of_many_operands_a_sample_is_compared() -> None:
    operands = operands_compared(Add(20))
    assert len(operands) == len(set(operands)) == 1024
    assert operands.max() > 2**19
    assert operands_compared(Add(3)).tolist() == [*range(8)]


@pytest.mark.parametrize("architecture", [Transformer, NanoGPT])
def test_decoder_sites_are_read_with_the_models_own_answer(architecture: type[Network]) -> None:
    model = untrained(Mul(3), architecture)
    examples = model.task.examples(range(8), range(8))
    prompt = torch.from_numpy(examples.prompt)
    own = greedy_decode(model.network, prompt, model.task.width)
    assert not np.array_equal(own, examples.completion)
    _, cache = model.run_with_cache((prompt, shift_right(own)), ["dec.2"])
    x = cache["dec.2"].flatten(1).double().numpy()
    pairs = list(combinations(range(8), 2))
    inner = [np.linalg.norm(x[i] - x[j]) for i, j in pairs]
    outer = {
        ("in", "token"): [(examples.prompt[i] != examples.prompt[j]).sum() for i, j in pairs],
        ("in", "value"): [abs(i - j) for i, j in pairs],
        ("out", "token"): [(examples.completion[i] != examples.completion[j]).sum() for i, j in pairs],
        ("out", "value"): [abs(i * i - j * j) for i, j in pairs],
    }
    found = measure(model).set_index(CELL)["correlation"]
    for against, distances in outer.items():
        expected = np.corrcoef(inner, distances)[0, 1]
        assert found[("dec", 2, *against, "pearson")] == pytest.approx(expected, abs=1e-9)
    for stack, level in (("input", "in"), ("output", "out")):
        expected = np.corrcoef(outer[level, "token"], outer[level, "value"])[0, 1]
        assert found[stack, 0, level, "value", "pearson"] == pytest.approx(expected, abs=1e-9)


def test_scaled_bits_follow_the_value_without_any_network() -> None:
    """Seven bits give 0.746 on the pairs (A, A), as the second and the fourth layer of the authors' decoder do."""
    rows = measure(untrained(Add(7)))
    cells = rows[rows["method"] == "pearson"].set_index(["stack", "level", "space"])["correlation"]
    assert cells["scaled bits", "out", "value"].item() == pytest.approx(0.746, abs=0.001)
    assert cells["operand bits", "in", "token"].item() > 0.98
    assert cells["input", "in", "value"].item() == pytest.approx(0.339, abs=0.0005)


def test_untrained_network_is_that_of_the_seed_before_training() -> None:
    task = Add(3)
    make = partial(Transformer, task.prompt_length, task.width, d_model=16, num_heads=2, num_layers=2)
    rows = measure(Hooked(untrained(task).network, task=task, seed=7, provenance=Provenance(make_network=make)))
    torch.manual_seed(derive_seed(7, "weights"))
    itself = measure(Hooked(make(), task=task, seed=7))
    before, own = (of[of["stack"] == stack]["correlation"] for of, stack in ((rows, "untrained enc"), (itself, "enc")))
    np.testing.assert_allclose(before, own)
