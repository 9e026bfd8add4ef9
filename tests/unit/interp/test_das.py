"""A search with an invertible featurizer finds what no subspace carries; its interchanges are like any others."""

import pytest
import torch
from torch import Tensor, nn

import arith_erd as ae
from arith_erd.errors import UserError
from tests.unit.interp.toys import CHANNELS, InDirections, logits

TASK = ae.Add(4)
ADDER = ae.CausalModel(TASK)
DATA = ae.CounterfactualDataset.sample(ADDER, vary="carry", n=1000, digit=2)


class Rotation(nn.Module):
    def __init__(self, basis: Tensor) -> None:
        super().__init__()
        self.basis = nn.Parameter(basis)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.basis

    def inverse(self, features: Tensor) -> Tensor:
        return features @ self.basis.T


class OnCurve(InDirections):
    """Holds the carry relative to the size of another number, so it moves along a curve, and no direction holds it."""

    def decode(self, memory: Tensor, answer_in: Tensor) -> Tensor:
        length = answer_in.shape[1]
        carry, xor = (2 * self.at(name, memory, length) - 1 for name in ("carry", "xor"))
        other = torch.zeros_like(self.noise[memory, :length])
        other[..., -1] = self.noise[memory, :length, 0]
        bent = carry + 2 * other[..., -1].abs()
        x = self.site(torch.cat([bent[..., None], xor[..., None], other], dim=-1))
        return logits(-3 * (x[..., 0] - 2 * x[..., -1].abs()) * x[..., 1])


def accuracy(model: ae.Hooked, data: ae.CounterfactualDataset, space: ae.Subspace | ae.Features) -> float:
    place = ae.Interchange("dec.1", 2, space)
    return ae.interchange_accuracy(model, ADDER, data, place, variable="carry")["accuracy"].item()


def test_features_of_a_rotation_are_a_subspace_in_every_intervention() -> None:
    model = ae.Hooked(InDirections(TASK), task=TASK)
    basis = model.network.basis
    pairs = DATA.part(slice(100))
    _, cache = model.run_with_cache(pairs.source_examples, "dec.1")
    by_subspace, by_features = (
        model.run(pairs.base_examples, ae.Interchange("dec.1", 2, space).with_source(cache))
        for space in (ae.Subspace(basis[:, :1]), ae.Features(Rotation(basis), 1))
    )
    torch.testing.assert_close(by_features, by_subspace)
    assert by_features.requires_grad
    assert accuracy(model, pairs, ae.Features(Rotation(basis), 1)) == 1
    assert accuracy(model, pairs, ae.Features(Rotation(basis.roll(1, dims=1)), 1)) < 0.8
    patched = ae.Features(Rotation(basis), CHANNELS).interchange(*torch.randn(2, 5, CHANNELS).unbind())
    assert patched.shape == (5, CHANNELS)


def test_coupling_layers_are_undone_and_begin_with_the_given_directions() -> None:
    directions = torch.linalg.qr(torch.randn(7, 2))[0]
    layers, x = ae.CouplingLayers(7, directions=directions), torch.randn(50, 7)
    for given in (directions, -directions):  # as they are, not turned round
        torch.testing.assert_close(ae.CouplingLayers(7, directions=given)(x)[:, :2], x @ given, atol=1e-5, rtol=0)
    at_start = ae.Features(layers, 2).interchange(x, x.flip(0))
    torch.testing.assert_close(at_start, ae.Subspace(directions).interchange(x, x.flip(0)), atol=1e-5, rtol=0)
    for parameter in layers.parameters():
        nn.init.normal_(parameter, std=0.2)
    torch.testing.assert_close(layers.inverse(layers(x)), x, atol=1e-4, rtol=1e-4)
    mixed = ae.Features(layers, 2).interchange(x, x.flip(0))
    assert (mixed - x).abs().max() > 0.1
    torch.testing.assert_close(layers(mixed)[:, :2], layers(x.flip(0))[:, :2], atol=1e-3, rtol=1e-3)


def test_variable_on_a_curve_is_found_by_features_and_by_no_direction() -> None:
    """They hold on pairs with other operands, so the features carry the variable and not the pairs."""
    model = ae.Hooked(OnCurve(TASK), task=TASK)
    train, test = DATA.split()
    line = ae.fit_das(model, ADDER, train, "dec.1", 2)
    start = ae.CouplingLayers(CHANNELS, hidden=32, directions=torch.eye(CHANNELS))
    before = [x.clone() for x in start.state_dict().values()]
    features = ae.fit_das(model, ADDER, train, "dec.1", 2, featurizer=start, steps=100)
    assert all(torch.equal(x, y) for x, y in zip(before, start.state_dict().values(), strict=True))
    found = {space: accuracy(model, test, space) for space in (line, features)}
    assert found[line] < 0.9 < 0.95 <= found[features]
    assert accuracy(model, train, features) - found[features] <= 0.05


def test_unusable_featurizers_are_refused() -> None:
    model = ae.Hooked(InDirections(TASK), task=TASK)

    class Squares(Rotation):
        def inverse(self, features: Tensor) -> Tensor:
            return features**2

    class Still(nn.Identity):
        inverse = nn.Identity.forward

    for featurizer, said in (
        ("flow", r"^featurizer: received str; expected Module"),
        (nn.Linear(8, 8), r"^featurizer: Linear has no method inverse"),
        (Squares(torch.eye(CHANNELS)), r"^featurizer: its inverse misses activations by up to \d+%; expected an inv"),
        (Rotation(torch.eye(3)), r"^featurizer: RuntimeError: mat1 and mat2 .*; expected an invertible module"),
        (Still(), r"^featurizer: has no parameters to train; without a search"),
    ):
        with pytest.raises(UserError, match=said):
            ae.fit_das(model, ADDER, DATA, "dec.1", 2, featurizer=featurizer)
    x = torch.eye(64)
    for call, said in (
        (lambda: ae.Interchange("dec.1", 2, [1]), r"^Interchange: subspace: received list; expected Subspace"),
        (lambda: ae.Features(ae.CouplingLayers(64), 65).interchange(x, x), "^Features: rank=65: expected at most 64"),
        (lambda: ae.CouplingLayers(64, directions=torch.eye(32)), r"^CouplingLayers: .* expected directions \(64, r\)"),
    ):
        with pytest.raises(UserError, match=said):
            call()
