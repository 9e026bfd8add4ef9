"""Quick products are as exact as slow ones, or are not used."""

from collections.abc import Iterator

import pytest
import torch
from lightning.fabric.accelerators import cuda

from arith_erd.config.compose import compose
from arith_erd.system import products
from arith_erd.system.products import settle_products
from arith_erd.training.assemble import assemble
from tests.tiny import TINY

MATMUL = torch.backends.mkldnn.matmul


@pytest.fixture(autouse=True)
def setting() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


def worst(a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest error of a product, in units of what rounding each operation to 32 bits may add up to."""
    bound = torch.finfo(torch.float32).eps * a.shape[-1] * (a.abs().double() @ b.abs().double())
    return float(((a @ b).double() - a.double() @ b.double()).abs().div(bound).max())


@pytest.mark.parametrize("channels", [64, 256])
def test_products_of_a_training_step_keep_32_bits(channels: int) -> None:
    settle_products()
    x, weight = torch.randn(1920, 64), torch.randn(channels, 64)
    gradient = torch.randn(1920, channels)
    assert worst(x, weight.T) < 1
    assert worst(gradient, weight) < 1
    assert worst(gradient.T, x) < 1
    assert worst(torch.randn(1024, 15, 8), torch.randn(1024, 8, 15)) < 1


def test_rounding_to_bf16_would_show() -> None:
    rounded = [torch.randn(shape).bfloat16().float() + 2**-10 for shape in ((1920, 64), (64, 256))]
    exact = (rounded[0].bfloat16() @ rounded[1].bfloat16()).double()
    bound = torch.finfo(torch.float32).eps * 64 * (rounded[0].abs().double() @ rounded[1].abs().double())
    assert (exact - rounded[0].double() @ rounded[1].double()).abs().div(bound).max() > 1


@pytest.mark.parametrize("exact", [True, False])
def test_processor_that_rounds_keeps_its_slow_products(monkeypatch: pytest.MonkeyPatch, exact: bool) -> None:
    monkeypatch.setattr(products, "cpu_name", lambda: "AMD EPYC")
    monkeypatch.setattr(torch, "equal", lambda *_: exact)
    settle_products()
    assert (MATMUL.fp32_precision == "bf16") == exact
    assert torch.backends.cuda.matmul.fp32_precision == "tf32"


def test_lightning_can_ask_for_the_precision_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "cpu_name", lambda: "AMD EPYC")
    monkeypatch.setattr(cuda, "_is_ampere_or_later", lambda _: True)
    settle_products()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    cuda._check_cuda_matmul_precision(torch.device("cuda"))


def test_training_has_quick_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "cpu_name", lambda: "AMD EPYC")
    monkeypatch.setattr(torch, "equal", lambda *_: True)
    assemble(compose("train", list(TINY)), torch.device("cpu"))
    assert MATMUL.fp32_precision == "bf16"


def test_other_processors_keep_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "cpu_name", lambda: "Intel(R) Xeon(R)")
    settle_products()
    assert MATMUL.fp32_precision != "bf16"
