"""nanoGPT equals a reference made of functions with the same weights, for every ablation; so it is causal."""

import math

import pytest
import torch
from torch.nn import functional as F

from arith_erd.models import NanoGPT
from arith_erd.models.decoding import shift_right
from arith_erd.training.module import LitPack
from arith_erd.training.pack import Pack
from tests.unit.models.networks import ABLATIONS, M, P, make, tokens


def test_nanogpt_is_initialised_like_gpt2():
    torch.manual_seed(0)
    network = NanoGPT(P, M)
    for name, parameter in network.named_parameters():
        if parameter.dim() == 1:
            assert (parameter == 1).all(), name
        else:
            std = 0.02 / math.sqrt(12) if name.endswith("out.weight") else 0.02
            assert parameter.std().item() == pytest.approx(std, rel=0.15), name
    assert sum(name.endswith("out.weight") for name, _ in network.named_parameters()) == 12


@torch.no_grad()
def functional_nanogpt(ours: NanoGPT, options: dict, sequence: torch.Tensor) -> torch.Tensor:
    """Logits (B, T, V) at every position of prompt, ``<start>`` and answer: functions and a state dict alone."""
    state = ours.state_dict()
    heads = options.get("num_heads", 8)
    x = state["embedding.weight"][sequence]
    channels = x.shape[-1]
    if options.get("positional_encoding", True):
        x = x + state["positions.weight"][: x.shape[1]]
    layer = 0
    while any(name.startswith(f"blocks.{layer}.") for name in state):
        block = f"blocks.{layer}"
        if options.get("attention", True):
            y = F.layer_norm(x, (channels,), state[f"{block}.attention.norm.weight"])
            q, k, v = (
                z.view(*z.shape[:2], heads, channels // heads).permute(0, 2, 1, 3)
                for z in F.linear(y, state[f"{block}.attention.sublayer.qkv.weight"]).split(channels, dim=-1)
            )
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True).permute(0, 2, 1, 3).reshape(x.shape)
            x = x + F.linear(y, state[f"{block}.attention.sublayer.out.weight"])
        if options.get("feed_forward", True):
            y = F.layer_norm(x, (channels,), state[f"{block}.feed_forward.norm.weight"])
            y = F.gelu(F.linear(y, state[f"{block}.feed_forward.sublayer.expand.weight"]))
            x = x + F.linear(y, state[f"{block}.feed_forward.sublayer.out.weight"])
        layer += 1
    return F.linear(F.layer_norm(x, (channels,), state["norm.weight"]), state["embedding.weight"])


@pytest.mark.parametrize("name", [name for name in ABLATIONS if name != "squeezed_encoder"])
def test_nanogpt_equals_a_functional_reference_with_the_same_weights(name):
    options = ABLATIONS[name]
    network = make(NanoGPT, options, num_layers=6)
    prompt, completion = tokens()
    answer_in = shift_right(completion)
    expected = functional_nanogpt(network, options, torch.cat([prompt, answer_in], dim=1))[:, P:]
    torch.testing.assert_close(network(prompt, answer_in), expected, atol=1e-5, rtol=1e-5)
    assert expected.std() > 0.1


def test_nanogpt_loss_ignores_the_prompt():
    """The training loss is the authors': over the whole sequence, with the targets of prompt positions ignored."""

    def build() -> NanoGPT:
        return NanoGPT(P, M, num_layers=2, dropout=0.0)

    prompt, completion = tokens()
    pack = Pack(build, [4])
    loss = LitPack(pack, torch.optim.SGD).training_step((prompt[None], completion[None]), 0)
    sequence = torch.cat([prompt, shift_right(completion)], dim=1)
    targets = torch.cat([torch.full_like(prompt, -1), completion], dim=1)
    logits = functional_nanogpt(pack.replica(0), {}, sequence)
    expected = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)
    torch.testing.assert_close(loss.detach(), expected, atol=1e-6, rtol=1e-6)
