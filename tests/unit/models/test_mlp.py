"""The MLP equals plain layers over the concatenated embeddings with zeros for what is not there yet."""

import pytest
import torch

from arith_erd.models import MLP
from arith_erd.models.decoding import shift_right
from tests.unit.models.networks import M, P, make, tokens


@pytest.mark.parametrize("num_layers", [1, 3])
def test_each_position_is_an_mlp_over_the_tokens_before_it(num_layers):
    network = make(MLP, d_model=16, num_layers=num_layers)
    prompt, completion = tokens()
    answer_in = shift_right(completion)
    linear = [network.read, *(layer[1] for layer in network.layers)]
    embedded = network.embedding(torch.cat([prompt, answer_in], dim=1))
    logits = network(prompt, answer_in)
    for t in range(M):
        x = embedded.clone()
        x[:, P + t + 1 :] = 0
        x = x.flatten(1)
        for layer in linear:
            x = layer(x).relu()
        torch.testing.assert_close(logits[:, t], network.head(x), atol=1e-5, rtol=1e-5)
    assert logits.std() > 0.1
