"""The explorer's page in headless Chromium: its interventions equal Python's, and nothing that is typed breaks it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from arith_erd.catalog.loading import load_pretrained
from arith_erd.explorer import export_network, write_page
from arith_erd.interp.hooked import Hooked
from arith_erd.interp.interventions import Interchange, Intervention, Replace, Steer, Subspace
from arith_erd.interp.sites import layers
from arith_erd.models.network import shift_right
from arith_erd.tasks import Add, Add3, AddScratchpad, ModAdd, Mul, RandomOutput, Sub, Task
from tests.browser import CHROMIUM, READY, Browser
from tests.explorer import unpacked
from tests.unit.probes.small import untrained

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")]
MARKUP = "<img src=x onerror=document.title='gotcha'></script><script>document.title='gotcha'</script>"


@pytest.fixture(scope="module")
def networks() -> list[tuple[Hooked, dict[str, Any]]]:
    """Trained networks, each with its exported data."""
    models = [load_pretrained(name) for name in ("add-transformer", "add-nanogpt")]
    return [(model, export_network(model, 64)) for model in models]


def saved(folder: Path, *networks: dict[str, Any]) -> str:
    """Address of a page with these networks."""
    path = folder / "explorer.html"
    path.write_text(write_page(networks))
    return path.as_uri()


@pytest.fixture(scope="module")
def trained(networks: list[tuple[Hooked, dict[str, Any]]], tmp_path_factory: pytest.TempPathFactory) -> str:
    return saved(tmp_path_factory.mktemp("trained"), *(measured for _, measured in networks))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One small network, whose name is markup."""
    model = untrained(Add(3), seed=1)
    model.name = MARKUP
    return saved(tmp_path_factory.mktemp("tiny"), export_network(model, 64))


ACTIONS = (  # as the page's address writes them; a decoder-only network has no encoder
    (
        *("invert:r2", "exchange:enc.2.resid_mid:b3", "exchange:dec.3.resid_mid_cross:r4", "exchange:dec.6:r7"),
        *("off:enc.1.attn:3", "off:dec.2.cross_attn", "off:dec.6.attn:0", "off:enc.4.mlp", "off:dec.3.mlp"),
        *("steer:dec.2.resid_mid:r3:carry:-2", "steer:dec.4:r5:value:40", "encoder", "tokens"),
    ),
    (
        *("invert:r2", "exchange:dec.2:a3", "exchange:dec.4.resid_mid:r6", "exchange:dec.6:r7"),
        *("off:dec.1.attn:3", "off:dec.5.attn", "off:dec.3.mlp"),
        *("steer:dec.2.resid_mid:r3:carry:-2", "steer:dec.4:r5:value:40"),
    ),
)


def in_python(model, known, action, prompt, source):
    """The same intervention by the public classes; ``known`` are the page's tensors."""
    task = model.task
    kind, *rest = action.split(":")
    encoder = [site for site in layers(model.sites) if site.startswith("enc.")]

    def averaged(site: str, head: int | None = None) -> list[Intervention]:
        mean = known[f"mean.{site}"]
        names = task.prompt_names if site.startswith("enc.") else task.answer_names
        names = [*task.prompt_names, *task.answer_names] if len(mean) > max(15, len(names)) else names
        rows = mean.unflatten(1, (1, 8, -1)) if site.endswith(".z") else mean
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
        row = model.site_positions(site, cache[site]).by_name(task)[name]
        return [Replace(site, name, cache[site][:, row])]
    if kind == "steer":
        site, name, along, amount = rest
        return [Steer(site, name, float(amount) * known[f"{along}.{site}"][task.answer_names.index(name)])]
    return []


@pytest.mark.parametrize("index", [0, 1])
def test_interventions_equal_those_in_python(index, browser, trained, networks):
    model, known = unpacked(*networks[index])
    task = model.task
    pairs = np.random.default_rng(7).integers(0, 128, (len(ACTIONS[index]), 2, 2)).tolist()
    cases = [{"pair": a, "other": b, "do": do} for (a, b), do in zip(pairs, ACTIONS[index], strict=True)]
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
        interventions = in_python(model, known, case["do"], prompt, source)
        logits = model.run([prompt, shift_right(read)], interventions)[0]
        np.testing.assert_allclose(np.reshape(ours["logits"], (task.width, -1)), logits, atol=1e-3, err_msg=case["do"])
        assert ours["tokens"] == logits.argmax(-1).tolist()
        inverted = [case["do"] == f"invert:{name}" for name in task.answer_names]
        assert [a != b for a, b in zip(ours["tokens"], ours["read"], strict=True)] == inverted


