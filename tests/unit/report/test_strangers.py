"""Whatever strangers' runs and probes say: the report is made, draws a bounded part of it, and passes nothing on."""

import json
import os
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest import mock

import pandas as pd
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from arith_erd.config.compose import CONF
from arith_erd.errors import UserError
from arith_erd.plots.erasures import DRAWN
from arith_erd.plots.sheet import MAX_COLUMNS, MAX_ROWS, Sheet
from arith_erd.plots.style import svg_of
from arith_erd.report.__main__ import build
from arith_erd.report.claims import evaluate
from arith_erd.report.collect import collect
from arith_erd.report.figures import DRAW
from arith_erd.report.paper import load_paper
from arith_erd.report.tables import probe_tables
from tests.cards import seed_card, table, whole
from tests.hostile.world import SECRET, World

TEXTS = [
    *("<script>alert(1)</script>", "<img src=x onerror=alert(1)>", '"><svg onload=alert(1)>', "{{ 7 * 7 }}{% raise %}"),
    *("=HYPERLINK(1)", "\t=1+1", "\n@SUM(A1)", " -1+1", "](javascript:alert(1))", "![x](javascript:alert(1))"),
    *(
        r"\bad{",
        "$x^{$",
        "$",
        "\ud800",
        "\x1b[2J",
        "a|b\n| **c** |",
        "%s {x} {0}",
        "x" * 3000,
        "数",
        "${oc.env:SECRET}",
        "",
    ),
]


CHANGES: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "numbers without end": lambda rows: rows.assign(**{rows.columns[-1]: float("inf")}),
    "20,000 places": lambda rows: rows.iloc[[0] * 20_000].assign(**{rows.columns[2]: range(20_000)}),
    "3,000 names": lambda rows: rows.iloc[[0] * 3_000].assign(**{rows.columns[1]: [f"{i}$" for i in range(3_000)]}),
}


def correlations() -> pd.DataFrame:
    places = [(stack, layer, level) for stack in ("enc", "dec") for layer in range(1, 4) for level in ("in", "out")]
    rows = [(0, *place, space, "pearson", 0.1 * place[1]) for place in places for space in ("token", "value")]
    return pd.DataFrame(rows, columns=["seed", "stack", "layer", "level", "space", "method", "correlation"])


def erasures() -> pd.DataFrame:
    names = [(0, concept, "dec.3", method) for concept in ("value", "carries") for method in ("inlp", "leace")]
    rows = pd.DataFrame(names, columns=["seed", "concept", "site", "method"])
    return rows.assign(**{column: 0.5 for column, kind in DRAWN.items() if kind is float and column != "seed"})


BITS = pd.DataFrame({"task": "add", "input_bits": range(9), "output_bits": range(9), "percent": 10.0})
PROBES = {"distance_correlation": correlations, "amnesic": erasures}
PROBES |= {"discontinuity": lambda: BITS}


def foreign(world: World, probe: str, rows: pd.DataFrame, name: str = "", **layout: Any) -> None:
    """The answer of a probe about the authors' weights, with the paper's settings."""
    folder = world.folder / "runs" / "probes" / f"{probe}-add"
    folder.mkdir(parents=True, exist_ok=True)
    options = {group: yaml.safe_load((CONF / group / f"{option}.yaml").read_text()) for group, option in
               (("probe", probe), ("task", "add"))}  # fmt: skip
    (folder / "probe.json").write_text(Sheet.of(name or probe, rows, {}, settings=options, **layout).to_json())
    rows.to_csv(folder / "rows.csv", index=False, errors="surrogatepass")


