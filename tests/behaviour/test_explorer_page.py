"""The explorer's page in headless Chromium: its interventions equal Python's, and nothing that is typed breaks it."""

import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from arith_erd.interp.explorer.page import export_network, write_page
from arith_erd.interp.hooked import Hooked
from arith_erd.interp.interventions import Interchange, Intervention, Replace, Steer, Subspace
from arith_erd.interp.loading import load_pretrained
from arith_erd.interp.sites import layers, residual_stream
from arith_erd.models import Transformer
from arith_erd.models.decoding import shift_right
from arith_erd.tasks import Add
from tests.browser import CHROMIUM, Browser
from tests.explorer import unpacked

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
MARKUP = "<img src=x onerror=document.title='gotcha'></script><script>document.title='gotcha'</script>"
NAMES = ("add-transformer", "add-nanogpt")
Rounded = tuple[Hooked, dict[str, torch.Tensor]]  # with the page's weights and tensors
READY = "document.body?.dataset.ready !== undefined"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as one:
        yield one


@pytest.fixture(scope="module")
def measured() -> list[dict[str, Any]]:
    return [export_network(load_pretrained(name), 64) for name in NAMES]


@pytest.fixture(scope="module")
def networks(measured: list[dict[str, Any]]) -> list[Rounded]:
    return [unpacked(load_pretrained(name), page) for name, page in zip(NAMES, measured, strict=True)]


