"""The authors' state dict loads as their network; other files are refused."""

import json
import os
import pickle
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from arith_erd.errors import UserError
from arith_erd.models.authors_weights import load_official
from arith_erd.models.decoding import shift_right
from arith_erd.models.transformer import SinusoidalPositions
from arith_erd.tasks import Add, Mul

OFFICIAL = Path(__file__).parents[4] / "shared" / "official"
TASK = Add(3)  # prompts of 7 tokens, answers of 4
State = dict[str, Tensor]


def synthetic_state(d_model: int = 16, layers: int = 2) -> State:
    """Random tensors under the authors' names, for three-bit addition."""
    generator = torch.Generator().manual_seed(0)
    state = {
        "enc_positional_encoding.pe": SinusoidalPositions(7, d_model).table[None],
        "dec_positional_encoding.pe": SinusoidalPositions(5, d_model).table[None],
        "nopeak_mask": torch.ones(1, 4, 4).tril().bool(),
    }

    def add(name: str, *shape: int, bias: bool = True) -> None:
        state[f"{name}.weight"] = torch.randn(shape, generator=generator) * 0.5
        if bias:
            state[f"{name}.bias"] = torch.randn(shape[0], generator=generator) * 0.5

    for stack, attentions, norms in (("encoder", ("self",), 2), ("decoder", ("self", "cross"), 3)):
        add(f"{stack}_embedding", 5, d_model, bias=False)
        for i in range(layers):
            for attention in attentions:
                for letter in "qkvo":
                    add(f"{stack}_layers.{i}.{attention}_attn.W_{letter}", d_model, d_model)
            add(f"{stack}_layers.{i}.feed_forward.fc1", 4 * d_model, d_model)
            add(f"{stack}_layers.{i}.feed_forward.fc2", d_model, 4 * d_model)
            for norm in range(1, norms + 1):
                add(f"{stack}_layers.{i}.norm{norm}", d_model)
    add("fc", 5, d_model)
    return state


def reference_logits(state: State, prompt: Tensor, answer_in: Tensor, layers: int = 2) -> Tensor:
    """The authors' network, read from the paper and spelt out on their names."""

    def linear(name: str, x: Tensor) -> Tensor:
        return F.linear(x, state[f"{name}.weight"], state[f"{name}.bias"])

    def norm(name: str, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], state[f"{name}.weight"], state[f"{name}.bias"])

    def attention(name: str, x: Tensor, memory: Tensor, causal: bool = False) -> Tensor:
        q, k, v = (
            linear(f"{name}.W_{letter}", y).unflatten(-1, (8, -1)).transpose(1, 2)
            for letter, y in (("q", x), ("k", memory), ("v", memory))
        )
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return linear(f"{name}.W_o", heads.transpose(1, 2).flatten(2))

    def feed_forward(name: str, x: Tensor) -> Tensor:
        return linear(f"{name}.fc2", linear(f"{name}.fc1", x).relu())

    memory = state["encoder_embedding.weight"][prompt] + state["enc_positional_encoding.pe"][:, : prompt.shape[1]]
    for i in range(layers):
        layer = f"encoder_layers.{i}"
        memory = norm(f"{layer}.norm1", memory + attention(f"{layer}.self_attn", memory, memory))
        memory = norm(f"{layer}.norm2", memory + feed_forward(f"{layer}.feed_forward", memory))
    x = state["decoder_embedding.weight"][answer_in] + state["dec_positional_encoding.pe"][:, : answer_in.shape[1]]
    for i in range(layers):
        layer = f"decoder_layers.{i}"
        x = norm(f"{layer}.norm1", x + attention(f"{layer}.self_attn", x, x, causal=True))
        x = norm(f"{layer}.norm2", x + attention(f"{layer}.cross_attn", x, memory))
        x = norm(f"{layer}.norm3", x + feed_forward(f"{layer}.feed_forward", x))
    return linear("fc", x)


def saved(tmp_path: Path, value: object) -> Path:
    torch.save(value, tmp_path / "model")
    return tmp_path / "model"


def tokens(task: Add) -> tuple[Tensor, Tensor]:
    examples = task.examples()
    return torch.from_numpy(examples.prompt), torch.from_numpy(examples.completion)


@torch.no_grad()
@pytest.mark.parametrize(("d_model", "layers"), [(16, 2), (32, 1)])
def test_imported_weights_give_the_authors_logits(tmp_path: Path, d_model: int, layers: int) -> None:
    state = synthetic_state(d_model, layers)
    network = load_official(saved(tmp_path, state), TASK)
    prompt, completion = tokens(TASK)
    answer_in = shift_right(completion)
    expected = reference_logits(state, prompt, answer_in, layers)
    assert not network.training
    torch.testing.assert_close(network(prompt, answer_in), expected, rtol=1e-4, atol=1e-4)


def test_one_error_lists_every_wrong_key(tmp_path: Path) -> None:
    state = synthetic_state()
    del state["fc.bias"], state["decoder_layers.1.norm3.weight"]
    state["transformer.wte.weight"] = torch.zeros(5, 16)
    state["encoder_embedding.weight"] = torch.zeros(5, 24)
    with pytest.raises(UserError) as raised:
        load_official(saved(tmp_path, state), TASK)
    message = str(raised.value)
    for part in (
        "missing: decoder_layers.1.norm3.weight, fc.bias",
        "foreign: transformer.wte.weight",
        "wrong shape: encoder_embedding.weight (5, 24) instead of (5, 16)",
    ):
        assert part in message
    assert "\n" not in message


def test_weights_of_another_task_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"task=mul.*nopeak_mask \(1, 4, 4\) instead of \(1, 6, 6\)"):
        load_official(saved(tmp_path, synthetic_state()), Mul(3))


class Gadget:
    """Makes a directory when it is unpickled without care."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.trace),)


@pytest.mark.parametrize("container", ["torch", "torch, beside tensors", "pickle"])
def test_code_in_a_checkpoint_does_not_run(tmp_path: Path, container: str) -> None:
    trace = tmp_path / "ran"
    path = tmp_path / "model"
    if container == "pickle":
        path.write_bytes(pickle.dumps(Gadget(trace)))
    elif container == "torch":
        torch.save(Gadget(trace), path)
    else:
        torch.save(synthetic_state() | {"more": Gadget(trace)}, path)
    with pytest.raises(UserError, match="none of it was run"):
        load_official(path, TASK)
    assert not trace.exists()
    with path.open("rb") as file:  # the gadget is a live one
        pickle.load(file) if container == "pickle" else torch.load(file, weights_only=False)
    assert trace.is_dir()


@torch.no_grad()
@pytest.mark.skipif(not OFFICIAL.is_dir(), reason="../shared/official is absent: the authors' weights are not ours")
def test_authors_weights_add_without_error() -> None:
    expected = json.loads((OFFICIAL / "expected.json").read_text())
    network = load_official(OFFICIAL / "add_model", Add())
    assert sum(parameter.numel() for parameter in network.parameters()) == expected["parameters"]
    prompt, completion = (x[::16] for x in tokens(Add()))  # a sample, for speed
    assert torch.equal(network(prompt, shift_right(completion)).argmax(dim=-1), completion)