def test_page_answers_and_makes_no_request(browser: Browser, trained: str) -> None:
    browser.open(f"{trained}#a=127&b=1", READY)
    assert "127 + 1 = 128 ✓ right" in browser("document.querySelector('#columns').innerText")
    assert not browser("$('sample').checkVisibility()")  # no interventions to try
    assert browser.requests == [trained]
    assert browser("fetch('https://example.com').then(() => 'fetched', () => 'refused')") == "refused"


class Gcd(Task):
    operator = "&"

    def answer(self, a, b):
        return np.gcd(a, b)


@pytest.mark.parametrize(
    ("task", "operands", "question"),
    [
        (Sub(3), "a - b", "sub: 3 - 5"),
        (Mul(2, base=10), "a x b", "mul: 3 x 5"),
        (ModAdd(3, modulus=7), "a + b", "mod_add: 3 + 5"),
        (Add3(3), "a + b + c", "add3: 3 + 5 + 1"),
        (RandomOutput(3), "a + b", "random_output: 3 + 5"),
        (AddScratchpad(3), "a + b", "add_scratchpad: 3 + 5"),
        (Gcd(3), "a & b", "gcd: 3 & 5"),
    ],
    ids=repr,
)
def test_page_names_its_task_and_the_tasks_operator(task, operands, question, browser, tmp_path):
    page = saved(tmp_path, export_network(untrained(task), 8))
    browser.open(f"{page}#a=3&b=5" + "&c=1" * (task.num_operands > 2), READY)
    intro = browser("document.querySelector('h1 + p').innerText")
    assert intro.startswith(f"Networks for the task {task.name}, {task.bits} {task.digit_noun}.")
    assert f"answer to {operands} token by token" in intro
    shown = browser("document.querySelector('#columns').innerText")
    assert f"{question} = " in shown
    answer = task.examples(*([x] for x in (3, 5, 1)[: task.num_operands])).answer.item()
    assert f"✗ wrong, it is {answer}" in shown


@pytest.mark.parametrize(("index", "unchanged"), [(0, ["Without the encoder"]), (1, [])])
def test_examples_of_the_page_change_the_answer(index, unchanged, browser, trained):
    """A list of vectors does all that the encoder does."""
    browser.open(trained, READY)
    browser(f"update({{ nets: [{index}] }})")
    script = "[...document.querySelectorAll('[id^=try]')].map(x => [x.innerText, (x.click(), views[0].trace.tokens)])"
    tokens, answers = browser("views[0].trace.tokens"), browser(script)
    assert len(answers) == 5 - index * 2
    assert [name for name, changed in answers if changed == tokens] == unchanged


def test_heads_count_from_0_as_in_python(browser: Browser, tiny: str) -> None:
    browser.open(tiny, READY)
    labels = browser("[...document.querySelectorAll('[id^=head-]')].map(x => [x.id.split('-')[3], x.innerText])")
    assert {number for number, _ in labels} == {"0", "1"}
    assert all(text.split()[-1] == number for number, text in labels)


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
def test_invalid_addresses_show_an_error_and_keep_the_last_state(address, sentence, browser, tiny):
    browser.open(f"{tiny}#a=5&b=2", READY)
    browser(f"location.hash = {json.dumps(address)}")
    browser.wait("document.querySelector('#address-error').textContent !== ''")
    assert sentence in browser("document.querySelector('#address-error').textContent")
    assert browser("state.pair") == [5, 2]


def test_a_link_restores_the_view(browser: Browser, tiny: str) -> None:
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
def test_page_never_scrolls_sideways(width: int, browser: Browser, tiny: str) -> None:
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    browser.open(f"{tiny}#do=tokens", READY)
    assert browser("document.documentElement.scrollWidth") <= width
