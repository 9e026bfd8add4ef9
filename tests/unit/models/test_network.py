"""What every network has: the published number of parameters, decoding, sites, gradients."""

from contextlib import nullcontext
from itertools import product

import pytest
import torch
from torch.nn import functional as F

from arith_erd.digits import START
from arith_erd.errors import UserError
from arith_erd.interp.hooked import Hooked
from arith_erd.models import GRU, LSTM, MLP, NanoGPT, Transformer
from arith_erd.models.network import greedy_decode, greedy_tokens, shift_right, teacher_forced_tokens
from arith_erd.tasks import Add, Mul
from tests.unit.models.networks import BASELINES, VARIANTS, M, P, make, tokens


@pytest.mark.parametrize(
    ("network", "task", "options", "parameters"),
    [
        (Transformer, Mul(), {}, 701_381),
        (NanoGPT, Add(), {}, 297_600),
        (NanoGPT, Mul(), {}, 297_984),
        (GRU, Add(), {}, 298_501),
        (LSTM, Add(), {"d_model": 112}, 304_869),
        (MLP, Add(), {}, 287_477),
        (Transformer, Add(), {"encoder": False}, 401_477),
        (Transformer, Add(), {"attention": False}, 401_861),
        (NanoGPT, Add(), {"attention": False}, 198_912),
        (NanoGPT, Add(), {"feed_forward": False}, 100_608),
    ],
)
def test_networks_have_the_published_numbers_of_parameters(network, task, options, parameters):
    made = network(task.prompt_length, task.width, **options)
    assert sum(parameter.numel() for parameter in made.parameters()) == parameters


@pytest.mark.parametrize(("network", "options"), [*VARIANTS, *((baseline, {}) for baseline in BASELINES)])
def test_decoding_a_prefix_gives_the_same_logits_as_the_whole(network, options):
    net = make(network, options)
    prompt, completion = tokens()
    answer_in = shift_right(completion)
    with torch.no_grad():
        whole = net(prompt, answer_in)
        for length in range(1, M + 1):
            part = net.decode(net.encode(prompt), answer_in[:, :length])
            torch.testing.assert_close(part, whole[:, :length], atol=1e-5, rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("network", [Transformer, NanoGPT])
def test_greedy_decoding_goes_token_by_token_and_is_right_exactly_where_teacher_forcing_is(network):
    net, (prompt, _) = make(network), tokens()
    for parameter in net.parameters():
        parameter.mul_(4)  # so that its answers differ
    answer_in = torch.full((len(prompt), 1), START)
    for _ in range(M):  # the whole network anew for each token
        answer_in = torch.cat([answer_in, net(prompt, answer_in)[:, -1:].argmax(-1)], dim=1)
    decoded = answer_in[:, 1:]
    assert len(decoded.unique(dim=0)) > 1
    assert torch.equal(greedy_decode(net, prompt, M), decoded)
    completion = decoded.clone()
    completion[::2, 3] = decoded[::2, 3] % 4 + 1  # other tokens of every second answer
    assert (teacher_forced_tokens(net, prompt, completion) == completion).all(-1).tolist() == [False, True] * 6
    assert torch.equal(greedy_tokens(net, prompt, completion), decoded)


@pytest.mark.parametrize(
    ("network", "options"),
    [
        *((Transformer, {}), (Transformer, {"encoder": False}), (NanoGPT, {})),
        *((baseline, {"d_model": 16}) for baseline in BASELINES),
    ],
)
def test_sites_are_the_layers_in_order(network, options):
    net, stacks = make(network, options, num_layers=6), ["dec"]
    stacks = ["enc", "dec"] if (network, options) == (Transformer, {}) else stacks
    names = [f"{stack}.{i}" for stack in stacks for i in range(1, 7)]
    ran = {}
    sites = {name: module for name, module in net.sites().items() if name.count(".") == 1 and name[-1].isdigit()}
    for name, module in sites.items():
        module.register_forward_hook(lambda _m, _i, output, name=name: ran.update({name: output.shape}))
    prompt, completion = tokens(count=3)
    net(prompt, shift_right(completion))
    assert list(sites) == names
    assert list(ran) == names
    steps = {"enc": P, "dec": M if network in (Transformer, MLP) else P + M}
    last, width = steps["dec"] if network in BASELINES else M, 16 if network in (GRU, LSTM) else 64
    assert ran == {name: (3, last if name == "dec.6" else steps[name.split(".")[0]], width) for name in names}


@pytest.mark.parametrize(
    ("network", "options"),
    [*product([Transformer, NanoGPT], [{}, {"attention": False}]), *((baseline, {}) for baseline in BASELINES)],
)
def test_every_parameter_gets_a_gradient(network, options):
    """Exceptions: key biases cancel in the softmax, and without attention the prompt's own parameters do nothing."""
    net = make(network, options)
    prompt, completion = tokens(64)
    F.cross_entropy(net(prompt, shift_right(completion)).flatten(0, 1), completion.flatten()).backward()
    silent = {name for name, p in net.named_parameters() if p.grad is None or p.grad.abs().max() == 0}
    prompt_only = {name for name, _ in net.named_parameters() if name.startswith(("encoder.", "prompt_embedding."))}
    expected = prompt_only if "attention" in options else set()
    assert {name for name in silent if not name.endswith("key.bias")} == expected


@pytest.mark.parametrize("network", [Transformer, NanoGPT, *BASELINES])
def test_network_of_another_vocabulary_is_refused_and_of_other_lengths_if_its_weights_depend_on_them(network):
    with pytest.raises(UserError, match=rf"^Hooked: {network.__name__} with tokens .* does not fit the task Add"):
        Hooked(make(network, vocab_size=13), task=Add())
    with nullcontext() if network in (GRU, LSTM) else pytest.raises(UserError, match="does not fit the task"):
        assert Hooked(make(network), task=Add(bits=8)).predict([3], [5]).shape == (1,)


def test_impossible_widths_and_probabilities_are_refused():
    with pytest.raises(UserError, match=r"^d_model=10: expected a multiple of num_heads=3$"):
        NanoGPT(P, M, d_model=10, num_heads=3)
    with pytest.raises(UserError, match=r"^dropout=1.0: expected a probability below 1$"):
        NanoGPT(P, M, dropout=1.0)
