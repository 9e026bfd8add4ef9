"""Whatever strangers' runs and probes say: the report is made, and nothing in it acts."""

import json
import os
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from unittest import mock

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arith_erd.errors import UserError
from arith_erd.plots.sheet import Sheet
from arith_erd.report.__main__ import build
from tests.cards import seed_card, table, whole

TEXTS = [
    *("<script>alert(1)</script>", "<img src=x onerror=alert(1)>", '"><svg onload=alert(1)>', "{{ 7 * 7 }}{% raise %}"),
    *("](javascript:alert(1))", "![x](javascript:alert(1))"),
    *(r"\bad{", "$x^{$", "$", "\ud800", "\x1b[2J", "a|b\n| **c** |", "%s {x} {0}", "x" * 3000, "数", ""),
]
PLACES = ("run", "device", "version", "note", "column", "setting", "stack", "level", "probe", "concept", "method",
          "folder", "header", "cell", "verdict", "stage")  # fmt: skip


def rewrite(path: Path, change: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    change(pd.read_csv(path)).to_csv(path, index=False, errors="surrogatepass")


def spoken(synthetic, texts: dict[str, str]) -> None:
    """Put a text into every place in which a run or a probe can say something of itself."""
    root, run = synthetic.root, synthetic.run(seeds="0", epochs=2)
    summary = run.summary() | {"device": texts["device"], "versions": {"torch": texts["version"]}}
    summary["seeds"][0] |= {"note": texts["note"], texts["column"]: texts["note"]}
    run.finish(summary)
    config = run.config()
    config["model"]["optimizer"]["lr"] = texts["setting"].encode(errors="replace").decode()
    (run.path / "config.yaml").write_text(json.dumps(config))  # which is YAML too
    path = synthetic.correlations(root, (0,), "distance_correlation-add")
    rewrite(path, lambda rows: rows.assign(stack=texts["stack"], level=texts["level"]))
    sheet = json.loads(path.with_name("probe.json").read_text()) | {"name": texts["probe"]}
    path.with_name("probe.json").write_text(json.dumps(sheet))
    path = synthetic.erasures(root, (0,), "amnesic-add")
    rewrite(path, lambda rows: rows.assign(concept=texts["concept"], method=texts["method"]))
    path = synthetic.probe(root, "mechanism-add", table(0))
    rewrite(path, lambda rows: rows.assign(site=texts["stage"]))
    said = json.loads(re.sub(r'(?<=[\[ ])"[^"]*"(?!:)', lambda _: json.dumps(texts["verdict"]), whole(seed_card())))
    said["expected"] = {texts["verdict"]: {"carry": [0.5]}}
    path.with_name("card.json").write_text(json.dumps(said))
    folder, name = ("n" + re.sub("[/\ud800]", "_", texts[place])[:60] for place in ("folder", "run"))
    mine = run.path / "probes" / folder
    mine.mkdir(parents=True)
    rows = pd.DataFrame({"seed": [0], texts["header"]: [texts["cell"]], "x": 0.5})
    rows.to_csv(mine / "rows.csv", index=False, errors="surrogatepass")
    (mine / "probe.json").write_text(Sheet.of("mine", rows, {}).to_json())
    run.path.rename(root / name)


class Page(HTMLParser):
    """Elements and attributes that could act."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.acting: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.acting += [tag] if tag in ("script", "iframe", "object", "form") else []
        self.acting += [key for key, value in attrs if key.startswith("on") or "javascript:" in (value or "")]


@pytest.mark.slow
@settings(max_examples=4, database=None)
@given(texts=st.fixed_dictionaries({place: st.sampled_from(TEXTS) for place in PLACES}))
def test_whatever_is_said_stays_text(synthetic_in, tmp_path_factory, texts: dict[str, str]) -> None:
    """Nothing of a run acts in the page or in Markdown."""
    synthetic, report = synthetic_in(tmp_path_factory.mktemp("said") / "runs"), tmp_path_factory.mktemp("report")
    spoken(synthetic, texts)
    build(synthetic.root, report)
    page, markdown = ((report / name).read_text() for name in ("index.html", "claims.md"))
    assert Page(page).acting == ["script"]  # its own
    assert not re.search(r"<(script|img|svg)|(?<!\\)\]\((?!\d+ of)", markdown)


@pytest.mark.slow
def test_reports_made_at_once_are_whole_and_follow_no_link(synthetic, tmp_path: Path) -> None:
    synthetic.run(seeds="0", epochs=2)
    runs, out, victim = synthetic.root, tmp_path / "report", tmp_path / "victim"
    victim.write_text("precious")
    (out / "figures").mkdir(parents=True)
    for name in ("claims.md", "index.html", "figures/fig1.png"):
        (out / name).symlink_to(victim)
    with mock.patch("arith_erd.report.page._curves", return_value=[]), ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: build(runs, out), range(3)))
    assert victim.read_text() == "precious"
    assert sorted(os.listdir(out)) == ["claims.csv", "claims.md", "figures", "index.html", "runs.csv"]
    assert not (out / "claims.md").is_symlink()
    shutil.rmtree(out / "figures")
    (out / "figures").symlink_to(tmp_path)
    with pytest.raises(UserError, match="figures is a link"):
        build(runs, out)
