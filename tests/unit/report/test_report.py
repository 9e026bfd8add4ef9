"""``python -m arith_erd.report`` makes a report of any folder of runs, whatever is in it."""

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from arith_erd.report.__main__ import build, main
from arith_erd.report.claims_file import load_paper
from tests.unit.report.conftest import Synthetic


@pytest.mark.slow
def test_empty_folder_gives_a_report_that_says_what_to_run(tmp_path: Path, capsys) -> None:
    (tmp_path / "runs").mkdir()
    main([str(tmp_path / "runs"), "--out", str(tmp_path / "report")])
    printed, page = capsys.readouterr().out, (tmp_path / "report" / "index.html").read_text()
    total = sum(claim.counted for claim in load_paper().claims)
    assert f"Of {total} results: {total} not run. " in printed
    for text in (printed, page):
        assert "python train.py -m experiment=fig3" in text
    assert "There is no run in" in page
    unfolded = re.sub(r'<details class="notrun">.*?</details>', "", page, flags=re.S)
    assert page.count('<tr id="') == len(load_paper().claims)
    assert '<tr id="' not in unfolded
    assert not list((tmp_path / "report" / "figures").iterdir())


@pytest.mark.slow
def test_miniature_is_judged_by_its_own_claims(synthetic, tmp_path: Path, capsys) -> None:
    """A run of full size does not count there."""
    mini = {"task.bits": 5, "data.batch_size": 32, "model.optimizer.lr": 1e-3}
    mini |= {f"model.net.{key}": value for key, value in (("d_model", 32), ("num_heads", 4), ("num_layers", 3))}
    synthetic.run(seeds="0-9", epochs=100, settings=mini)
    synthetic.run("model=nanogpt", seeds="0-9", epochs=100)
    main([str(synthetic.root), "--out", str(tmp_path / "report"), "--claims", "mini"])
    claims = pd.read_csv(tmp_path / "report" / "claims.csv").set_index("id")
    assert claims.loc[["fig1-add", "figE7-add"], "verdict"].tolist() == ["reproduced", "not run"]
    assert "<h2>The paper in miniature</h2>" in (tmp_path / "report" / "index.html").read_text()
    assert "paper/scripts/mini.sh" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("runs", "out", "says"),
    [("nowhere", "report", "nowhere: no such folder"), ("runs", "file/report", "--out="), ("runs", "", "--out=''")],
)
def test_unreadable_or_unwritable_folders_are_one_line(tmp_path: Path, capsys, runs: str, out: str, says: str) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit, match="1"):
        main([str(tmp_path / runs), "--out", str(tmp_path / out) if out else ""])
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1
    assert says in printed.err
    assert not (tmp_path / "report").exists()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A run with markup for its device, half a run with an explorer, and a damaged one; and the report of them."""
    folder, printed = tmp_path_factory.mktemp("small"), StringIO()
    runs, report = Synthetic(folder / "runs"), folder / "report"
    run = runs.run("model=nanogpt", seeds="0-2")  # of one figure only
    run.summary_file.write_text(run.summary_file.read_text().replace("a CPU, 1 thread", "<script>alert(1)</script>"))
    half, bad = runs.run(epochs=30, finished=False), runs.run("task=mul", seeds="0")
    explorer = half.path / "probes" / "explorer" / "explorer.html"
    explorer.parent.mkdir(parents=True)
    explorer.write_text("<p>watch")
    explorer.with_name("figure.png").touch()
    bad.summary_file.write_text("{")
    with redirect_stdout(printed):
        main([str(runs.root), "--out", str(report)])
    page = (report / "index.html").read_text()
    return SimpleNamespace(runs=runs.root, report=report, half=half, bad=bad, page=page, printed=printed.getvalue())


def test_half_finished_and_damaged_runs_are_reported_and_probes_linked(small) -> None:
    half, page = small.half, small.page
    assert f"unfinished: {half.name}: epoch 30 of 60" in small.printed
    assert f"left out: {small.bad.name}: summary.json" in small.printed
    assert f"{half.name}: epoch 30 of 60" in page
    assert small.bad.name in page
    (link,) = re.findall(f'<a href="([^"#]*)">{half.name}/probes/explorer</a>', page)
    assert (small.report / link).resolve() == half.path / "probes" / "explorer" / "explorer.html"


def test_page_loads_nothing_and_escapes_html_of_runs(small) -> None:
    page = small.page
    addresses = re.findall(r'(?:\s(?:src|srcset|poster|data)|<link[^>]* href)="([^"]*)"', page)
    assert addresses
    assert all(address.startswith("data:") for address in addresses)
    assert not re.search(r"@import|url\(", page)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    opening = page[page.index('<section id="runs">') : page.index('<section id="claims">')]
    assert "addition, nanogpt" in opening
    assert '<td data-label="validation">100%</td>' in opening
    assert "<script>alert" not in page


@pytest.mark.slow
def test_report_is_deterministic_and_removes_stale_files(small) -> None:
    runs, first, again = small.runs, small.report, small.report.with_name("again")
    build([runs], again)
    files = [path.relative_to(first) for path in first.rglob("*") if path.is_file()]
    assert Path("figures/figE7.svg") in files
    assert all((first / file).read_bytes() == (again / file).read_bytes() for file in files)
    (runs.parent / "empty").mkdir()
    build([runs.parent / "empty"], again)
    assert not list((again / "figures").iterdir())
