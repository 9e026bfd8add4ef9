"""A search finds planted directions, and its controls are what they say."""

import numpy as np
import pytest
import torch

from arith_erd.errors import UserError
from arith_erd.interp.activations import embeddings
from arith_erd.interp.causal import CausalTask
from arith_erd.interp.controls import natural_distances, overlap, random_subspaces, sign_flipped, untrained
from arith_erd.interp.das import SPREAD, align, balanced
from arith_erd.interp.erasure import whiten
from arith_erd.interp.interchange import Subspace
from arith_erd.interp.place import Budget
from arith_erd.interp.search import DECOYS, STORED_AT, Search, in_decoy
from arith_erd.interp.signature import some_of
from arith_erd.models import Transformer
from arith_erd.models.decoding import shift_right
from arith_erd.models.references import reference
from arith_erd.tasks import Add
from tests.unit.interp.toys import CHANNELS, InDirections

TASK = Add(4)
PAIRS = CausalTask(TASK)
BUDGET = Budget(train=256, validation=64, test=64, steps=60, random=5, controlled=40)


@pytest.fixture(scope="module")
def search() -> Search:
    return Search(InDirections(TASK), PAIRS, ["dec.1"], BUDGET)


@pytest.mark.parametrize(("variable", "index"), [("carry", 0), ("xor", 1)])
def test_planted_direction_is_found(search, variable, index):
    (found,) = search.at("dec.1", 2, variable, [1])
    cosine = found.subspace.directions[:, 0].float() @ search.network.basis[:, index]
    assert abs(cosine) >= 0.99
    assert found.iia == 1
    assert found.floor == 0.5
    assert found.strength == found.strength_whole == 1
    assert found.controls["iia_random_max"] < 0.9
    assert found.controls["train_arbitrary"] < 0.7
    assert found.controls["distance"] < 1


def test_planted_direction_is_found_from_a_random_start(search):
    place = search.place("dec.1", 2)
    start = torch.randn(CHANNELS, 1, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    found = align(place._lessons(place.exams("carry")[0]), place.x, 1, start, steps=150, lr=0.1)
    assert abs(found.directions[:, 0].float() @ search.network.basis[:, 0]) >= 0.99


def test_smallest_sufficient_rank_is_chosen(search):
    one, two, three = search.at("dec.1", 2, "sum", [1, 2, 3])
    assert one.iia < 0.9
    assert two.iia == three.iia == 1
    assert [found.chosen for found in (one, two, three)] == [False, True, False]
    assert "iia_untrained" in two.controls
    assert "iia_untrained" not in one.controls
    torch.testing.assert_close(two.subspace.directions.T @ two.subspace.directions, torch.eye(2), atol=1e-5, rtol=0)


@pytest.mark.parametrize("variable", DECOYS)
def test_decoys_store_their_variables_where_they_are_searched_and_have_no_answer_there(variable):
    name, variant = DECOYS[variable]
    made = reference(name, variant)
    pairs = some_of(CausalTask(Add()), 256, np.random.default_rng(0))
    prompt, completion = (torch.from_numpy(x) for x in (pairs.examples.prompt, pairs.examples.completion))
    x = embeddings(made.network, prompt, shift_right(completion), [STORED_AT], 256)[STORED_AT].view(256, 8, -1)[:, 4]

    def stored(feature: str, variable: str) -> float:
        read = (x.double() @ made.decoder.directions(feature))[:, 0]
        return abs(np.corrcoef(read, pairs.values[variable][:, 4])[0, 1])

    features = {"sum": ["value"], "partial_sum": ["value"], "carry": ["carry"], "xor": ["a", "b"]}
    for feature in features.get(variable, [variable.removesuffix("_bit")]):
        stands_for = {"value": "sum", "carry": "carry", "a": "a_bit", "b": "b_bit"}[feature]
        assert stored(feature, stands_for) > 0.99
    assert stored("answer", "answer") < 0.3


def test_carry_that_is_stored_unread_is_not_found():
    few = Budget(train=256, validation=64, test=64, steps=2, random=2, controlled=40)
    assert in_decoy("carry", 4, 1, few, 0) < 0.8


def test_sets_of_couples_share_no_operand(search):
    operands = [set(PAIRS.a[base]) | set(PAIRS.b[base]) for base in search.setting.bases]
    assert not operands[0] & operands[1]
    assert not operands[0] & operands[2]
    assert not operands[1] & operands[2]


def test_same_seed_finds_the_same(search):
    again = Search(InDirections(TASK), PAIRS, ["dec.1"], BUDGET)
    first, second = (s.at("dec.1", 3, "carry", [1])[0] for s in (search, again))
    assert torch.equal(first.subspace.directions, second.subspace.directions)
    assert first.controls == second.controls


def test_directions_stay_in_the_span_of_real_embeddings():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 3, generator=generator) @ torch.randn(3, 6, generator=generator)
    white = whiten(x, SPREAD)
    for subspace in random_subspaces(white, 2, 4, seed=0):
        inside = white.axes @ (white.axes.T @ subspace.directions)
        torch.testing.assert_close(inside, subspace.directions)


