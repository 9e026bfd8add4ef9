"""What an exchange must do in any network, and in networks whose variables are known."""

import numpy as np
import pandas as pd
import pytest
import torch

from arith_erd.errors import UserError
from arith_erd.interp.activations import layers
from arith_erd.interp.causal import CausalTask
from arith_erd.interp.interchange import ForcedRuns, Subspace
from arith_erd.interp.pairs import Couples
from arith_erd.interp.transmission import transmissions
from arith_erd.models import NanoGPT, Network, Transformer
from arith_erd.tasks import Add
from tests.unit.interp.toys import InDirections

TASK = Add(3)
PAIRS = CausalTask(TASK)
RNG = np.random.default_rng(0)
COUPLES = Couples(RNG.integers(64, size=20), RNG.integers(64, size=20))


def make(kind: type[Network]) -> Network:
    torch.manual_seed(0)
    network = kind(TASK.prompt_length, TASK.width, d_model=16, num_heads=2, num_layers=2).eval()
    for parameter in network.parameters():
        parameter.data = torch.randn_like(parameter) * 0.3
    return network


@torch.no_grad()
def logits_of(network: Network, runs: ForcedRuns, prompts: np.ndarray, prefixes: np.ndarray) -> torch.Tensor:
    return network(runs.prompt[torch.as_tensor(prompts)], runs.answer_in[torch.as_tensor(prefixes)])


@pytest.mark.parametrize("kind", [Transformer, NanoGPT])
def test_embedding_exchanged_with_itself_changes_no_logit(kind):
    network = make(kind)
    runs = ForcedRuns.of(network, PAIRS, layers(network))
    itself = Couples(COUPLES.base, COUPLES.base)
    right = logits_of(network, runs, COUPLES.base, COUPLES.base)
    generator = torch.Generator().manual_seed(0)
    subspace = Subspace(torch.linalg.qr(torch.randn(16, 3, generator=generator))[0])
    for site in layers(network):
        for position in (0, 2, None):
            torch.testing.assert_close(runs.exchange(site, itself, position), right, atol=1e-5, rtol=0)
        torch.testing.assert_close(runs.exchange(site, itself, 1, subspace), right, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("kind", "site"), [(Transformer, "enc.2"), (Transformer, "dec.2"), (NanoGPT, "dec.2")])
def test_exchanging_everything_gives_the_other_pairs_logits(kind, site):
    network = make(kind)
    runs = ForcedRuns.of(network, PAIRS, [site])
    prefixes = COUPLES.base if site.startswith("enc.") else COUPLES.source
    expected = logits_of(network, runs, COUPLES.source, prefixes)
    torch.testing.assert_close(runs.exchange(site, COUPLES, None), expected, atol=1e-5, rtol=0)


def test_whole_space_is_the_whole_embedding():
    network = make(Transformer)
    runs = ForcedRuns.of(network, PAIRS, ["dec.1"])
    whole = runs.exchange("dec.1", COUPLES, 2)
    torch.testing.assert_close(runs.exchange("dec.1", COUPLES, 2, Subspace(torch.eye(16))), whole, atol=1e-5, rtol=0)
    until = runs.continuation("dec.1", COUPLES.base, until=2)(runs.at("dec.1", COUPLES.source, 2), 2)
    torch.testing.assert_close(until, whole[:, :3], atol=1e-5, rtol=0)


def test_gradients_reach_the_embedding_and_not_the_weights():
    network = make(Transformer)
    runs = ForcedRuns.of(network, PAIRS, ["dec.1"])
    patched = runs.continuation("dec.1", COUPLES.base)
    value = runs.at("dec.1", COUPLES.source, 1).requires_grad_()
    patched(value, 1)[:, 1].square().sum().backward(inputs=[value])
    assert value.grad is not None
    assert value.grad.abs().sum() > 0
    assert all(parameter.grad is None for parameter in network.parameters())
    assert not patched(value.detach(), 1).requires_grad


def test_only_some_pairs_can_be_run():
    network = make(Transformer)
    members = np.array([5, 3, 60])
    some, every = ForcedRuns.of(network, PAIRS, ["dec.1"], members), ForcedRuns.of(network, PAIRS, ["dec.1"])
    torch.testing.assert_close(some.at("dec.1", members, 1), every.at("dec.1", members, 1))
    assert (some.tokens[0] == -1).all()


def test_embeddings_that_are_not_finite_are_refused():
    network = make(Transformer)
    network.head.weight.data[:] = 1
    network.decoder[0].feed_forward.norm.bias.data[0] = torch.nan
    with pytest.raises(UserError, match=r"probe\.site=dec\.1: .* expected finite numbers"):
        ForcedRuns.of(network, PAIRS, ["dec.1"])


def test_exchanged_variables_in_a_network_that_holds_both_at_one_place():
    rows = pd.DataFrame(transmissions(InDirections(TASK), PAIRS, ["dec.1"], sample=30))
    flipped = rows.groupby("family")["flipped"].agg(["min", "max"])
    assert flipped.loc[["carry_only", "xor_only"]].to_numpy().tolist() == [[1, 1], [1, 1]]
    assert flipped.loc[["both", "equal_sum"]].to_numpy().tolist() == [[0, 0], [0, 0]]
    assert (rows["iia_sum"] == 1).all()
    assert (rows["floor_none"] == 1).all()
    assert (rows["ceiling_sum"] == 1).all()
    assert (rows["flipped_later"] == 0).all()
    assert set(rows.loc[rows["family"] == "carry_only", "answer"]) <= {1, 2, 3}  # no carry enters bit 0


def test_encoder_is_read_at_every_bit_of_the_answer():
    rows = pd.DataFrame(transmissions(make(Transformer), PAIRS, ["enc.2", "dec.1"], sample=8))
    encoder = rows[rows["site"] == "enc.2"]
    assert set(encoder["position"]) == set(range(7))
    assert set(encoder["answer"]) == set(range(4))
    assert encoder["iia_token"].notna().all()
    assert rows.loc[rows["site"] == "dec.1", "iia_token"].isna().all()
    decoder = rows[rows["site"] == "dec.1"]
    assert (decoder["position"] == decoder["answer"]).all()
    assert not rows.duplicated(["site", "position", "family", "answer"]).any()
