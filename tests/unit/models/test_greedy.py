"""Greedy decoding gives the right sequence exactly where every argmax is right after the right prefix."""

import pytest
import torch
from torch.nn import functional as F

from arith_erd.digits import START
from arith_erd.models import NanoGPT, Transformer
from arith_erd.models.network import greedy_decode, shift_right
from arith_erd.tasks import Add, Mul

CASES = {"transformer-mul": (Transformer, Mul(3, "plain", "plain")), "nanogpt-add": (NanoGPT, Add(3))}


@pytest.fixture(scope="module", params=CASES)
def half_trained(request):
    """A network that is right on some sequences and wrong on others, with the whole table."""
    network_class, task = CASES[request.param]
    torch.manual_seed(0)
    network = network_class(task.prompt_length, task.width, d_model=32, num_heads=4, num_layers=1, dropout=0.0)
    examples = task.examples()
    prompt, completion = torch.from_numpy(examples.prompt), torch.from_numpy(examples.completion)
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    constant = completion.unique(dim=0, return_counts=True)[1].max().item() / len(completion)  # its best accuracy
    for _ in range(600):
        logits = network(prompt, shift_right(completion))
        if constant + 0.05 < sequence_accuracy(logits.argmax(-1), completion) < 0.9:
            return network.eval(), prompt, completion
        optimizer.zero_grad()
        F.cross_entropy(logits.flatten(0, 1), completion.flatten()).backward()
        optimizer.step()
    pytest.fail("never half-trained")


def sequence_accuracy(predicted: torch.Tensor, completion: torch.Tensor) -> float:
    return (predicted == completion).all(-1).double().mean().item()


@torch.no_grad()
def slow_decode(network, prompt: torch.Tensor, length: int) -> torch.Tensor:
    """One example and one token at a time, the whole network run anew for each."""
    decoded = []
    for row in prompt:
        tokens = [START]
        for _ in range(length):
            tokens.append(int(network(row[None], torch.tensor([tokens]))[0, -1].argmax()))
        decoded.append(tokens[1:])
    return torch.tensor(decoded)


def test_decoding_everything_equals_teacher_forcing(half_trained):
    network, prompt, completion = half_trained
    with torch.no_grad():
        forced = network(prompt, shift_right(completion)).argmax(-1)
    decoded = greedy_decode(network, prompt, completion.shape[1])
    assert 0.05 < sequence_accuracy(decoded, completion) < 0.95
    assert torch.equal((decoded == completion).all(-1), (forced == completion).all(-1))
    assert not torch.equal(decoded, forced), "a test of nothing: no sequence went astray"


def test_greedy_equals_decoding_token_by_token(half_trained):
    network, prompt, completion = half_trained
    length = completion.shape[1]
    assert torch.equal(greedy_decode(network, prompt, length)[::2], slow_decode(network, prompt[::2], length))
