"""What is compiled, in which pieces, and what the compiler is told."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from arith_erd.config.compose import compose
from arith_erd.training.compiling import AddBiasLater, wants_compile

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    ("overrides", "device", "steps", "compiles"),
    [
        (["trainer.compile=true"], CPU, 1, True),
        (["trainer.compile=false"], CUDA, 1, False),
        (["trainer.max_epochs=1", "seed=0-4"], CUDA, 1, True),
        (["trainer.max_epochs=16"], CPU, 96, False),  # 19e12 operations
        (["trainer.max_epochs=17"], CPU, 96, True),
        (["trainer.max_epochs=9", "seed=0-1"], CPU, 96, True),
        (["model.net.d_model=16", "seed=0-99"], CPU, 96, False),  # one graph, which takes minutes
    ],
)
def test_auto_compiles_on_cuda_and_long_runs_on_a_cpu(overrides, device, steps, compiles, monkeypatch):
    monkeypatch.setattr("arith_erd.training.compiling._has_compiler", lambda: True)
    assert wants_compile(compose("train", overrides), device, steps) is compiles


def test_auto_does_not_compile_without_a_compiler(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda program: None)
    assert not wants_compile(compose("train", []), CPU, 96)


def products(graph: torch.fx.GraphModule) -> int:
    """With a bias in them."""
    return sum(node.target == torch.ops.aten.addmm.default for node in graph.graph.nodes)


@pytest.mark.parametrize(
    ("dtype", "scale", "bias", "left"),
    [
        (torch.float32, {}, (5,), 0),
        (torch.float32, {}, (30, 1), 0),
        (torch.float32, {"beta": 2.0}, (5,), 1),
        (torch.bfloat16, {}, (5,), 1),  # rounded twice, a sum would be a quarter less exact
    ],
)
def test_bias_is_added_after_the_product_where_that_gives_the_same_sum(dtype, scale, bias, left):
    given = [torch.randn(*size, dtype=dtype) for size in (bias, (30, 8), (8, 5))]
    graph = make_fx(lambda *given: torch.addmm(*given, **scale))(*given)
    expected = graph(*given)
    assert products(graph) == 1
    AddBiasLater()(graph.graph)
    graph.graph.lint()
    graph.recompile()
    assert products(graph) == left
    torch.testing.assert_close(graph(*given), expected)
