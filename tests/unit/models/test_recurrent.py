"""The recurrent networks are torch's, with the same weights: outputs and gradients."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from arith_erd.models import GRU, LSTM
from arith_erd.models.decoding import shift_right
from tests.unit.models.networks import P, make, tokens


@pytest.mark.parametrize(("network", "kind"), [(GRU, nn.GRU), (LSTM, nn.LSTM)])
def test_logits_and_gradients_are_those_of_torchs_layers(network, kind):
    ours = make(network, d_model=16)
    stack = kind(16, 16, num_layers=2, batch_first=True)
    pairs = {
        f"{ours_to}.{part}": f"{part}_{theirs}_l{i}"
        for i in range(2)
        for ours_to, theirs in ((f"layers.{i}.input", "ih"), (f"layers.{i}.hidden", "hh"))
        for part in ("weight", "bias")
    }
    stack.load_state_dict({name: ours.get_parameter(own).detach() for own, name in pairs.items()})
    prompt, completion = tokens()
    embedding, head = ours.embedding.weight.detach(), ours.head
    answer_in = shift_right(completion)
    states, _ = stack(embedding[torch.cat([prompt, answer_in], dim=1)])
    expected = F.linear(states[:, P:], head.weight.detach(), head.bias.detach())
    logits = ours(prompt, answer_in)
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)
    for each in (logits, expected):
        F.cross_entropy(each.flatten(0, 1), completion.flatten()).backward()
    for own, name in pairs.items():
        torch.testing.assert_close(ours.get_parameter(own).grad, stack.get_parameter(name).grad, atol=1e-5, rtol=1e-5)
    assert expected.std() > 0.1
