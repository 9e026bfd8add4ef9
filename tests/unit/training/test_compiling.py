"""What is compiled by itself, and what the compiler is told."""

import pytest
import torch
from torch import nn
from torch._inductor import config
from torch._inductor.utils import fresh_cache, run_and_get_code
from torch.fx.experimental.proxy_tensor import make_fx

from arith_erd.models import NanoGPT, Transformer
from arith_erd.training.compiling import AddBiasLater, options, regions

CPU = torch.device("cpu")
SIZES = (30, 8), (8, 5), (5,), (30, 1)


def test_regions_are_the_repeated_layers_or_the_whole_network():
    transformer, nanogpt, plain = Transformer(3, 2, num_layers=2), NanoGPT(3, 2), nn.Linear(2, 2)
    assert regions(transformer) == [*transformer.encoder, *transformer.decoder]
    assert regions(nanogpt) == list(nanogpt.blocks)
    assert regions(plain) == [plain]


def called(graph: torch.fx.GraphModule) -> list:
    return [node.target for node in graph.graph.nodes if node.op == "call_function"]


def test_bias_is_added_after_the_product_and_gives_the_same_sum():
    x, w, row, column = (torch.randn(*size, generator=torch.Generator().manual_seed(0)) for size in SIZES)
    graph = make_fx(lambda x, w, row, column: torch.addmm(row, x, w) + torch.addmm(column, x, w))(x, w, row, column)
    expected = graph(x, w, row, column)
    assert called(graph).count(torch.ops.aten.addmm.default) == 2
    AddBiasLater()(graph.graph)
    graph.graph.lint()
    graph.recompile()
    assert torch.ops.aten.addmm.default not in called(graph)
    torch.testing.assert_close(graph(x, w, row, column), expected)


def test_scaled_sums_stay_as_they_are():
    x, w, row, _ = (torch.randn(*size) for size in SIZES)
    graph = make_fx(lambda *given: torch.addmm(*given, beta=2.0))(row, x, w)
    AddBiasLater()(graph.graph)
    assert called(graph) == [torch.ops.aten.addmm.default]


def test_bias_stays_in_a_product_of_16_bits():
    """Rounded, with the bias added to it, and rounded again, a sum is a quarter less exact."""
    x, w, row, _ = (torch.randn(*size, dtype=torch.bfloat16) for size in SIZES)
    graph = make_fx(torch.addmm)(row, x, w)
    AddBiasLater()(graph.graph)
    assert called(graph) == [torch.ops.aten.addmm.default]


@pytest.mark.slow
def test_compiled_code_has_products_without_bias():
    """Inductor puts them together again if this pass comes before its own."""
    x, w, row, _ = (torch.randn(*size) for size in SIZES)
    compiled = torch.compile(lambda *given: torch.addmm(*given).relu(), options=options(CPU, False))
    with fresh_cache():
        _, (code,) = run_and_get_code(compiled, row, x, w)
    assert "extern_kernels.mm(" in code
    assert "extern_kernels.addmm(" not in code


def test_packs_of_one_process_share_what_is_compiled():
    """Code that was compiled with other options, or with equal ones that do not say so, is compiled again."""
    assert options(CPU, False) == options(CPU, False)


def test_bias_stays_in_the_product_on_a_gpu():
    assert any(isinstance(option, AddBiasLater) for option in options(CPU, False).values())
    assert not any(isinstance(option, AddBiasLater) for option in options(torch.device("cuda"), True).values())


@pytest.mark.parametrize(("said", "told"), [(None, True), (False, None), (True, None)])
def test_vectors_are_taken_for_granted_unless_the_environment_says(said, told):
    """Of TORCHINDUCTOR_VEC_ISA_OK, which Inductor's settings repeat."""
    with config.patch({"cpp.vec_isa_ok": said}):
        assert options(CPU, False).get("cpp.vec_isa_ok") is told
