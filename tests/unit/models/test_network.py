"""What every network has: the published number of parameters, decoding of prefixes, sites, gradients."""

from itertools import product

import pytest
import torch
from torch.nn import functional as F

from arith_erd.models import GRU, LSTM, MLP, NanoGPT, Transformer
from arith_erd.models.network import shift_right
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
def test_number_of_parameters(network, task, options, parameters):
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
    """Except key biases, which cancel in the softmax, and, without attention, all that only the prompt passes."""
    net = make(network, options)
    prompt, completion = tokens(64)
    F.cross_entropy(net(prompt, shift_right(completion)).flatten(0, 1), completion.flatten()).backward()
    silent = {name for name, p in net.named_parameters() if p.grad is None or p.grad.abs().max() == 0}
    prompt_only = {name for name, _ in net.named_parameters() if name.startswith(("encoder.", "prompt_embedding."))}
    expected = prompt_only if "attention" in options else set()
    assert {name for name in silent if not name.endswith("key.bias")} == expected
