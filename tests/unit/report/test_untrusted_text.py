"""A report of strangers' runs and probes is made whatever their text says, and contains no active element of it."""

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

from arith_erd.plots.tables import column_kinds
from arith_erd.report.__main__ import build
from tests.values import put

TEXTS = [
    *('"><script>alert(1)</script>{{ 7 * 7 }}{% raise %}', r"![x](javascript:alert(1))$x^{$\bad{%s {0}"),
    *("a|b\n| **c** |\ud800\x1b[2J", "x" * 3000, "", "=cmd|' /C calc'!A0"),
]


def rewrite(path: Path, change: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    change(pd.read_csv(path)).to_csv(path, index=False, errors="surrogatepass")


def write_everywhere(synthetic, text: str) -> None:
    """Put a text into every field of a run or a probe that can hold one."""
    root, run, name = synthetic.root, synthetic.run(seeds="0", epochs=2), "n" + re.sub("[/\ud800]", "_", text)[:60]
    summary = run.summary() | {"device": text, "versions": {"torch": text}}
    summary["seeds"][0] |= {"note": text, text: text}
    run.finish(summary)
    config = put(run.config(), "model.optimizer.lr", text.encode(errors="replace").decode())
    (run.path / "config.yaml").write_text(json.dumps(config))  # which is YAML too
    path = synthetic.measured(root, (0,), "distance_correlation-add")
    rewrite(path, lambda rows: rows.assign(stack=text, level=text))
    schema = json.loads(path.with_name("probe.json").read_text()) | {"name": text}
    path.with_name("probe.json").write_text(json.dumps(schema))
    path = synthetic.measured(root, (0,), "amnesic-add")
    rewrite(path, lambda rows: rows.assign(concept=text, method=text))
    mine = run.path / "probes" / name
    mine.mkdir(parents=True)
    rows = pd.DataFrame({"seed": [0], text: [text], "x": 0.5})
    rows.to_csv(mine / "rows.csv", index=False, errors="surrogatepass")
    (mine / "probe.json").write_text(json.dumps({"name": "mine", "columns": column_kinds(rows, {})}))
    (mine / "figure.png").touch()
    run.path.rename(root / name)


class Page(HTMLParser):
    """Elements and attributes that could act."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.acting: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.acting += [tag] if tag in ("script", "iframe", "object", "form") else []
        self.acting += [key for key, _ in attrs if key.startswith("on")]
        self.acting += [key for key, value in attrs if key in ("href", "src") and "javascript:" in (value or "")]


@pytest.mark.slow
@pytest.mark.parametrize("text", TEXTS)
def test_text_of_runs_and_probes_acts_nowhere_in_a_report(synthetic, tmp_path: Path, text: str) -> None:
    """Nothing of a run acts in the page or in Markdown."""
    report = tmp_path / "report"
    write_everywhere(synthetic, text)
    build([synthetic.root], report)
    page, markdown = ((report / name).read_text() for name in ("index.html", "claims.md"))
    assert Page(page).acting == ["script"]  # its own
    assert "=" not in pd.read_csv(report / "runs.csv", dtype=str)["device"].str[:1].to_list()  # for a spreadsheet
    assert not re.search(r"<(script|img|svg)|(?<!\\)\]\((?!\d+ of)", markdown)
