"""Our attention has the values and gradients of softmax attention."""

import os
from functools import partial
from unittest.mock import Mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from arith_erd.models import NanoGPT, Transformer, attention
from arith_erd.models.attention import ATTENTION, attend
from arith_erd.models.dropout import Dropout
from arith_erd.models.network import HookPoint
from arith_erd.tasks import Add
from arith_erd.training.pack import Pack

needs_triton = pytest.mark.skipif(
    "triton" not in ATTENTION or os.environ.get("TRITON_INTERPRET") != "1", reason="needs Triton and TRITON_INTERPRET=1"
)
TOLERANCES = {torch.float64: {"rtol": 1e-9, "atol": 1e-12}, torch.float32: {"rtol": 1e-4, "atol": 2e-6}}


def softmax_attention(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    return (scores if mask is None else scores.masked_fill(mask, float("-inf"))).softmax(-1) @ v


@given(
    st.integers(1, 4), st.integers(1, 9), st.integers(1, 9), st.sampled_from([0.0, 1e-4, 1.0, 30.0]), st.integers(0, 99)
)
def test_attend_is_softmax_attention(heads, steps, size, scale, seed):
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(2, heads, steps, size, generator=generator, dtype=torch.float64) for _ in range(3))
    for mask in (None, torch.ones(steps, steps).triu(1).bool()):
        torch.testing.assert_close(attend(scale * q, k, v, mask), softmax_attention(scale * q, k, v, mask))


def test_attention_dropout_applies_to_normalised_weights():
    """As in nanoGPT: what is dropped is not made up for by the other weights."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 2, 6, 4, generator=generator) for _ in range(3))
    dropout = Dropout(0.5).train()
    dropout.key = torch.tensor([7, 9], dtype=torch.int32)
    weights = (q @ k.transpose(-2, -1) / 2).softmax(-1)
    torch.testing.assert_close(attend(q, k, v, dropout=dropout), dropout(weights) @ v)


def test_pattern_that_is_read_is_computed_when_compiled_too(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(3, 2, 5, 4, generator=generator, dtype=torch.float64) for _ in range(3))
    mask, pattern, read = torch.ones(5, 5).triu(1).bool(), HookPoint(position_axis=2), []
    pattern.register_forward_hook(lambda module, inputs, output: read.append(output))
    expected = attend(q, k, v, mask)
    monkeypatch.setattr("torch.compiler.is_compiling", lambda: True)
    torch.testing.assert_close(attend(q, k, v, mask, None, pattern), expected)
    torch.testing.assert_close(read[0] @ v, expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", ["library", "innermost", pytest.param("triton", marks=needs_triton)])
@pytest.mark.parametrize(("network", "replicas"), [(Transformer, 3), (Transformer, 1), (NanoGPT, 3), (NanoGPT, 1)])
def test_every_variant_trains_a_pack_as_the_plain_form_does(network, replicas, name, dtype, monkeypatch):
    """Losses and gradients of a step with dropout, as traced for a compiler, stacked and single."""
    examples, net = Add(3).examples(), {"d_model": 16, "num_heads": 2, "num_layers": 2, "dropout": 0.5}
    pack = Pack(partial(network, Add(3).prompt_length, Add(3).width, **net), range(replicas)).to(dtype)
    batch = [torch.from_numpy(x)[:20].expand(replicas, -1, -1) for x in (examples.prompt, examples.completion)]

    def losses_and_gradients():
        pack.zero_grad()
        losses = pack.losses(*batch, step=3)
        losses.sum().backward()
        return losses.detach(), [p.grad for p in pack.parameters()]

    expected = losses_and_gradients()
    used = Mock(wraps=ATTENTION.get(name))
    monkeypatch.setattr(attention, "CHOSEN", name)
    monkeypatch.setitem(ATTENTION, name, used)
    monkeypatch.setattr("torch.compiler.is_compiling", lambda: True)
    torch.testing.assert_close(losses_and_gradients(), expected, **TOLERANCES[dtype])
    assert used.called is (name != "library")


@needs_triton
@pytest.mark.parametrize(("queries", "size", "heads"), [(20, 8, 8), (3, 5, 3), (33, 64, 1)])
def test_triton_kernels_take_any_size_and_drop_the_same_weights(queries, size, heads):
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(3, heads, queries, size, generator=generator, requires_grad=True)
    k, v = (torch.randn(3, heads, 17, size, generator=generator, requires_grad=True) for _ in range(2))
    mask = torch.rand(queries, 17, generator=generator) < 0.5
    mask[:, 0] = False
    dropout = Dropout(0.3).train()
    dropout.key = torch.tensor([-7, 9], dtype=torch.int32)
    results = []
    for form in (attend, ATTENTION["triton"]):
        z = form(q, k, v, mask, dropout)
        results.append([z, *torch.autograd.grad(z.square().sum(), (q, k, v))])
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)
    uniform, one_hot = torch.zeros(1, 2, 17, 17), torch.eye(17).expand(1, 2, 17, 17)
    masks = [form(uniform, uniform, one_hot, None, dropout) > 0 for form in (attend, ATTENTION["triton"])]
    assert torch.equal(*masks)
    assert not masks[0].all()
