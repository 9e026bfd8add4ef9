"""A search finds planted directions, and its controls are what they say."""

import functools

import numpy as np
import pytest
import torch

from arith_erd.errors import UserError
from arith_erd.interp.causal_model import CausalModel
from arith_erd.interp.das import DASConfig
from arith_erd.interp.das_controls import (
    DECOY_NETWORKS,
    DECOY_SITE,
    ControlledDAS,
    principal_angles,
    random_subspaces,
    sign_flipped_subspaces,
    untrained_copy,
)
from arith_erd.interp.erasure import MIN_RELATIVE_DEVIATION, whiten
from arith_erd.interp.hooked import Hooked, Provenance
from arith_erd.interp.interventions import Subspace
from arith_erd.models import NanoGPT
from arith_erd.models.handcoded import write_network
from arith_erd.models.network import initialise
from arith_erd.tasks import Add
from tests.unit.interp.toys import CHANNELS, InDirections

TASK = Add(4)
ADDER = CausalModel(TASK)
CONFIG = DASConfig(256, 64, 64, steps=30, num_controls=5, num_control_pairs=40)


@pytest.fixture(scope="module")
def search() -> ControlledDAS:
    return ControlledDAS(Hooked(InDirections(TASK), task=TASK), ADDER, "dec.1", 2, CONFIG)


@pytest.mark.parametrize(("variable", "index"), [("carry", 0), ("xor", 1)])
def test_planted_direction_is_found(search: ControlledDAS, variable: str, index: int) -> None:
    (found,) = search.evaluate(variable, [1])
    for trials in (search.evaluation(data, variable) for data in search.sample_pairs(variable)):
        assert 0.3 < (trials.expected != trials.base_tokens).double().mean() < 0.7  # half of the answers should change
    assert abs(found["subspace"].directions[:, 0].float() @ search.model.network.basis[:, index]) >= 0.99
    assert found["iia"] == 1
    assert found["no_intervention"] == 0.5
    assert found["gap"] == found["train"] - found["iia"] == 0
    assert found["iia_random_max"] < 0.9


@pytest.mark.slow
def test_found_direction_is_near_the_probes_only_if_the_network_uses_what_it_stores(search):
    (planted,) = search.evaluate("carry", [1])
    assert planted["angle_least_squares"] < 5
    for name, site, near in (("prefix_carry", "dec.3", True), (*DECOY_NETWORKS["carry"][:1], DECOY_SITE, False)):
        there = ControlledDAS(Hooked(write_network(name, 0).network, task=Add()), CausalModel(Add()), site, 4, CONFIG)
        angles = there.angles_to_probes("carry", there.fit(*there.sample_pairs("carry")[:2], "carry", 1))
        low, high = angles["angle_random_low"], angles["angle_random_high"]
        assert 15 < low < 85 < high <= 90
        assert all((angles[name] < low) == near for name in ("angle_least_squares", "angle_leace"))
    first = ControlledDAS(search.model, ADDER, "dec.1", 0, CONFIG)
    assert np.isnan([*first.angles_to_probes("carry", planted["subspace"]).values()]).all()  # bit 0 has no carry


def test_smallest_sufficient_rank_is_chosen(search: ControlledDAS) -> None:
    one, two, three = search.evaluate("sum", [1, 2, 3])
    assert one["iia"] < 0.9
    assert two["iia"] == three["iia"] == 1
    assert [found["chosen"] for found in (one, two, three)] == [False, True, False]
    assert ["iia_untrained" in found for found in (one, two, three)] == [False, True, False]
    torch.testing.assert_close(
        two["subspace"].directions.T @ two["subspace"].directions, torch.eye(2), atol=1e-5, rtol=0
    )


def test_search_where_there_is_no_subspace_of_the_rank_is_refused(search: ControlledDAS) -> None:
    with pytest.raises(UserError, match=rf"^probe\.rank=9: expected at most {CHANNELS}, the rank"):
        list(search.evaluate("carry", [9, 99]))
    constant = InDirections(TASK)
    constant.noise.zero_()
    constant.values |= {name: torch.zeros(TASK.size, TASK.width) for name in ("carry", "xor")}
    with pytest.raises(UserError, match=r"^probe\.site=dec\.1: expected a site that depends on the operands"):
        list(ControlledDAS(Hooked(constant, task=TASK), ADDER, "dec.1", 2, CONFIG).evaluate("carry", [1]))


def test_controls_have_the_rank_and_the_variance_of_what_they_control() -> None:
    x = torch.randn(500, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * torch.arange(1, 7)
    white = whiten(x, MIN_RELATIVE_DEVIATION)
    subspace, *others = random_subspaces(white, 2, 5, seed=1)
    assert all(principal_angles(subspace.directions, other.directions)[-1] > 1 for other in others)
    covariance = torch.cov(x.T)
    original = subspace.directions.T @ covariance @ subspace.directions
    for other in sign_flipped_subspaces(white, subspace, 5, seed=0):
        torch.testing.assert_close(other.directions.T @ other.directions, torch.eye(2, dtype=torch.float64))
        torch.testing.assert_close(other.directions.T @ covariance @ other.directions, original)
        assert principal_angles(other.directions, subspace.directions)[-1] >= 45
    assert list(sign_flipped_subspaces(white, Subspace(white.axes[:, :1]), 5, seed=0)) == []  # flips change nothing


def test_untrained_copy_is_the_network_before_training_with_sites_of_its_own() -> None:
    make = functools.partial(NanoGPT, 9, 5, d_model=16, num_heads=2, num_layers=1)
    network = make()
    for parameter in network.parameters():
        torch.nn.init.constant_(parameter, 7.0)
    model = Hooked(network, {"mine": network.sites()["dec.1"]}, task=TASK, provenance=Provenance(make_network=make))
    fresh = untrained_copy(model, 1)
    expected = initialise(make, 1).state_dict()
    assert all(torch.equal(x, expected[name]) for name, x in fresh.network.state_dict().items())
    assert not any((x == 7.0).all() for x in fresh.network.parameters())
    assert fresh.sites == {"mine": fresh.network.sites()["dec.1"]}
    assert untrained_copy(Hooked(network, task=TASK), 1) is None
