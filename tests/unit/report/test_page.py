"""The page in a real browser: headless Chromium over plain WebDriver."""

import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arith_erd.report.paper import load_paper

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
ARGUMENTS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="no chromium and chromedriver here: the page is not tried in a browser"
)


class Browser:
    """As much of WebDriver as is needed here."""

    def __init__(self, address: str, profile: Path) -> None:
        self.address = address
        options = {"binary": CHROMIUM, "args": [*ARGUMENTS, f"--user-data-dir={profile}"]}
        wanted = {"goog:loggingPrefs": {"browser": "ALL"}, "goog:chromeOptions": options}
        session = self.ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self.address += f"/session/{session['sessionId']}"

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        data = json.dumps(body or {}).encode() if method == "POST" else None
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(json.load(error)["value"]["message"]) from error

    def open(self, page: Path) -> None:
        """Leave the present page, so that nothing of it is taken for the new one, and wait for the whole new one."""
        for url in ("about:blank", page.as_uri()):
            self.ask("POST", "/url", {"url": url})
        end = time.monotonic() + 60
        while self.run("return [document.readyState, location.href]") != ["complete", page.as_uri()]:
            assert time.monotonic() < end, f"{page} did not load"
            time.sleep(0.05)

    def run(self, script: str, *arguments: Any) -> Any:
        return self.ask("POST", "/execute/sync", {"script": script, "args": arguments})

    def click(self, selector: str) -> None:
        element = self.ask("POST", "/element", {"using": "css selector", "value": selector})
        self.ask("POST", f"/element/{next(iter(element.values()))}/click")

    def press(self, key: str) -> None:
        actions = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        self.ask("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def devtools(self, command: str, **parameters: Any) -> Any:
        return self.ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def console(self) -> list[str]:
        return [entry["message"] for entry in self.ask("POST", "/se/log", {"type": "browser"})]

    def visible(self, selector: str) -> list[str]:
        script = "return [...document.querySelectorAll(arguments[0])].filter(e => e.checkVisibility()).map(e => e.id)"
        return self.run(script, selector)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert DRIVER
    driver = subprocess.Popen([DRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    opened = None
    try:
        assert driver.stdout
        port = next(found[1] for line in driver.stdout if (found := re.search(r"successfully on port (\d+)", line)))
        opened = Browser(f"http://127.0.0.1:{port}", tmp_path_factory.mktemp("profile"))
        yield opened
    finally:
        if opened:
            opened.ask("DELETE", "")
        driver.terminate()
        driver.wait(10)


@pytest.fixture
def page(browser: Browser, whole_report) -> Browser:
    """The report of everything, just opened."""
    browser.console()
    browser.devtools("Emulation.clearDeviceMetricsOverride")
    browser.open(whole_report.out / "index.html")
    return browser


def test_page_loads_without_console_output(page: Browser) -> None:
    assert page.run("return document.readyState") == "complete"
    assert page.console() == []
    loaded = page.run("return performance.getEntriesByType('resource').map(e => e.name)")
    assert [name for name in loaded if not name.startswith("data:")] == []


def test_filter_shows_the_claims_of_one_verdict(page: Browser, whole_report) -> None:
    counts = Counter(result.verdict for result in whole_report.results)
    assert len(counts) == 4
    for verdict, count in counts.items():
        page.click(f'#filter [data-verdict="{verdict}"]')
        shown = page.visible("tr[data-verdict]")
        assert len(shown) == count
        assert set(shown) == {result.claim.id for result in whole_report.results if result.verdict == verdict}
        assert page.run("return document.querySelector('#filter [aria-pressed=true]').dataset.verdict") == verdict
    sections = {result.claim.section for result in whole_report.results if result.verdict == "not run"}
    page.click('#filter [data-verdict="not run"]')
    assert len(page.visible(".section")) == len(sections)  # headings without claims go too
    page.click('#filter [data-verdict=""]')
    assert len(page.visible("tr[data-verdict]")) == len(whole_report.results)


def test_switch_shows_one_figure_at_a_time(page: Browser) -> None:
    names = page.run("return [...document.querySelectorAll('#switch button')].map(b => b.dataset.for)")
    assert len(names) == 10
    assert page.visible("[data-figure]") == ["figure-fig1"]
    for name in names:
        page.click(f'#switch [data-for="{name}"]')
        assert page.visible("[data-figure]") == [f"figure-{name}"]
        assert page.run("return document.querySelector(arguments[0]).naturalWidth", f"#figure-{name} img") > 300
    page.click('#switch [data-for="fig1"]')
    page.press("\ue014")  # arrow right
    assert page.visible("[data-figure]") == ["figure-fig2"]
    page.press("\ue012")  # arrow left
    assert page.visible("[data-figure]") == ["figure-fig1"]


def test_page_fits_a_phone(page: Browser) -> None:
    page.devtools("Emulation.setDeviceMetricsOverride", **PHONE)
    page.run("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    page.run("document.querySelectorAll('[data-figure]').forEach(f => { f.hidden = false; })")
    assert page.run("return window.innerWidth") == 390
    assert page.run("return document.documentElement.scrollWidth") == 390
    overflowing = """
        return [...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, svg, thead'))
            .filter(e => e.getBoundingClientRect().right > 391).map(e => e.outerHTML.slice(0, 80))
    """
    assert page.run(overflowing) == []


def test_page_follows_the_readers_dark_mode(page: Browser) -> None:
    ground = {}
    for scheme in ("light", "dark"):
        page.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        ground[scheme] = page.run("return getComputedStyle(document.body).backgroundColor")
    page.devtools("Emulation.setEmulatedMedia", features=[])
    assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(23, 23, 23)"}


def test_empty_report_works(browser: Browser, empty_report) -> None:
    browser.console()
    browser.open(empty_report.out / "index.html")
    assert browser.visible("[data-figure]") == ["figure-fig1"]
    browser.click('#switch [data-for="table3"]')
    assert browser.visible("[data-figure]") == ["figure-table3"]
    assert len(browser.visible("#missing pre")) == len({claim.make for claim in load_paper().claims if claim.make})
    assert browser.console() == []