def test_sign_flipped_subspaces_keep_rank_variance_and_spectrum():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(500, 6, generator=generator, dtype=torch.float64) * torch.arange(1, 7)
    white = whiten(x)
    subspace = next(random_subspaces(white, 2, 1, seed=1))
    covariance = torch.cov(x.T)
    original = subspace.directions.T @ covariance @ subspace.directions
    for other in sign_flipped(white, subspace, 5, seed=0):
        torch.testing.assert_close(other.directions.T @ other.directions, torch.eye(2, dtype=torch.float64))
        torch.testing.assert_close(other.directions.T @ covariance @ other.directions, original)
        assert overlap(other.directions, subspace.directions) <= 0.5


def test_flips_that_give_the_same_subspace_are_no_control():
    x = whiten(torch.randn(500, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    first, last = x.axes[:, :1], x.axes[:, 5:]
    assert list(sign_flipped(x, Subspace(first), 5, seed=0)) == []
    between = Subspace((first + last) / 2**0.5)
    opposite = (first - last) / 2**0.5
    assert all(overlap(opposite, other.directions) == pytest.approx(1) for other in sign_flipped(x, between, 5, seed=0))


def test_natural_states_are_natural():
    x = torch.randn(300, 4, generator=torch.Generator().manual_seed(0))
    on, own = natural_distances(x, x[:50])
    off, _ = natural_distances(x, x[:50] + 10)
    assert on == 0
    assert off > 5 * own > 0


def test_untrained_copy_does_not_change_the_trained_network():
    network = Transformer(9, 5, d_model=16, num_heads=2, num_layers=1).eval()
    before = {name: p.clone() for name, p in network.named_parameters()}
    fresh, again = untrained(network, 1), untrained(network, 1)
    assert all(torch.equal(p, before[name]) for name, p in network.named_parameters())
    assert not torch.equal(fresh.head.weight, network.head.weight)
    assert torch.equal(fresh.head.weight, again.head.weight)
    assert not fresh.training


def test_balanced_accuracy_of_a_right_network_without_an_exchange_is_one_half():
    right = torch.tensor([[3], [4], [3], [3]])
    expected = torch.tensor([[4], [4], [3], [3]])
    assert balanced(right, expected, right) == 0.5
    assert balanced(expected, expected, right) == 1
    assert balanced(right, right, right) == 1  # nothing should change, nothing did


def test_places_that_make_no_sense_are_refused(search):
    with pytest.raises(UserError, match=r"probe\.variable=carry: expected sum or product"):
        search.at("dec.1", None, "carry", [1])
    with pytest.raises(ValueError, match=r"rank 9: expected from 1 to 8"):
        align([], search.place("dec.1", 1).x, 9, torch.zeros(8, 1))


def test_exchanging_a_subspace_keeps_its_complement():
    base, source = np.zeros((2, 3)), np.ones((2, 3))
    first = Subspace(torch.eye(3)[:, :1])
    exchanged = first.exchange(torch.as_tensor(base), torch.as_tensor(source))
    assert exchanged.tolist() == [[1, 0, 0], [1, 0, 0]]


class Constant(InDirections):
    """Its layer says the same of all pairs."""

    def decode(self, memory, answer_in, tree=None):
        return super().decode(memory, answer_in, tree) + 0 * self.site(torch.ones(*answer_in.shape, CHANNELS))[..., :1]


def test_search_where_there_is_no_subspace_of_the_rank_is_refused(search):
    with pytest.raises(
        UserError, match=rf"^probe\.rank=9: expected at most {CHANNELS}, the directions in which dec\.1"
    ):
        search.at("dec.1", 2, "carry", [9, 99])
    with pytest.raises(
        UserError, match=r"^probe\.site=dec\.1: expected a site that depends on the operands at position 2"
    ):
        Search(Constant(TASK), PAIRS, ["dec.1"], BUDGET).best("dec.1", 2, "carry", [1])
