"""What is read at a site is what the network computes there, and what is put there is what it goes on with."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from arith_erd.errors import UserError
from arith_erd.interp.activations import Continuation, capture, embeddings, logits_from, positions, replace
from arith_erd.models import NanoGPT, Network, Transformer
from arith_erd.models.decoding import shift_right
from arith_erd.tasks import Add

TASK = Add(3)
SIZE = {
    "prompt_length": TASK.prompt_length,
    "answer_length": 4,
    "d_model": 16,
    "num_heads": 2,
    "num_layers": 3,
}
KINDS = {
    "transformer": lambda: Transformer(**SIZE),
    "squeezed": lambda: Transformer(**SIZE, encoder=False),
    "nanogpt": lambda: NanoGPT(**SIZE),
}


def make(kind: str) -> Network:
    torch.manual_seed(0)
    return KINDS[kind]().eval()


@pytest.fixture(scope="module")
def data() -> tuple[Tensor, Tensor]:
    examples = TASK.examples()
    return torch.from_numpy(examples.prompt), shift_right(torch.from_numpy(examples.completion))


EVERY_SITE = [(kind, site) for kind in KINDS for site in make(kind).sites()]


def is_clean(network: Network) -> bool:
    return not any(module._forward_hooks or "forward" in vars(module) for module in network.modules())


@torch.no_grad()
def test_the_last_embeddings_are_what_the_head_reads(data: tuple[Tensor, Tensor]) -> None:
    for kind in KINDS:
        network = make(kind)
        x = embeddings(network, *data, ["dec.3"])["dec.3"]
        assert x.shape == (64, 4 * 16)
        x = x.unflatten(1, (4, -1))
        if isinstance(network, NanoGPT):
            logits = F.linear(network.norm(x), network.embedding.weight)
        else:
            logits = network.head(x)
        torch.testing.assert_close(logits, network(*data))


@torch.no_grad()
def test_the_last_encoder_embedding_is_what_the_decoder_reads(data: tuple[Tensor, Tensor]) -> None:
    network = make("transformer")
    x = embeddings(network, *data, ["enc.3"])["enc.3"]
    torch.testing.assert_close(x, network.encode(data[0]).flatten(1))


@pytest.mark.parametrize(("kind", "site"), EVERY_SITE)
def test_the_original_embedding_gives_the_original_logits_bit_for_bit(
    kind: str, site: str, data: tuple[Tensor, Tensor]
) -> None:
    network = make(kind)
    x = embeddings(network, *data, [site])[site]
    with torch.no_grad():
        logits = network(*data)
    assert torch.equal(logits_from(network, site, x, *data), logits)
    with torch.no_grad(), replace(network, site, lambda output: output):
        assert torch.equal(network(*data), logits)


@pytest.mark.parametrize(("kind", "site"), EVERY_SITE)
def test_a_partial_forward_equals_a_whole_one_with_the_embedding_replaced(
    kind: str, site: str, data: tuple[Tensor, Tensor]
) -> None:
    network = make(kind)
    k = positions(site, *data)
    x = torch.randn(64, k * 16, generator=torch.Generator().manual_seed(1))
    with torch.no_grad(), replace(network, site, x.view(64, k, 16)):
        whole = network(*data)
    assert torch.equal(logits_from(network, site, x, *data), whole)
    assert torch.equal(logits_from(network, site, x.double(), *data), whole)
    with torch.no_grad():
        assert not torch.equal(network(*data), whole)


@pytest.mark.parametrize(("kind", "site"), EVERY_SITE)
def test_a_continuation_reads_nothing_below_its_site_again(kind: str, site: str, data: tuple[Tensor, Tensor]) -> None:
    network = make(kind)
    x = embeddings(network, *data, [site])[site]
    rest = Continuation(network, site, *data)
    before = rest(x)
    stack, layer = site.split(".")
    poisoned = [f"{stack}.{i}" for i in range(1, int(layer) + 1)]
    if stack == "dec":
        poisoned += [name for name in network.sites() if name.startswith("enc.")]
    for name in poisoned:
        for parameter in network.sites()[name].parameters():
            parameter.data.fill_(torch.nan)
    assert torch.equal(rest(x), before)


def test_a_replacement_leaves_the_prompt_of_a_decoder_only_network_alone(data: tuple[Tensor, Tensor]) -> None:
    network = make("nanogpt")
    with torch.no_grad(), capture(network, ["dec.1"]) as outputs:
        network(*data)
        original = outputs["dec.1"]
    with torch.no_grad(), replace(network, "dec.1", torch.zeros(64, 4, 16)), capture(network, ["dec.1"]) as outputs:
        network(*data)
    assert torch.equal(outputs["dec.1"][:, :7], original[:, :7])
    assert not outputs["dec.1"][:, 7:].any()


def test_batches_change_nothing_but_rounding(data: tuple[Tensor, Tensor]) -> None:
    network = make("nanogpt")
    whole = embeddings(network, *data, ["dec.2"])["dec.2"]
    torch.testing.assert_close(embeddings(network, *data, ["dec.2"], batch_size=10)["dec.2"], whole)
    whole_logits = logits_from(network, "dec.2", whole, *data)
    torch.testing.assert_close(logits_from(network, "dec.2", whole, *data, batch_size=10), whole_logits)


def test_hooks_go_even_when_the_forward_fails(data: tuple[Tensor, Tensor]) -> None:
    network = make("transformer")

    def fail(output: Tensor) -> Tensor:
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError), replace(network, "dec.1", fail), capture(network, ["enc.1", "dec.2"]):
        network(*data)
    rest = Continuation(network, "dec.2", *data)
    with pytest.raises(RuntimeError):
        rest(torch.zeros(64, 4 * 15))  # 15 channels where the network has 16
    assert is_clean(network)


def test_an_unknown_site_is_answered_with_those_there_are(data: tuple[Tensor, Tensor]) -> None:
    network = make("nanogpt")
    for attempt in (
        lambda: embeddings(network, *data, ["dec.1", "enc.1"]),
        lambda: logits_from(network, "enc.1", torch.zeros(64, 7 * 16), *data),
        lambda: replace(network, "enc.1", torch.zeros(1)).__enter__(),
    ):
        with pytest.raises(UserError, match=r"^site enc\.1: this model has dec\.1, dec\.2, dec\.3; set probe\.site$"):
            attempt()
    assert is_clean(network)


def test_a_replacement_that_does_not_fit_is_refused(data: tuple[Tensor, Tensor]) -> None:
    network = make("transformer")
    for shape in ((64, 5, 16), (64, 4, 15), (1, 4, 16)):
        with pytest.raises(ValueError, match=r"does not fit dec\.1"), replace(network, "dec.1", torch.zeros(shape)):
            network(*data)
