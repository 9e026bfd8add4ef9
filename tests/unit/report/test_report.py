"""``python -m arith_erd.report``: from a folder of runs, whatever is in it, to a report."""

import re
import tomllib
from pathlib import Path

import pandas as pd
import pytest

from arith_erd.plots.sheet import Sheet
from arith_erd.plots.style import canvas, save_png
from arith_erd.report.__main__ import build, main
from arith_erd.report.page import MAX_SEEDS, final
from arith_erd.report.paper import load_paper
from tests.cards import seed_card, table, whole
from tests.unit.report.conftest import Synthetic


def test_empty_folder_gives_a_report_that_says_what_to_run(tmp_path: Path, capsys) -> None:
    (tmp_path / "runs").mkdir()
    main([str(tmp_path / "runs"), "--out", str(tmp_path / "report")])
    printed, page = capsys.readouterr().out, (tmp_path / "report" / "index.html").read_text()
    claims = load_paper().claims
    total = sum(claim.counted for claim in claims)
    assert f"Of {total} results: {total} not run (" in printed
    assert f"13 of {sum(claim.kind == 'setup' for claim in claims)} settings match the paper." in printed
    for text in (printed, page):
        assert "python train.py -m experiment=fig3" in text
    assert "There is no run in" in page
    assert not list((tmp_path / "report" / "figures").iterdir())


def test_miniature_is_judged_by_its_own_claims(synthetic, tmp_path: Path, capsys) -> None:
    """A run of full size does not count there."""
    mini = {"task.bits": 5, "data.batch_size": 32, "model.optimizer.lr": 1e-3}
    mini |= {f"model.net.{key}": value for key, value in (("d_model", 32), ("num_heads", 4), ("num_layers", 3))}
    synthetic.run(seeds="0-9", epochs=100, settings=mini)
    synthetic.run("model=nanogpt", seeds="0-9", epochs=100)
    main([str(synthetic.root), "--out", str(tmp_path / "report"), "--mini"])
    claims = pd.read_csv(tmp_path / "report" / "claims.csv").set_index("id")
    assert claims.loc[["fig1-add", "figE7-add"], "verdict"].tolist() == ["reproduced", "not run"]
    assert "<h2>The paper in miniature</h2>" in (tmp_path / "report" / "index.html").read_text()
    assert "scripts/mini.sh" in capsys.readouterr().out


def test_tokens_that_were_never_learnt_are_named_under_their_experiment(synthetic, tmp_path: Path) -> None:
    """Whatever a summary says they are called, on a line that is bounded."""
    run = synthetic.run(seeds="0-7", epochs=2)
    summary = run.summary()
    foreign = [[f"<b>{i}</b>" * 1000] for i in range(5)]
    for row, names in zip(summary["seeds"], [["r6"], ["r6"], [], *foreign], strict=True):
        row["never_learnt"] = names
    run.finish(summary)
    synthetic.run("task=mul", seeds="0", epochs=2)  # of a version that did not say
    main([str(synthetic.root), "--out", str(tmp_path / "report")])
    page = (tmp_path / "report" / "index.html").read_text()
    (line,) = re.findall("<small>(.* never learnt.*?)</small>", page)
    assert line.startswith("seeds 0-1: r6 never learnt; seed 3: &lt;b&gt;0")
    assert line.endswith("; ...")
    assert "<b>0" not in page
    assert len(line) < 5000


def test_half_finished_and_damaged_runs_are_reported_and_explorers_linked(synthetic, tmp_path: Path, capsys) -> None:
    half = synthetic.run(epochs=30, finished=False)
    explorer = half.path / "probes" / "explorer" / "explorer.html"
    explorer.parent.mkdir(parents=True)
    explorer.write_text("<p>watch")
    bad = synthetic.run("task=mul", seeds="0")
    (bad.path / "summary.json").write_text("{")
    main([str(synthetic.root), "--out", str(tmp_path / "report")])
    printed = capsys.readouterr().out
    assert f"unfinished: {half.name}: epoch 30 of 60" in printed
    assert f"left out: {bad.name}: summary.json" in printed
    page = (tmp_path / "report" / "index.html").read_text()
    assert f"{half.name}: epoch 30 of 60" in page
    assert bad.name in page
    (link,) = re.findall('<a href="([^"#]*)">Watch seeds 0-4 compute</a>', page)
    assert (tmp_path / "report" / link).resolve() == explorer


