"""The Transformer equals `torch.nn`'s with the same weights, for every ablation; so it is causal too."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from arith_erd.models import Transformer
from arith_erd.models.decoding import shift_right
from tests.unit.models.networks import ABLATIONS, P, make, tokens


def positions(length: int, d_model: int) -> torch.Tensor:
    table = torch.zeros(length, d_model)
    for position in range(length):
        for i in range(0, d_model, 2):
            angle = position / 10000 ** (i / d_model)
            table[position, i], table[position, i + 1] = math.sin(angle), math.cos(angle)
    return table


def copy_attention(ours, theirs: nn.MultiheadAttention) -> None:
    theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key.weight, ours.value.weight]))
    theirs.in_proj_bias.copy_(torch.cat([ours.query.bias, ours.key.bias, ours.value.bias]))
    theirs.out_proj.load_state_dict(ours.out.state_dict())


def torch_layer(ours, layer_class, d_model: int, num_heads: int) -> nn.Module:
    """A layer of `torch.nn` with the weights of ours; with an ablated sublayer's weights at zero instead."""
    theirs = layer_class(d_model, num_heads, 4 * d_model, dropout=0.0, batch_first=True, norm_first=False)
    attentions = {"self_attn": ours.self_attention}
    if layer_class is nn.TransformerDecoderLayer:
        attentions["multihead_attn"] = ours.cross_attention
    for i, (name, residual) in enumerate(attentions.items(), 1):
        getattr(theirs, f"norm{i}").load_state_dict(residual.norm.state_dict())
        if residual.sublayer is None:
            nn.init.zeros_(getattr(theirs, name).out_proj.weight)
            nn.init.zeros_(getattr(theirs, name).out_proj.bias)
        else:
            copy_attention(residual.sublayer, getattr(theirs, name))
    last_norm = f"norm{len(attentions) + 1}"
    if isinstance(ours.feed_forward, nn.Identity):  # its norm goes too
        nn.init.zeros_(theirs.linear2.weight)
        nn.init.zeros_(theirs.linear2.bias)
        setattr(theirs, last_norm, nn.Identity())
    else:
        theirs.linear1.load_state_dict(ours.feed_forward.sublayer.expand.state_dict())
        theirs.linear2.load_state_dict(ours.feed_forward.sublayer.contract.state_dict())
        getattr(theirs, last_norm).load_state_dict(ours.feed_forward.norm.state_dict())
    return theirs


@torch.no_grad()
def torch_transformer(ours: Transformer, options: dict, prompt, answer_in) -> torch.Tensor:
    d_model, num_heads = options.get("d_model", 64), options.get("num_heads", 8)
    table = positions(P, d_model) if options.get("positional_encoding", True) else torch.zeros(P, d_model)
    memory = F.embedding(prompt, ours.prompt_embedding.weight) + table
    for layer in ours.encoder:
        memory = torch_layer(layer, nn.TransformerEncoderLayer, d_model, num_heads)(memory)
    x = F.embedding(answer_in, ours.answer_embedding.weight) + table[: answer_in.shape[1]]
    causal = nn.Transformer.generate_square_subsequent_mask(answer_in.shape[1])
    for layer in ours.decoder:
        x = torch_layer(layer, nn.TransformerDecoderLayer, d_model, num_heads)(x, memory, tgt_mask=causal)
    return F.linear(x, ours.head.weight, ours.head.bias)


@pytest.mark.parametrize("name", ABLATIONS)
def test_transformer_equals_torch_layers_with_the_same_weights(name):
    options = ABLATIONS[name]
    network = make(Transformer, options, num_layers=6)
    prompt, completion = tokens()
    answer_in = shift_right(completion)
    expected = torch_transformer(network, options, prompt, answer_in)
    torch.testing.assert_close(network(prompt, answer_in), expected, atol=1e-5, rtol=1e-5)
    assert expected.std() > 0.1