def spoken(world: World, texts: dict[str, str]) -> None:
    """Put a text into every place in which a run or a probe can say something of itself."""
    summary = world.summary | {"device": texts["device"], "versions": {"torch": texts["version"]}}
    summary["seeds"][0] |= {"note": texts["note"], texts["column"]: texts["note"]}
    world.run.finish(summary)
    world.configure("model.optimizer.lr", texts["setting"].encode(errors="replace").decode())
    rows = correlations().assign(stack=texts["stack"], level=texts["level"])
    foreign(world, "distance_correlation", rows, name=texts["probe"], across=("level", "space"))
    foreign(world, "amnesic", erasures().assign(concept=texts["concept"], method=texts["method"]))
    folder, name = ("n" + re.sub("[/\ud800]", "_", texts[place])[:60] for place in ("folder", "run"))
    foreign(world, "mechanism", table(0).assign(site=texts["stage"]))
    said = json.loads(re.sub(r'(?<=[\[ ])"[^"]*"(?!:)', lambda _: json.dumps(texts["verdict"]), whole(seed_card())))
    said["expected"] = {texts["verdict"]: {"carry": [0.5]}}
    (world.folder / "runs" / "probes" / "mechanism-add" / "card.json").write_text(json.dumps(said))
    mine = world.file(f"probes/{folder}")
    mine.mkdir(parents=True)
    rows = pd.DataFrame({"seed": [0], texts["header"]: [texts["cell"]], "x": 0.5})
    rows.to_csv(mine / "rows.csv", index=False, errors="surrogatepass")
    world.run.path.rename(world.run.path.with_name(name))


PLACES = ("run", "device", "version", "note", "column", "setting", "stack", "level", "probe", "concept", "method",
          "folder", "header", "cell", "verdict", "stage")  # fmt: skip


class Page(HTMLParser):
    """Elements and attributes that could act."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.acting: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.acting += [tag] if tag in ("script", "iframe", "object", "form") else []
        self.acting += [key for key, value in attrs if key.startswith("on") or "javascript:" in (value or "")]


def inert(report: Path) -> None:
    """Nothing of a run acts in the page, in Markdown or in a spreadsheet."""
    page, markdown = ((report / name).read_text() for name in ("index.html", "claims.md"))
    assert Page(page).acting == ["script"]  # its own
    assert SECRET not in page
    assert not re.search(r"<(script|img|svg)|(?<!\\)\]\((?!\d+ of)", markdown)
    for name in ("runs.csv", "claims.csv"):
        table = pd.read_csv(report / name, dtype=str, keep_default_na=False)
        cells = [*table.columns, *table.to_numpy().ravel()]
        assert not [cell for cell in cells if re.match(r"\s*[=@+]|\s*-[^\d.]", cell) and cell != "-inf"]


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], World]:
    return lambda: World(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def world(fresh) -> World:
    """For the probes of foreign weights only."""
    return fresh()


@pytest.mark.slow
@settings(max_examples=4, database=None)
@given(texts=st.fixed_dictionaries({place: st.sampled_from(TEXTS) for place in PLACES}))
def test_whatever_is_said_stays_text(fresh, texts: dict[str, str]) -> None:
    world = fresh()
    spoken(world, texts)
    build(world.folder / "runs", world.folder / "report")
    inert(world.folder / "report")


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_tables_of_any_shape_are_drawn_in_part(world: World, change: str) -> None:
    for probe, rows in PROBES.items():
        foreign(world, probe, CHANGES[change](rows()))
    paper = load_paper()
    found = collect(world.folder / "runs", paper.setup)
    by_id = {result.claim.id: result for result in evaluate(paper, found)}
    cells = [str(cell) for table in probe_tables(found) for cell in table.cells.to_numpy().ravel()]
    assert len(cells) < len(PROBES) * (MAX_ROWS + 1) * (MAX_COLUMNS + 9)
    assert any(cell.startswith("... at most") for cell in cells) == (change in ("20,000 places", "3,000 names"))
    for about in paper.figures:
        if about.name in ("fig4", "appendixA", "appendixD"):
            figure = DRAW[about.name](paper, about, found, by_id)
            assert figure is None or len(svg_of(figure, about.name)) < 1_000_000


def test_reports_made_at_once_are_whole_and_follow_no_link(fresh) -> None:
    world = fresh()
    runs, out = world.folder / "runs", world.folder / "report"
    (out / "figures").mkdir(parents=True)
    for name in ("claims.md", "index.html", "figures/fig1.png"):
        (out / name).symlink_to(world.victim)
    with mock.patch("arith_erd.report.page._curves", return_value=[]), ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: build(runs, out), range(3)))
    assert world.victim.read_text() == "precious"
    assert sorted(os.listdir(out)) == ["claims.csv", "claims.md", "figures", "index.html", "runs.csv"]
    assert not (out / "claims.md").is_symlink()
    shutil.rmtree(out / "figures")
    (out / "figures").symlink_to(world.folder)
    with pytest.raises(UserError, match="figures is a link"):
        build(runs, out)
