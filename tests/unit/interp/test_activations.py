"""Reading a site gives what the network computes there; replacing it changes what the network computes after."""

from contextlib import ExitStack

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from arith_erd.errors import UserError
from arith_erd.interp.activations import Continuation, capture, embeddings, layers, logits_from, positions, replace
from arith_erd.models import NanoGPT, Network, Transformer
from arith_erd.models.decoding import shift_right
from arith_erd.models.hook_point import position_axis
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
EVERY_LAYER = [(kind, site) for kind in KINDS for site in layers(make(kind))]
# Patterns and heads are spelt out only for whoever watches them: equal up to rounding.
SPELT_OUT = ("attn.pattern", "attn.result")


def is_clean(network: Network) -> bool:
    return not any(module._forward_hooks or "forward" in vars(module) for module in network.modules())


@torch.no_grad()
def test_last_embeddings_are_what_the_head_reads(data: tuple[Tensor, Tensor]) -> None:
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
def test_last_encoder_embedding_is_what_the_decoder_reads(data: tuple[Tensor, Tensor]) -> None:
    network = make("transformer")
    x = embeddings(network, *data, ["enc.3"])["enc.3"]
    torch.testing.assert_close(x, network.encode(data[0]).flatten(1))


def same(logits: Tensor, expected: Tensor, site: str) -> bool:
    if site.endswith(SPELT_OUT):
        return bool((logits - expected).abs().max() < 1e-5)
    return torch.equal(logits, expected)


@pytest.mark.parametrize(("kind", "site"), EVERY_SITE)
def test_original_embedding_gives_the_original_logits(kind: str, site: str, data: tuple[Tensor, Tensor]) -> None:
    network = make(kind)
    x = embeddings(network, *data, [site])[site]
    with torch.no_grad():
        logits = network(*data)
    assert same(logits_from(network, site, x, *data), logits, site)
    with torch.no_grad(), replace(network, site, lambda output: output):
        assert same(network(*data), logits, site)
    assert is_clean(network)


@pytest.mark.parametrize(("kind", "site"), EVERY_SITE)
def test_partial_forward_equals_a_whole_one_with_the_embedding_replaced(
    kind: str, site: str, data: tuple[Tensor, Tensor]
) -> None:
    network = make(kind)
    axis = position_axis(network.sites()[site])
    with torch.no_grad(), capture(network, [site]) as outputs:
        logits = network(*data)
    k = positions(site, *data)
    shape = outputs[site].movedim(axis, 1)[:, -k:].shape  # (B, k, ...)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    with torch.no_grad(), replace(network, site, x.movedim(1, axis)):
        whole = network(*data)
    assert torch.equal(logits_from(network, site, x.flatten(1), *data), whole)
    assert torch.equal(logits_from(network, site, x.flatten(1).double(), *data), whole)
    assert not torch.equal(logits, whole)


@torch.no_grad()
def test_all_positions_of_a_decoder_only_network_can_be_patched(data: tuple[Tensor, Tensor]) -> None:
    """With itself at every site: the same logits. With other examples at a site all passes through: their logits."""
    network = make("nanogpt")
    whole = sum(x.shape[1] for x in data)  # P + m
    others = (data[0].flip(0), data[1].flip(0))
    logits, expected = network(*data), network(*others)
    assert (logits - expected).abs().max() > 1e-3
    with capture(network, list(network.sites())) as outputs:
        network(*data)
    for site, module in network.sites().items():
        held = outputs[site].shape[position_axis(module)]
        x = embeddings(network, *data, [site], last=held)[site]
        assert x.shape[1] == outputs[site][0].numel()
        assert same(Continuation(network, site, *data, last=held)(x), logits, site), site
        if held == whole and site in ("dec.embed", "dec.1.resid_pre", "dec.1", "dec.2.resid_mid", "dec.3.resid_pre"):
            x = embeddings(network, *others, [site], last=whole)[site]
            patched = Continuation(network, site, *data, last=whole)(x)
            torch.testing.assert_close(patched, expected, atol=1e-5, rtol=0)


