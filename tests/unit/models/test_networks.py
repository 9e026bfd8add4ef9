"""Our networks equal independent implementations, and have the properties that the paper states."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from arith_erd.bits import VOCAB_SIZE, ZERO
from arith_erd.models import NanoGPT, Transformer
from arith_erd.models.attention import attend
from arith_erd.models.decoding import shift_right
from arith_erd.models.dropout import Dropout, set_dropout_keys
from arith_erd.tasks import Add, Mul
from arith_erd.training.module import LitPack
from arith_erd.training.pack import Pack

P, M = 15, 8  # seven-bit addition

ABLATIONS = {
    "none": {},
    "squeezed_encoder": {"encoder": False},
    "one_head": {"num_heads": 1},
    "d_model_32": {"d_model": 32},
    "no_positional_encoding": {"positional_encoding": False},
    "no_attention": {"attention": False},
    "no_feed_forward": {"feed_forward": False},
}
VARIANTS = [
    pytest.param(network, options, id=f"{network.__name__}-{name}")
    for network in (Transformer, NanoGPT)
    for name, options in ABLATIONS.items()
    if (network, name) != (NanoGPT, "squeezed_encoder")
]


def sees_prompt(options: dict) -> bool:
    return options.get("attention", True)


def make(network, options=(), **more):
    """A network whose every parameter has been moved off its default, so that none is tested at 0 or 1 alone."""
    torch.manual_seed(0)
    made = network(P, M, **{"num_layers": 2, **dict(options), **more}).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return made


def tokens(count: int = 12, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    prompt = torch.randint(VOCAB_SIZE, (count, P), generator=generator)
    completion = torch.randint(ZERO, VOCAB_SIZE, (count, M), generator=generator)
    return prompt, completion


def count(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


# Parameters


@pytest.mark.parametrize(
    ("network", "task", "parameters"),
    [
        (Transformer, Add(), 701_381),
        (Transformer, Mul(), 701_381),
        (NanoGPT, Add(), 297_600),
        (NanoGPT, Mul(), 297_984),
    ],
)
def test_number_of_parameters(network, task, parameters):
    assert count(network(task.prompt_length, task.width)) == parameters


def test_ablated_transformers_lose_the_expected_parameters():
    c, layers = 64, 6
    linear, norm = c * c + c, 2 * c
    attention, feed_forward = 4 * linear, (c * 4 * c + 4 * c) + (4 * c * c + c)
    full = count(Transformer(P, M))
    sizes = {name: count(Transformer(P, M, **options)) for name, options in ABLATIONS.items()}
    assert sizes["one_head"] == sizes["no_positional_encoding"] == full
    assert full - sizes["squeezed_encoder"] == layers * (attention + feed_forward + 2 * norm)
    assert full - sizes["no_attention"] == layers * 3 * attention  # the norms stay
    assert full - sizes["no_feed_forward"] == layers * 2 * (feed_forward + norm)
    assert sizes["d_model_32"] < full / 3


def test_ablated_nanogpts_lose_the_expected_parameters():
    c, layers = 64, 6
    full = count(NanoGPT(P, M))
    sizes = {name: count(NanoGPT(P, M, **options)) for name, options in ABLATIONS.items() if name != "squeezed_encoder"}
    assert sizes["one_head"] == full
    assert full - sizes["no_positional_encoding"] == (P + M + 1) * c
    assert full - sizes["no_attention"] == layers * (4 * c * c + c)
    assert full - sizes["no_feed_forward"] == layers * (8 * c * c + c)


@pytest.mark.parametrize("network", [Transformer, NanoGPT])
def test_d_model_must_be_a_multiple_of_num_heads(network):
    with pytest.raises(ValueError, match="d_model=63 must be a multiple of num_heads=8"):
        network(P, M, d_model=63)


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


def test_transformer_embeddings_start_standard_normal_and_are_separate():
    torch.manual_seed(0)
    network = Transformer(P, M)
    for embedding in (network.prompt_embedding, network.answer_embedding):
        assert embedding.weight.std().item() == pytest.approx(1, rel=0.2)
    assert not torch.equal(network.prompt_embedding.weight, network.answer_embedding.weight)


# Against torch.nn's own Transformer


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
@pytest.mark.parametrize("layers", [1, 6])
def test_transformer_equals_torch_layers_with_the_same_weights(name, layers):
    options = ABLATIONS[name]
    network = make(Transformer, options, num_layers=layers)
    prompt, completion = tokens()
    answer_in = shift_right(completion)
    expected = torch_transformer(network, options, prompt, answer_in)
    torch.testing.assert_close(network(prompt, answer_in), expected, atol=1e-5, rtol=1e-5)
    assert expected.std() > 0.1


# nanoGPT against plain functions


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


# What may reach what


@pytest.mark.parametrize(("network", "options"), VARIANTS)
def test_tokens_never_change_earlier_logits(network, options):
    net = make(network, options)
    prompt, completion = tokens()
    answer_in = shift_right(completion)
    with torch.no_grad():
        original = net(prompt, answer_in)
        for i in range(M):
            changed = answer_in.clone()
            changed[:, i] = (changed[:, i] + 1) % VOCAB_SIZE
            logits = net(prompt, changed)
            torch.testing.assert_close(logits[:, :i], original[:, :i], atol=1e-6, rtol=0)
            moved = (logits - original).abs().amax(dim=(0, 2)) > 1e-4
            assert moved[i], f"token {i} does not reach its own logits"
            onward = moved[i + 1 :]
            assert onward.all() if sees_prompt(options) else not onward.any()


@pytest.mark.parametrize(("network", "options"), VARIANTS)
def test_prompt_reaches_the_answer_only_through_attention(network, options):
    net = make(network, options)
    prompt, completion = tokens()
    answer_in = shift_right(completion)
    with torch.no_grad():
        original = net(prompt, answer_in)
        for i in range(P):
            changed = prompt.clone()
            changed[:, i] = (changed[:, i] + 1) % VOCAB_SIZE
            moved = (net(changed, answer_in) - original).abs().amax(dim=(0, 2)) > 1e-5
            assert moved.all() if sees_prompt(options) else not moved.any()


@pytest.mark.parametrize(("network", "options"), VARIANTS)
def test_decoding_a_prefix_gives_the_same_logits_as_the_whole(network, options):
    net = make(network, options)
    prompt, completion = tokens()
    answer_in = shift_right(completion)
    with torch.no_grad():
        whole = net(prompt, answer_in)
        for length in range(1, M + 1):
            part = net.decode(net.encode(prompt), answer_in[:, :length])
            torch.testing.assert_close(part, whole[:, :length], atol=1e-5, rtol=1e-5)


def test_transformer_without_positions_ignores_the_prompts_order():
    prompt, completion = tokens()
    answer_in = shift_right(completion)
    for options, lost in (({"positional_encoding": False}, True), ({}, False)):
        network = make(Transformer, options)
        difference = (network(prompt.flip(1), answer_in) - network(prompt, answer_in)).abs().max()
        assert (difference < 1e-5) == lost


# Sites


@pytest.mark.parametrize(
    ("network", "options", "names"),
    [
        (Transformer, {}, [*(f"enc.{i}" for i in range(1, 7)), *(f"dec.{i}" for i in range(1, 7))]),
        (Transformer, {"encoder": False}, [f"dec.{i}" for i in range(1, 7)]),
        (NanoGPT, {}, [f"dec.{i}" for i in range(1, 7)]),
    ],
)
def test_sites_are_the_layers_in_order(network, options, names):
    net = make(network, options, num_layers=6)
    ran = {}
    sites = {name: module for name, module in net.sites().items() if name.count(".") == 1 and name[-1].isdigit()}
    for name, module in sites.items():
        module.register_forward_hook(lambda _m, _i, output, name=name: ran.update({name: output.shape}))
    prompt, completion = tokens(count=3)
    net(prompt, shift_right(completion))
    assert list(sites) == names
    assert list(ran) == names
    steps = {"enc": P, "dec": M if network is Transformer else P + M}
    assert ran == {name: (3, M if name == "dec.6" else steps[name.split(".")[0]], 64) for name in names}


# Attention


def softmax_attention(q, k, v, future=None):
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    return (scores if future is None else scores.masked_fill(future, float("-inf"))).softmax(-1) @ v


@given(
    st.integers(1, 4), st.integers(1, 9), st.integers(1, 9), st.sampled_from([0.0, 1e-4, 1.0, 30.0]), st.integers(0, 99)
)
def test_attend_is_softmax_attention(heads, steps, size, scale, seed):
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(2, heads, steps, size, generator=generator, dtype=torch.float64) for _ in range(3))
    future = torch.ones(steps, steps).triu(1).bool()
    for mask in (None, future):
        torch.testing.assert_close(attend(scale * q, k, v, mask), softmax_attention(scale * q, k, v, mask))


@pytest.mark.parametrize("sign", [1, -1])
def test_attend_survives_logits_of_ten_thousand(sign):
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 2, 8, 4, generator=generator) for _ in range(3))
    q = sign * 1e4 * q
    future = torch.ones(8, 8).triu(1).bool()
    for mask in (None, future):
        assert (q @ k.transpose(-2, -1) / 2).abs().max() > 1e4
        result = attend(q, k, v, mask)
        assert result.isfinite().all()
        torch.testing.assert_close(result, softmax_attention(q, k, v, mask), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_attend_has_the_gradient_of_softmax_attention(scale):
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(2, 2, 6, 4, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(3)]
    future = torch.ones(6, 6).triu(1).bool()
    gradients = [
        torch.autograd.grad(function(scale * inputs[0], *inputs[1:], future).square().sum(), inputs)
        for function in (attend, softmax_attention)
    ]
    torch.testing.assert_close(gradients[0], gradients[1])


def test_attention_dropout_applies_to_normalised_weights():
    """As in nanoGPT: what is dropped is not made up for by the other weights."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 2, 6, 4, generator=generator) for _ in range(3))
    dropout = Dropout(0.5).train()
    dropout.key = torch.tensor([7, 9], dtype=torch.int32)
    weights = (q @ k.transpose(-2, -1) / 2).softmax(-1)
    torch.testing.assert_close(attend(q, k, v, dropout=dropout), dropout(weights) @ v)


# Training


@pytest.mark.parametrize(("network", "options"), VARIANTS)
def test_every_parameter_gets_a_gradient(network, options):
    """But the bias of keys, which softmax cannot see, and, without attention, whatever handles the prompt alone."""
    net = make(network, options)
    set_dropout_keys(net, torch.zeros(2, dtype=torch.int32))
    prompt, completion = tokens(64)
    F.cross_entropy(net(prompt, shift_right(completion)).flatten(0, 1), completion.flatten()).backward()
    silent = {name for name, p in net.named_parameters() if p.grad is None or p.grad.abs().max() == 0}
    prompt_only = {name for name, _ in net.named_parameters() if name.startswith(("encoder.", "prompt_embedding."))}
    assert {name for name in silent if not name.endswith("key.bias")} == (
        set() if sees_prompt(options) else prompt_only
    )
