"""The authors' state dict loads as their network; other files are refused."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from arith_erd.errors import UserError
from arith_erd.models import Transformer
from arith_erd.models.network import shift_right
from arith_erd.models.positions import sinusoids
from arith_erd.models.weights import authors_name, load_authors_network
from arith_erd.tasks import Add

OFFICIAL = Path(__file__).parents[4] / "shared" / "official"
TASK = Add(3)  # prompts of 7 tokens, answers of 4
State = dict[str, Tensor]


def synthetic_state() -> State:
    """Random tensors under the authors' names, for three-bit addition; no two are equal."""
    torch.manual_seed(0)
    shapes = Transformer(7, 4, d_model=16, num_layers=2).state_dict()
    return {authors_name(name): torch.randn_like(tensor) for name, tensor in shapes.items()} | {
        "enc_positional_encoding.pe": sinusoids(7, 16)[None],
        "dec_positional_encoding.pe": sinusoids(5, 16)[None],
        "nopeak_mask": torch.ones(1, 4, 4).tril().bool(),
    }


def saved(tmp_path: Path, value: object) -> Path:
    torch.save(value, tmp_path / "model")
    return tmp_path / "model"


NAMES = {  # ours -> theirs
    "prompt_embedding": "encoder_embedding",
    "answer_embedding": "decoder_embedding",
    "encoder.1.self_attention.sublayer.query": "encoder_layers.1.self_attn.W_q",
    "encoder.1.feed_forward.norm": "encoder_layers.1.norm2",
    "encoder.0.feed_forward.sublayer.expand": "encoder_layers.0.feed_forward.fc1",
    "decoder.0.feed_forward.sublayer.contract": "decoder_layers.0.feed_forward.fc2",
    "decoder.0.self_attention.sublayer.key": "decoder_layers.0.self_attn.W_k",
    "decoder.1.cross_attention.sublayer.value": "decoder_layers.1.cross_attn.W_v",
    "decoder.0.cross_attention.sublayer.out": "decoder_layers.0.cross_attn.W_o",
    "decoder.0.self_attention.norm": "decoder_layers.0.norm1",
    "decoder.1.cross_attention.norm": "decoder_layers.1.norm2",
    "decoder.1.feed_forward.norm": "decoder_layers.1.norm3",
    "head": "fc",
}


def test_each_part_has_the_authors_weights(tmp_path: Path) -> None:
    state = synthetic_state()
    network = load_authors_network(saved(tmp_path, state), TASK)
    assert not network.training
    for ours, theirs in NAMES.items():
        assert torch.equal(network.get_parameter(f"{ours}.weight"), state[f"{theirs}.weight"]), ours


def test_one_error_lists_every_wrong_key(tmp_path: Path) -> None:
    state = synthetic_state()
    del state["fc.bias"], state["decoder_layers.1.norm3.weight"]
    state["transformer.wte.weight"] = torch.zeros(5, 16)
    state["encoder_embedding.weight"] = torch.zeros(5, 24)
    with pytest.raises(UserError) as raised:
        load_authors_network(saved(tmp_path, state), TASK)
    message = str(raised.value)
    assert "weights do not fit the authors' state dict for task=add at task.bits=3: " in message
    named = "decoder_layers.1.norm3.weight, encoder_embedding.weight, fc.bias, transformer.wte.weight"
    assert message.endswith(named)


@torch.no_grad()
@pytest.mark.skipif(not OFFICIAL.is_dir(), reason="../shared/official is absent: the authors' weights are not ours")
def test_authors_weights_add_without_error() -> None:
    expected = json.loads((OFFICIAL / "expected.json").read_text())
    network = load_authors_network(OFFICIAL / "add_model", Add())
    assert sum(parameter.numel() for parameter in network.parameters()) == expected["parameters"]
    examples = Add().examples()
    prompt, completion = (torch.from_numpy(x[::16]) for x in (examples.prompt, examples.completion))  # for speed
    assert torch.equal(network(prompt, shift_right(completion)).argmax(dim=-1), completion)
