"""Networks equal references with the same weights: torch's layers, or functions; so they are causal too."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from arith_erd.models import GRU, LSTM, MLP, NanoGPT, Transformer
from arith_erd.models.network import shift_right
from arith_erd.training.lit_pack import LitPack
from arith_erd.training.pack import Pack
from tests.unit.models.networks import VARIANTS, M, P, make, tokens


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
def functional_nanogpt(ours: NanoGPT, options: dict, prompt: torch.Tensor, answer_in: torch.Tensor) -> torch.Tensor:
    """Logits (B, T, V) at every position of prompt, ``<start>`` and answer: functions and a state dict alone."""
    state = ours.state_dict()
    heads = options.get("num_heads", 8)
    x = state["embedding.weight"][torch.cat([prompt, answer_in], dim=1)]
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


REFERENCES = {Transformer: torch_transformer, NanoGPT: functional_nanogpt}


@pytest.mark.parametrize(("network", "options"), VARIANTS)
def test_every_ablation_equals_a_reference_with_the_same_weights(network, options):
    """nanoGPT's gives logits at the prompt, too."""
    ours, reference = make(network, options, num_layers=6), REFERENCES[network]
    prompt, completion = tokens()
    answer_in = shift_right(completion)
    expected = reference(ours, options, prompt, answer_in)[:, -M:]
    torch.testing.assert_close(ours(prompt, answer_in), expected, atol=1e-5, rtol=1e-5)
    assert expected.std() > 0.1


def test_nanogpt_loss_ignores_the_prompt():
    """The training loss is the authors': over the whole sequence, with the targets of prompt positions ignored."""

    def build() -> NanoGPT:
        return NanoGPT(P, M, num_layers=2, dropout=0.0)

    prompt, completion = tokens()
    pack = Pack(build, [4])
    loss = LitPack(pack, torch.optim.SGD).training_step((prompt[None], completion[None]), 0)
    targets = torch.cat([torch.full_like(prompt, -1), completion], dim=1)
    logits = functional_nanogpt(pack.replica(0), {}, prompt, shift_right(completion))
    expected = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)
    torch.testing.assert_close(loss.detach(), expected, atol=1e-6, rtol=1e-6)


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