@pytest.fixture(scope="module")
def trained(measured: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> str:
    """Address of a page with two trained networks."""
    path = tmp_path_factory.mktemp("trained") / "explorer.html"
    path.write_text(write_page(measured))
    return path.as_uri()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Address of a page with one small network, whose name is markup."""
    torch.manual_seed(1)
    network = Transformer(7, 4, d_model=16, num_heads=2, num_layers=2)
    path = tmp_path_factory.mktemp("tiny") / "explorer.html"
    path.write_text(write_page([export_network(Hooked(network, task=Add(3), name=MARKUP), 64)]))
    return path.as_uri()


def random_action(rounded: Rounded, kind: str, rng: np.random.Generator) -> str:
    """An intervention as the page's address writes it."""
    model, tensors = rounded
    task = model.task
    stream = residual_stream(model.sites)
    decoder = [site for site in stream if site.startswith("dec")]
    if kind == "invert":
        return f"invert:{rng.choice(task.answer_names)}"
    if kind == "exchange":
        site = str(rng.choice(stream))
        last = layers(model.sites)[-1] in (site, site.removesuffix(".resid_mid"))
        only_answer = last or (site.startswith("dec") and "enc.1" in model.sites)
        names = task.prompt_names if site.startswith("enc") else task.answer_names
        names = names if only_answer or site.startswith("enc") else [*task.prompt_names, *task.answer_names]
        return f"exchange:{site}:{rng.choice(names)}"
    if kind == "off":
        site = str(rng.choice([name for name in tensors if name.startswith("mean.")])).removeprefix("mean.")
        if site.endswith(".mlp_out"):
            return f"off:{site.removesuffix('_out')}"
        return f"off:{site.removesuffix('.z')}" + (f":{rng.integers(8)}" if rng.random() < 0.7 else "")
    if kind == "steer":
        along, most = [("carry", 3), ("value", 64)][rng.integers(2)]
        return f"steer:{rng.choice(decoder)}:{rng.choice(task.answer_names)}:{along}:{rng.integers(-most, most + 1)}"
    return kind


def in_python(rounded: Rounded, action: str, prompt: torch.Tensor, source: list[torch.Tensor]) -> list[Intervention]:
    """The same intervention by the public classes."""
    model, known = rounded
    task = model.task
    kind, *rest = action.split(":")
    encoder = [site for site in layers(model.sites) if site.startswith("enc.")]

    def averaged(site: str, head: int | None = None) -> list[Intervention]:
        mean = known[f"mean.{site}"]
        names = task.prompt_names if site.startswith("enc.") else task.answer_names
        names = [*task.prompt_names, *task.answer_names] if len(mean) > max(15, len(names)) else names
        rows = mean.unflatten(1, (8, -1)) if site.endswith(".z") else mean
        if head is None:
            return [Replace(site, name, row) for name, row in zip(names, rows, strict=True)]
        own = Subspace(torch.eye(64)[:, 8 * head : 8 * head + 8])
        return [Interchange(site, name, own, row) for name, row in zip(names, rows, strict=True)]

    if kind == "off":
        site = f"{rest[0]}_out" if rest[0].endswith(".mlp") else f"{rest[0]}.z"
        return averaged(site, int(rest[1]) if len(rest) > 1 else None)
    if kind == "encoder":
        return [one for site in encoder for one in averaged(f"{site}.attn.z")]
    if kind == "tokens":
        return [Replace(encoder[-1], None, known[f"tokens.{encoder[-1]}"][torch.arange(15), prompt])]
    if kind == "exchange":
        site, name = rest
        _, cache = model.run_with_cache(source, [site], include_prompt=True)
        at = model.index(site, name)
        row = at if site.startswith("enc.") else cache[site].shape[1] - task.width + at
        return [Replace(site, name, cache[site][:, row])]
    if kind == "steer":
        site, name, along, amount = rest
        return [Steer(site, name, float(amount) * known[f"{along}.{site}"][task.answer_names.index(name)])]
    return []


@pytest.mark.parametrize(  # a decoder-only network has no encoder
    ("kind", "index"), [*product(("invert", "exchange", "off", "steer"), (0, 1)), ("encoder", 0), ("tokens", 0)]
)
def test_interventions_equal_those_in_python(
    kind: str, index: int, browser: Browser, trained: str, networks: list[Rounded]
) -> None:
    model, _ = networks[index]
    task = model.task
    rng = np.random.default_rng(7)
    cases = [
        {
            "pair": rng.integers(0, 128, 2).tolist(),
            "other": rng.integers(0, 128, 2).tolist(),
            "do": random_action(networks[index], kind, rng),
        }
        for _ in range(6)
    ]
    browser.open(trained, READY)
    found = browser(
        f"""{json.dumps(cases)}.map(one => {{
        const source = run(loaded[{index}], one.other)
        const trace = run(loaded[{index}], one.pair, [one.do], one.other)
        return {{ logits: [...trace.logits.data], read: trace.read, tokens: trace.tokens, source: source.read }} }})"""
    )
    for case, ours in zip(cases, found, strict=True):
        examples, other = (task.examples(*([x] for x in case[name])) for name in ("pair", "other"))
        prompt, read = torch.as_tensor(examples.prompt), torch.tensor([ours["read"]])
        source = [torch.as_tensor(other.prompt), shift_right(torch.tensor([ours["source"]]))]
        interventions = in_python(networks[index], case["do"], prompt, source)
        logits = model.run([prompt, shift_right(read)], interventions)[0]
        np.testing.assert_allclose(np.reshape(ours["logits"], (task.width, -1)), logits, atol=1e-3, err_msg=case["do"])
        assert ours["tokens"] == logits.argmax(-1).tolist()
        inverted = [case["do"] == f"invert:{name}" for name in task.answer_names]
        assert [a != b for a, b in zip(ours["tokens"], ours["read"], strict=True)] == inverted


def test_page_answers_and_makes_no_request(browser: Browser, trained: str) -> None:
    browser.open(f"{trained}#a=127&b=1", READY)
    assert "127 + 1 = 128 ✓ right" in browser("document.querySelector('#columns').innerText")
    assert browser.requests == [trained]
    assert browser("fetch('https://example.com').then(() => 'fetched', () => 'refused')") == "refused"


def test_foreign_text_shows_as_text(browser: Browser, tiny: str) -> None:
    browser.open(tiny, READY)
    assert browser("document.title") == "Watch it compute"
    assert browser("document.querySelectorAll('img').length") == 0
    assert MARKUP in browser("document.querySelector('h2').textContent")


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("a=999", 'a = "999": expected a whole number from 0 to 7.'),
        ("do=explode:r1", "is no intervention of these networks"),
        ("do=steer:dec.1:r1:carry:1e9", "is no intervention of these networks"),
        ("net=x", "is not in this page"),
        ("colour=red", '"colour" is no key.'),
    ],
)
def test_nonsense_in_the_address_gets_a_sentence_and_the_last_state_stays(
    address: str, sentence: str, browser: Browser, tiny: str
) -> None:
    browser.open(f"{tiny}#a=5&b=2", READY)
    browser(f"location.hash = {json.dumps(address)}")
    browser.wait("document.querySelector('#address-error').textContent !== ''")
    assert sentence in browser("document.querySelector('#address-error').textContent")
    assert browser("state.pair") == [5, 2]


def test_a_link_shows_what_was_seen(browser: Browser, tiny: str) -> None:
    browser.open(f"{tiny}#a=5&b=2&do=invert:r1;off:dec.1.attn:1;tokens&shown=2", READY)
    seen = browser("[location.hash, document.querySelector('.answer').innerText]")
    browser.open(f"{tiny}{seen[0]}", READY)
    assert browser("[location.hash, document.querySelector('.answer').innerText]") == seen
    assert browser("state.actions.length") == 3


def test_interventions_are_tried_on_the_same_random_pairs(browser: Browser, tiny: str) -> None:
    browser.open(f"{tiny}#do=invert:r1", READY)
    said = [browser("sample().then(() => document.querySelector('#sampled').textContent)") for _ in range(2)]
    assert said[0] == said[1]
    assert said[0].startswith("Of 100 random pairs:")
    assert "r1 in" not in said[0].partition("changed:")[2]  # a token does not read itself


@pytest.mark.parametrize("width", [360, 1400])
def test_no_sideways_scrolling(width: int, browser: Browser, tiny: str) -> None:
    browser.look(width)
    browser.open(f"{tiny}#do=tokens", READY)
    assert browser("document.documentElement.scrollWidth") <= width
