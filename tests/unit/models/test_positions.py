"""Position encodings: what padding, equal places and differences of places mean to a network."""

import numpy as np
import pytest
import torch

from arith_erd.errors import UserError
from arith_erd.models import NanoGPT, Transformer
from arith_erd.models.dropout import set_dropout_keys
from arith_erd.models.network import shift_right
from arith_erd.models.positions import DIGIT_PLACE_ENCODINGS, Rotary
from arith_erd.tasks import POSITION_ENCODINGS, Add

SIZE = {"d_model": 16, "num_heads": 2, "num_layers": 2}
LENGTHS = Add(bits=4, min_bits=1)


def nanogpt(encoding, task, **options):
    torch.manual_seed(0)
    sizes = {"prompt_length": task.prompt_length, "answer_length": task.answer_length}
    return NanoGPT(**sizes, **SIZE, positions=encoding, layout=task.layout, **options).eval()


def tensors(examples):
    return torch.as_tensor(examples.prompt), shift_right(torch.as_tensor(examples.completion))


@torch.no_grad()
@pytest.mark.parametrize("encoding", POSITION_ENCODINGS)
def test_operands_with_padding_are_answered_as_without(encoding):
    """Two digits in slots for four, beside a network of two-digit operands with the same weights."""
    short, own = Add(bits=2), nanogpt(encoding, LENGTHS)
    alone = nanogpt(encoding, short)
    weights = dict(own.state_dict())
    if "positions.weight" in weights:  # of the first places
        weights["positions.weight"] = weights["positions.weight"][: len(alone.positions.weight)]
    alone.load_state_dict(weights)
    table = short.examples()
    padded = LENGTHS.examples(*table.operands.T, length=np.full(len(table), 2))
    prompt, answer_in = tensors(padded)
    torch.testing.assert_close(own(prompt, answer_in)[:, :3], alone(*tensors(table)), rtol=0, atol=1e-5)


@torch.no_grad()
def test_every_scheme_but_none_tells_orders_apart():
    """We ask an encoder-decoder: the decoder-only network knows an order without positions, since it is causal."""
    task = Add(bits=3)
    one, other = (tensors(task.examples([a], [b])) for a, b in ((1, 5), (4, 5)))  # the same tokens in another order
    for encoding in POSITION_ENCODINGS:
        torch.manual_seed(0)
        network = Transformer(7, 4, **SIZE, positions=encoding, layout=task.layout).eval()
        same = torch.allclose(network(one[0], one[1]), network(other[0], one[1]), atol=1e-6)
        assert same == (encoding == "none"), encoding
        torch.manual_seed(0)
        ablated = Transformer(7, 4, **SIZE, positions=encoding, positional_encoding=False, layout=task.layout).eval()
        assert torch.allclose(ablated(one[0], one[1]), ablated(other[0], one[1]), atol=1e-6)


@torch.no_grad()
def test_rope_scores_depend_on_the_difference_of_two_places():
    rotary, generator = Rotary(20, 8), torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 8, generator=generator)
    turned = [rotary(x.expand(1, 1, 20, 8))[0, 0] for x in (q, k)]
    scores = turned[0] @ turned[1].T
    for difference in range(-5, 6):
        diagonal = scores.diagonal(difference)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=0, atol=1e-4)
    assert scores.std() > 0.1
    torch.testing.assert_close(rotary(q.expand(1, 1, 20, 8)).norm(dim=-1), q.norm().expand(1, 1, 20))


@torch.no_grad()
@pytest.mark.parametrize("encoding", DIGIT_PLACE_ENCODINGS)
def test_digits_of_equal_place_get_the_same_vector(encoding):
    task = Add(bits=3)
    network = nanogpt(encoding, task)
    added = network.positions(torch.zeros(1, 11, 16), torch.zeros(1, 11, dtype=torch.int64))[0]
    by_name = dict(zip([*task.prompt_names, "start", *task.answer_names], added, strict=False))
    for t in range(3):
        assert torch.equal(by_name[f"a{t}"], by_name[f"b{t}"])
        assert torch.equal(by_name[f"a{t}"], by_name[f"r{t}"])
    assert torch.equal(by_name["+"], by_name["start"])
    assert len({tuple(row) for row in added.tolist()}) == 4


def test_coupled_shifts_all_tokens_and_abacus_the_digits_alone():
    """An answer to 2 digits has 3, to 4 digits 5, of which a network reads all but the last: two places are left."""
    table = Add(bits=2).examples()
    examples = LENGTHS.examples(*table.operands.T, length=np.full(len(table), 2))
    tokens = torch.cat(tensors(examples), dim=1)
    for encoding in DIGIT_PLACE_ENCODINGS:
        network = nanogpt(encoding, LENGTHS).train()
        set_dropout_keys(network, torch.tensor([5, 6], dtype=torch.int32))
        added = network.positions(torch.zeros(*tokens.shape, 16), tokens)
        operator = LENGTHS.prompt_names.index("+")
        found = [len(added[:, i].unique(dim=0)) for i in (0, operator)]
        assert found == [3, 3 if encoding == "coupled" else 1]
        set_dropout_keys(network, torch.tensor([5, 6], dtype=torch.int32), step=1)
        assert not torch.equal(network.positions(torch.zeros(*tokens.shape, 16), tokens), added)
        network.eval()
        assert len(network.positions(torch.zeros(*tokens.shape, 16), tokens)[:, 0].unique(dim=0)) == 1


@pytest.mark.parametrize("encoding", DIGIT_PLACE_ENCODINGS)
def test_training_on_short_operands_trains_the_places_of_the_longest(encoding):
    network = nanogpt(encoding, LENGTHS).train()
    prompt, answer_in = tensors(LENGTHS.sample(200)[np.arange(4 + 16)])  # of one and two digits
    for step in range(8):
        set_dropout_keys(network, torch.tensor([5, 6], dtype=torch.int32), step)
        logits = network(prompt, answer_in)
        logits[:, 0].square().sum().backward()  # of the first token, which every example has
    reached = network.positions.weight.grad.norm(dim=1)
    assert (reached[1:5] > 0).all()  # of the four digits of the longest operands


def test_incomplete_position_encodings_are_refused():
    with pytest.raises(UserError, match=r"expected layout=, such as task\.layout"):
        NanoGPT(7, 4, **SIZE, positions="coupled")
    with pytest.raises(UserError, match="positions=fixed: expected one of learned, sinusoidal"):
        NanoGPT(7, 4, **SIZE, positions="fixed")
    with pytest.raises(UserError, match="operands of one length"):
        Transformer(9, 5, **SIZE, layout=LENGTHS.layout)
