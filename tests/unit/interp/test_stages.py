"""Stages: the same network, cut behind every sublayer."""

import re
from dataclasses import replace

import pytest
import torch
from arith_erd.interp.stages import Stages

from arith_erd.models import NanoGPT, Transformer
from arith_erd.models.decoding import shift_right
from arith_erd.tasks import Add

TASK = Add(bits=3)


@pytest.fixture(params=[Transformer, NanoGPT])
def network(request):
    torch.manual_seed(0)
    return request.param(7, 4, d_model=16, num_heads=2, num_layers=2).eval()


@pytest.fixture
def inputs():
    examples = TASK.examples()
    return torch.from_numpy(examples.prompt), shift_right(torch.from_numpy(examples.completion))


@torch.no_grad()
def test_running_through_gives_the_logits_of_the_network(network, inputs):
    _, logits = Stages(network).run(*inputs)
    assert torch.allclose(logits, network(*inputs), atol=1e-6)


@torch.no_grad()
def test_running_on_from_any_stage_gives_the_same_logits(network, inputs):
    stages = Stages(network)
    states, logits = stages.run(*inputs)
    for name in stages.names:
        assert torch.equal(stages.run_on(name, states[name]), logits)


@torch.no_grad()
def test_stream_taken_whole_from_other_pairs_gives_their_logits_from_the_last_encoder_stage_on(inputs):
    torch.manual_seed(0)
    stages = Stages(Transformer(7, 4, d_model=16, num_heads=2, num_layers=2).eval())
    states, logits = stages.run(*inputs)
    other = torch.arange(len(logits)).flip(0)
    state = states["dec.2.cross"]
    assert torch.equal(stages.run_on("dec.2.cross", replace(state, x=state.x[other])), logits[other])


def test_stages_contain_the_outputs_of_layers(network):
    layers = {site for site in network.sites() if re.fullmatch(r"(enc|dec)\.\d+", site)}
    assert layers
    assert layers <= set(Stages(network).names)
