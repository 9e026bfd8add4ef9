"""One pass over a tree of answers gives what a pass for each answer gives."""

import pytest
import torch
from arith_erd.interp.branches import Branch, answers_to, neutral_token

from arith_erd.bits import ONE, UNUSED, ZERO
from arith_erd.models import NanoGPT, Network, Transformer
from arith_erd.models.decoding import shift_right
from arith_erd.tasks import Add

TASK = Add(3)


def make(kind: type[Network], **options) -> Network:
    torch.manual_seed(0)
    network = kind(TASK.prompt_length, TASK.width, d_model=16, num_heads=2, num_layers=2, **options)
    for parameter in network.parameters():  # nanoGPT starts so small that positions hardly matter
        parameter.data = torch.randn_like(parameter) * 0.5
    return network.eval()


@pytest.fixture
def data() -> tuple[torch.Tensor, torch.Tensor]:
    examples = TASK.examples()
    return torch.as_tensor(examples.prompt), shift_right(torch.as_tensor(examples.completion))


@pytest.mark.parametrize("kind", [Transformer, NanoGPT])
@pytest.mark.parametrize("positional_encoding", [True, False])
def test_branch_equals_running_the_whole_sequence_with_its_tokens(kind, positional_encoding, data):
    network = make(kind, positional_encoding=positional_encoding)
    prompt, answer_in = data
    generator = torch.Generator().manual_seed(1)
    branches = [
        Branch(start, torch.randint(ZERO, ONE + 1, (len(prompt), length), generator=generator))
        for start, length in ((1, 3), (2, 2), (3, 1), (2, 1), (0, 4))
    ]
    clean, found = answers_to(network, prompt, answer_in, branches, tokens=40)
    assert torch.equal(clean, network(prompt, answer_in).argmax(dim=-1))
    for branch, tokens in zip(branches, found, strict=True):
        end = branch.start + branch.tokens.shape[1]
        whole = torch.cat([answer_in[:, : branch.start], branch.tokens, answer_in[:, end:]], dim=1)
        assert torch.equal(tokens, network(prompt, whole).argmax(dim=-1)[:, branch.start : end])


@pytest.mark.parametrize("kind", [Transformer, NanoGPT])
def test_pairs_in_one_pass_do_not_change_each_other(kind, data):
    network = make(kind)
    branches = [Branch(i, torch.full((64, 2), ONE)) for i in (0, 1, 2)]
    together, apart = (answers_to(network, *data, branches, tokens=tokens)[1] for tokens in (10_000, 100))
    assert all(torch.equal(x, y) for x, y in zip(together, apart, strict=True))


@pytest.mark.parametrize("kind", [Transformer, NanoGPT])
def test_tokens_that_a_branch_must_not_see_change_nothing(kind, data):
    """Not an earlier branch of its row, nor the clean answer from its start on, nor what fills the row up."""
    network = make(kind)
    prompt, answer_in = data
    zeros, ones = (torch.full((len(prompt), 1), token) for token in (ZERO, ONE))
    long = Branch(1, torch.full((len(prompt), 3), ONE))
    alone = answers_to(network, prompt, answer_in, [long, Branch(2, ones)])[1][1]
    changed = answer_in.clone()
    changed[:, 2:] = ZERO + ONE - changed[:, 2:]
    for neighbour in (zeros, ones):
        beside = answers_to(network, prompt, changed, [long, Branch(3, neighbour), Branch(2, ones)])[1][2]
        assert torch.equal(beside, alone)


@pytest.mark.parametrize("kind", [Transformer, NanoGPT])
def test_neutral_token_has_the_mean_embedding_and_the_head_does_not_notice(kind, data):
    network = make(kind)
    prompt, answer_in = data
    before = network(prompt, answer_in)
    replaced = answer_in.masked_fill(torch.arange(4) == 2, UNUSED)
    with neutral_token(network):
        assert torch.equal(network(prompt, answer_in), before)
        neutral = network(prompt, replaced)
    embedding = network.answer_embedding if kind is Transformer else network.embedding
    if kind is Transformer:  # not tied to the head
        embedding.weight.data[UNUSED] = (embedding.weight[ZERO] + embedding.weight[ONE]) / 2
        torch.testing.assert_close(network(prompt, replaced), neutral)
    assert not any(module._forward_hooks for module in network.modules())
