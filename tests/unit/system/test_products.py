"""Quick products are as exact as slow ones, or are not used."""

from collections.abc import Iterator

import pytest
import torch
from lightning.fabric.accelerators import cuda

from arith_erd.system import machine
from arith_erd.system.machine import configure_matmul

MATMUL = torch.backends.mkldnn.matmul


@pytest.fixture(autouse=True)
def setting() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


def worst(product: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest error of a product, in units of what rounding each operation to 32 bits may add up to."""
    bound = torch.finfo(torch.float32).eps * a.shape[-1] * (a.abs().double() @ b.abs().double())
    return float((product.double() - a.double() @ b.double()).abs().div(bound).max())


@pytest.mark.parametrize("shapes", [((1920, 64), (64, 256)), ((256, 1920), (1920, 64)), ((1024, 15, 8), (1024, 8, 15))])
def test_products_of_a_training_step_keep_32_bits_and_rounding_to_bf16_would_show(shapes) -> None:
    configure_matmul()
    a, b = (torch.randn(shape) for shape in shapes)
    assert worst(a @ b, a, b) < 1
    assert worst(a.bfloat16() @ b.bfloat16(), a, b) > 1


@pytest.mark.parametrize(("cpu", "exact", "quick"), [("AMD EPYC", True, 1), ("AMD EPYC", False, 0), ("Intel", True, 0)])
def test_training_has_quick_products_on_processors_of_amd_that_keep_all_digits(monkeypatch, cpu, exact, quick) -> None:
    monkeypatch.setattr(machine, "cpu_name", lambda: cpu)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "equal", lambda *_: exact)
        configure_matmul()
    assert (MATMUL.fp32_precision == "bf16") == quick
    assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    monkeypatch.setattr(cuda, "_is_ampere_or_later", lambda _: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    cuda._check_cuda_matmul_precision(torch.device("cuda"))  # Lightning asks, and torch may refuse to answer
