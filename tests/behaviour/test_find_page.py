"""Find the algorithm in headless Chromium: the documented strategy wins."""

import re
from pathlib import Path

import pytest

from arith_erd.explorer.find import KINDS, find_page
from tests.browser import CHROMIUM, READY, Browser

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("find") / "find.html"
    path.write_text(find_page())
    return path


class Player:
    """A visitor who sees the page's text and uses its controls."""

    def __init__(self, browser: Browser, page: Path, seed: int) -> None:
        self.browser = browser
        browser.open(f"{page.as_uri()}#seed={seed}", READY)

    def do(self, script: str) -> None:
        self.browser(f"(async () => {{ {script}; await new Promise(done => setTimeout(done)) }})()")

    def click(self, control: str) -> None:
        self.do(f"$('{control}').click()")

    def type(self, control: str, text: object) -> None:
        self.do(f"const x = $('{control}'); x.value = '{text}'; x.dispatchEvent(new Event('input'))")

    def select(self, control: str, text: str) -> None:
        find = f"x.selectedIndex = [...x.options].findIndex(y => y.textContent === '{text}')"
        self.do(f"const x = $('{control}'); {find}; x.dispatchEvent(new Event('change'))")

    def read(self, selector: str) -> str:
        return self.browser(f"document.querySelector('{selector}').innerText")

    def name(self, kind: str) -> tuple[str, bool]:
        """The opened name, and whether the visitor was right."""
        self.click(f"name-{kind}")
        self.browser.wait("$('another')")
        verdict, name = self.read("#game h2").split(": ")
        return name, verdict == "✓ Right"


def strategy(player: Player) -> str:
    """As `docs/how-to/find.md` says."""
    for pair in ((6, 7), (3, 1)):
        for i, number in enumerate(pair):
            player.type(f"pair-{i}", number)
        if "wrong" in player.read("#columns"):
            return "nothing"
    token = player.read("#answer-0-2")
    player.select("position", "r2")
    for along, amount, kind, layers in (
        ("the carry", -1, "carries", range(2, 7)),
        ("the answer", 4, "sum", range(2, 6)),
    ):
        player.select("along", along)
        player.type("amount", amount)
        for layer in layers:
            player.select("site", f"decoder layer {layer}, cross-attention")
            player.click("steer")
            if player.read("#answer-0-2") != token:
                player.do("await sample()")
                counted = re.search(r"r2 in (\d+)", player.read("#sampled"))
                if counted and int(counted[1]) >= 75:
                    return kind
            player.click("clear")
    return "table"


def test_documented_strategy_finds_at_least_five_of_six(browser, page):
    """It plays one game with each network; the page does not give the name away."""
    found: dict[str, bool] = {}
    Player(browser, page, 0)
    for seed in browser("networks.map((_, i) => many(1000, x => x).find(seed => drawn(seed, networks.length) === i))"):
        player = Player(browser, page, seed)
        kind = strategy(player)
        assert not re.search("erd|remainder|prefix_carry|lookahead", player.read("body") + browser("location.href"))
        name, good = player.name(kind)
        assert good == (kind == KINDS[name])
        found[name] = good
    assert set(found) == set(KINDS)
    assert sum(found.values()) >= 5, found
    assert browser.requests == [page.as_uri()]


def test_eleventh_intervention_is_refused_until_the_answer_is_open(browser, page):
    player = Player(browser, page, 1)
    for i in range(11):
        player.click(f"answer-0-{i % 2}")  # on, or off again, which costs nothing
        player.click("clear") if browser("state.actions.length") else None
    assert "10 of 10 interventions used" in player.read("#game")
    assert "All 10 interventions are used" in player.read("#game-error")
    assert browser("state.actions.length") == 0
    player.name("table")
    assert browser("document.activeElement.id") in ("another", "")
    player.click("answer-0-1")
    assert browser("state.actions.length") == 1
    assert len(browser("[...document.querySelectorAll('#game li')].map(x => x.innerText)")) == 10


def test_keys_alone_play_a_game(browser, page):
    player = Player(browser, page, 2)
    for control, expected in (("answer-0-1", "1 of 10"), ("name-sum", "What each intervention told")):
        browser(f"$('{control}').focus()")
        for kind in ("keyDown", "keyUp"):
            browser.call(
                "Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r"
            )
        browser.wait(f"$('game').innerText.includes('{expected}')")
    assert browser("document.activeElement.id") == "another"
    first = browser("state.nets[0]")
    player.click("another")
    assert browser("state.nets[0]") != first
    assert "0 of 10 interventions used" in player.read("#game")


def test_address_takes_a_seed_and_numbers_only(browser, page):
    Player(browser, page, 5)
    for address, sentence in (
        ("seed=x", "expected a whole number from 0 to 999999"),
        ("do=invert:r1", '"do" is no key'),
        ("net=0", '"net" is no key'),
    ):
        browser(f"location.hash = '{address}'")
        browser.wait(f"document.querySelector('#address-error').textContent.includes('{sentence}')")
        assert browser("state.seed") == 5


@pytest.mark.parametrize("width", [390, 1100])
def test_page_never_scrolls_sideways(width, browser, page):
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    player = Player(browser, page, 0)
    for opened in (False, True):
        if opened:
            player.name("sum")
        assert browser("document.documentElement.scrollWidth") <= width