def assert_patched(network: Network, sites: list[str], data: tuple[Tensor, Tensor]) -> None:
    """With these sites taken from other examples the logits are theirs."""
    others = tuple(x.flip(0) for x in data)
    with torch.no_grad(), ExitStack() as patches:
        with capture(network, sites) as outputs:
            expected = network(*others)
        for site in sites:
            patches.enter_context(replace(network, site, outputs[site]))
        torch.testing.assert_close(network(*data), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_every_site_of_other_examples_gives_their_logits(kind: str, data: tuple[Tensor, Tensor]) -> None:
    network = make(kind)
    assert_patched(network, list(network.sites()), data)


@pytest.mark.parametrize("kind", KINDS)
def test_site_through_which_everything_passes_hides_the_input(kind: str, data: tuple[Tensor, Tensor]) -> None:
    network = make(kind)
    for site in ("dec.3", "logits"):
        assert_patched(network, [site], data)
    if kind == "nanogpt":
        for site in ("dec.embed", "dec.1.resid_pre", "dec.2.resid_mid", "dec.2", "dec.ln_final"):
            assert_patched(network, [site], data)
    else:
        assert_patched(network, ["enc.embed", "dec.embed"], data)
        assert_patched(network, ["dec.2", "dec.3.cross_attn_out"], data)


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_every_pattern_sum_to_one_and_no_query_sees_the_future(kind: str, data: tuple[Tensor, Tensor]) -> None:
    network = make(kind)
    patterns = [site for site in network.sites() if site.endswith("pattern")]
    with capture(network, patterns) as outputs:
        network(*data)
    for site, pattern in outputs.items():  # (B, nh, T, S)
        torch.testing.assert_close(pattern.sum(-1), torch.ones(pattern.shape[:-1]))
        if site.startswith("dec.") and "cross" not in site:
            assert not pattern.triu(pattern.shape[-1] - pattern.shape[-2] + 1).any()


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_heads_of_an_attention_add_up_to_its_output(kind: str, data: tuple[Tensor, Tensor]) -> None:
    network = make(kind)
    results = [site for site in network.sites() if site.endswith(".result")]
    outs = [site.removesuffix(".result") + "_out" for site in results]
    with capture(network, [*results, *outs]) as outputs:
        network(*data)
    for result, out in zip(results, outs, strict=True):
        bias = getattr(network.sites()[out].out, "bias", None)  # type: ignore[union-attr]
        total = outputs[result].sum(-2)
        torch.testing.assert_close(total if bias is None else total + bias, outputs[out], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_sites_are_named_in_the_order_in_which_they_are_computed(kind: str, data: tuple[Tensor, Tensor]) -> None:
    network = make(kind)
    ran: list[nn.Module] = []
    sites = network.sites()
    for module in set(sites.values()):
        module.register_forward_hook(lambda module, *_: ran.append(module))
    network(*data)
    assert ran == list(dict.fromkeys(sites.values()))  # a layer's output is the next one's input: one module


@pytest.mark.parametrize(("kind", "site"), EVERY_LAYER)
def test_continuation_does_not_rerun_layers_below_its_site(kind: str, site: str, data: tuple[Tensor, Tensor]) -> None:
    network = make(kind)
    x = embeddings(network, *data, [site])[site]
    rest = Continuation(network, site, *data)
    before = rest(x)
    stack, layer = site.split(".")
    poisoned = [f"{stack}.{i}" for i in range(1, int(layer) + 1)]
    if stack == "dec":
        poisoned += [name for name in layers(network) if name.startswith("enc.")]
    for name in poisoned:
        for parameter in network.sites()[name].parameters():
            parameter.data.fill_(torch.nan)
    assert torch.equal(rest(x), before)


def test_replacement_leaves_the_prompt_of_a_decoder_only_network_alone(data: tuple[Tensor, Tensor]) -> None:
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


def test_unknown_site_lists_the_known_ones(data: tuple[Tensor, Tensor]) -> None:
    network = make("nanogpt")
    for attempt in (
        lambda: embeddings(network, *data, ["dec.1", "enc.1"]),
        lambda: logits_from(network, "enc.1", torch.zeros(64, 7 * 16), *data),
        lambda: replace(network, "enc.1", torch.zeros(1)).__enter__(),
    ):
        with pytest.raises(UserError, match=r"^site enc\.1: this model has dec\.1, dec\.2, dec\.3; in .*mlp\.post"):
            attempt()
    assert is_clean(network)


def test_replacement_that_does_not_fit_is_refused(data: tuple[Tensor, Tensor]) -> None:
    network = make("transformer")
    for shape in ((64, 5, 16), (64, 4, 15), (1, 4, 16)):
        with pytest.raises(ValueError, match=r"does not fit dec\.1"), replace(network, "dec.1", torch.zeros(shape)):
            network(*data)
