"""Responses to wrong prefixes, on untrained networks."""

from collections import Counter

import pytest
import torch
from torch import Tensor, nn

from arith_erd.digits import ONE, ZERO
from arith_erd.interp.hooked import Hooked
from arith_erd.mechanism.prefixes import run_with_prefixes
from arith_erd.models import NanoGPT, Network, Transformer
from arith_erd.models.network import shift_right
from arith_erd.tasks import Add

TASK = Add(3)
EXAMPLES = TASK.examples()


@pytest.mark.parametrize("kind", [NanoGPT, Transformer])
@torch.no_grad()
def test_responses_are_what_a_plain_loop_of_decodes_finds(kind: type[Network]) -> None:
    torch.manual_seed(0)
    network = kind(7, 4, d_model=16, num_heads=2, num_layers=2).eval()
    for parameter in network.parameters() if kind is NanoGPT else ():
        if parameter.dim() >= 2:  # nanoGPT starts so small that positions hardly matter
            parameter.data = torch.randn_like(parameter) * 0.5
    prompt = torch.from_numpy(EXAMPLES.prompt)
    answer_in = shift_right(torch.from_numpy(EXAMPLES.completion))
    embedding = network.answer_embedding if kind is Transformer else network.embedding
    ablated = (embedding.weight[ZERO] + embedding.weight[ONE]) / 2

    def at_last(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        return torch.cat([output[:, :-1], ablated.expand(64, 1, 16)], dim=1)

    _, responses = run_with_prefixes(Hooked(network, task=TASK), EXAMPLES)
    assert Counter(name for _, name, _, _ in responses) == Counter(flip=3, far=3, mean_ablation=3, random=6)
    for position, change, tokens, prefix in responses:
        if change in ("flip", "far"):
            wrong = prefix != EXAMPLES.completion[:, :position] - ZERO
            assert (wrong.sum(axis=1) == 1).all()
            assert (wrong[:, -1] == (change == "flip")).all()
        given = answer_in[:, : position + 1].clone()
        if prefix is not None:
            given[:, 1:] = torch.from_numpy(prefix) + ZERO
        handle = embedding.register_forward_hook(at_last) if prefix is None else None
        decoded = network.decode(network.encode(prompt), given)[:, -1].argmax(-1).numpy()
        if handle:
            handle.remove()
        assert (decoded == tokens).all()
