"""Null networks come from their seeds and have no algorithm: a table answers right, interchanges are at chance."""

from collections import Counter

import numpy as np
import pytest
import torch

import arith_erd as ae
from arith_erd.catalog.nulls import ARCHITECTURES, NULLS, make_null
from arith_erd.interp.das import DASConfig
from arith_erd.interp.das_controls import ControlledDAS


def test_zoo_has_several_kinds_of_both_algorithms_and_a_hundred_null_networks_of_five_bits():
    networks = ae.zoo(nulls=True)
    assert len({(label.name, label.seed) for label in networks}) == len(networks)
    kinds = Counter(algorithm for _, algorithm in {(label.kind, label.algorithm) for label in networks})
    assert kinds == {"sum": 3, "carries": 5, "none": 3}
    nulls = [label for label in networks if label.origin == "null"]
    assert Counter((label.bits, label.algorithm) for label in nulls) == {(5, "none"): 100, (7, "none"): 20}
    assert ae.zoo() == [label for label in networks if label.origin != "null"]


@pytest.mark.parametrize(("kind", "model"), [(kind, model) for kind, model, bits in NULLS if bits == 5])
def test_seed_decides_the_network(kind: str, model: str):
    first, again, other = (
        make_null(kind, model, 5, seed).run(ae.Add(5).examples([3, 30], [5, 17])) for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)


@pytest.mark.parametrize("model", ARCHITECTURES)
def test_shuffled_weights_are_the_trained_ones_in_another_order(model: str):
    """A position table of seven bits is cut to five; all else is kept."""
    trained = ae.load_pretrained(f"add-{model}").network.state_dict()
    for name, weights in make_null("shuffled", model, 5, 0).network.state_dict().items():
        whole = trained[name][: len(weights)]
        assert torch.equal(weights.flatten().sort().values, whole.flatten().sort().values)
        assert weights.dim() < 2 or not torch.equal(weights, whole)


def test_table_is_right_and_interchanges_of_anything_but_the_answer_are_at_chance():
    """Chance: half of the balanced accuracy, from the tokens that should not change."""
    model, task = make_null("table", "nanogpt", 5, 0), ae.Add(5)
    assert model.accuracy() == 1
    config = DASConfig(num_train=64, num_validation=64, num_test=256, steps=5, batch_size=64)
    for variable, site, position in (("sum", "dec.1", None), ("carry", "dec.2", 2)):
        search = ControlledDAS(model, ae.CausalModel(task), site, position, config)
        assert search.score(variable, 1) == pytest.approx(0.5, abs=0.06)
    base, source = task.examples(np.arange(32), np.arange(32)[::-1]), task.examples(np.arange(32), np.arange(32))
    _, cache = model.run_with_cache(source, ["dec.3"])
    answer = model.run(base, [ae.Replace("dec.3", None, cache["dec.3"])]).argmax(-1)
    assert np.array_equal(answer.numpy(), source.completion)