def test_cards_are_shown_with_the_figures_beside_them(synthetic, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("arith_erd.report.page.MAX_CARDS", 2)
    run = synthetic.run(seeds="0", epochs=5, reach=None, final=0.5)
    for number in range(3):
        folder = run.path / "probes" / f"mechanism-{number}"
        folder.mkdir(parents=True)
        rows = table(0)
        rows.to_csv(folder / "rows.csv", index=False)
        (folder / "probe.json").write_text(Sheet.of("mechanism", rows, {}).to_json())
        (folder / "card.json").write_text(whole(*map(seed_card, range(MAX_SEEDS + number))))
    save_png(canvas(2, 1), run.path / "probes" / "mechanism-0" / "figure.png")
    found, _ = build(synthetic.root, tmp_path / "report")
    assert found.problems == {}
    page = (tmp_path / "report" / "index.html").read_text()
    section = page[page.index('<section id="cards">') : page.index('<section id="probes">')]
    assert section.count('<img src="data:image/png;base64,iVBOR') == 1
    assert section.count("<summary>") == 2
    assert section.count(", the first 20 are shown") == 1
    assert "1 more cards are not shown" in section
    assert not re.search(r"\bnan\b|<td></td>", section)


@pytest.mark.parametrize(
    ("runs", "out", "says"), [("nowhere", "report", "nowhere: no such folder"), ("runs", "file/report", "--out=")]
)
def test_unreadable_or_unwritable_folders_are_one_line(tmp_path: Path, capsys, runs: str, out: str, says: str) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit, match="1"):
        main([str(tmp_path / runs), "--out", str(tmp_path / out)])
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1
    assert says in printed.err
    assert not (tmp_path / "report").exists()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """One run with markup for its device, and the report of it. Folders of runs and of the report."""
    folder = tmp_path_factory.mktemp("small")
    run = Synthetic(folder / "runs").run("model=nanogpt", seeds="0-2")  # of one figure only
    summary = run.path / "summary.json"
    summary.write_text(summary.read_text().replace("a CPU, 1 thread", "<script>alert(1)</script>"))
    build(folder / "runs", folder / "report")
    return folder / "runs", folder / "report"


def test_page_loads_nothing_and_takes_nothing_in_a_run_for_html(small) -> None:
    page = (small[1] / "index.html").read_text()
    addresses = re.findall(r'(?:\s(?:src|srcset|poster|data)|<link[^>]* href)="([^"]*)"', page)
    assert addresses
    assert all(address.startswith("data:") for address in addresses)
    assert not re.search(r"@import|url\(", page)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    opening = page[page.index('<section id="runs">') : page.index('<section id="claims">')]
    assert "addition, nanogpt" in opening
    assert ">39<" in opening
    assert "<small>[39, 39]</small>" not in opening  # three seeds have no interval of the median
    assert "<script>alert" not in page


def test_error_of_the_opening_table_is_not_below_zero() -> None:
    assert final(pd.DataFrame({"val_mae": [13.0, 4.73, 0.453]}), "val_mae", "value") == ("6.06", "[0, 50.5]")


def test_report_is_deterministic_and_removes_stale_files(small, tmp_path: Path) -> None:
    runs, first = small
    build(runs, tmp_path)
    files = [path.relative_to(first) for path in first.rglob("*") if path.is_file()]
    assert Path("figures/figE7.svg") in files
    assert all((first / file).read_bytes() == (tmp_path / file).read_bytes() for file in files)
    (runs.parent / "empty").mkdir()
    build(runs.parent / "empty", tmp_path)
    assert not list((tmp_path / "figures").iterdir())


def test_nothing_is_imported_from_the_folder_that_it_runs_in(cli, root: Path, tmp_path: Path) -> None:
    (tmp_path / "yaml.py").write_text("raise SystemExit('a received yaml.py ran')")
    door = tomllib.loads((root / "pyproject.toml").read_text())["project"]["scripts"]["arith-report"]
    module, function = door.split(":")
    script = tmp_path / "bin" / "arith-report"  # the script that pip writes
    script.parent.mkdir()
    script.write_text(f"from {module} import {function}\n{function}()\n")
    assert cli(str(script), "--help", cwd=tmp_path).stdout.startswith("usage: arith-report ")
