"""The report of ``results/``: files, claims, and every figure of the paper, light enough to commit."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from arith_erd.report.claims import evaluate, missing
from arith_erd.report.collect import Collection, collect
from arith_erd.report.figures import DRAW, curves, paper_figures
from arith_erd.report.page import markdown
from arith_erd.report.paper import load_paper
from arith_erd.report.tables import claims_table, ours_text

RUNS = Path("runs")
PAPERS = ("fig1", "fig2", "fig3", "fig4", "table3", "appendixA", "figC6", "appendixD", "figE7", "figE8")


def draw(found: Collection, *names: str) -> dict[str, Figure | None]:
    """Figures by name; all of them if none is named."""
    paper = load_paper()
    figures = tuple(about for about in paper.figures if not names or about.name in names)
    chosen = paper.model_copy(update={"figures": figures})
    return {about.name: figure for about, figure in paper_figures(chosen, found, evaluate(paper, found))}


@pytest.fixture(scope="module")
def drawn(whole_report) -> dict[str, Figure | None]:
    return whole_report.figures


def test_every_figure_is_there_and_its_files_are_light(whole_report, drawn) -> None:
    assert tuple(drawn) == PAPERS
    assert all(figure is not None for figure in drawn.values())
    assert all((about.curves is None) == (about.name in DRAW) for about in load_paper().figures)
    for file in (whole_report.out / "figures").iterdir():
        assert 5_000 < file.stat().st_size < 300_000, file.name


def test_the_papers_numbers_are_marked(drawn) -> None:
    for ax, numbers in zip(drawn["fig3"].axes, ((1.0, 1.0, 0.937), (0.989, 0.975, 0.943)), strict=True):
        assert [line.get_ydata()[0] for line in ax.lines if line.get_marker() == "D"] == list(numbers)
    never = {text.get_text() for ax in drawn["table3"].axes for text in ax.texts}
    assert {"2.4%", "1.8%", "0.9%", "1.7%"} <= never
    assert "27.9" in {text.get_text() for text in drawn["appendixA"].axes[0].texts}


def test_line_is_the_median_over_seeds_of_the_papers_settings(synthetic) -> None:
    synthetic.run(seeds="0-2", final=[0.96, 1.0, 0.98])
    synthetic.run(seeds="3", settings={"model.net.dropout": 0.5}, reach=None, final=0.1)  # departs: not drawn
    synthetic.run("split=vs_v", seeds="0")
    figures = draw(collect(synthetic.root, load_paper().setup), "fig1", "fig3")
    line = next(line for line in figures["fig1"].axes[0].lines if line.get_label() == "validation")
    assert line.get_ydata()[-1] == pytest.approx(0.98)
    (panel,) = figures["fig3"].axes  # of multiplication there are no runs
    assert panel.get_title(loc="right") == "1 to 3 seeds"


def test_curves_come_from_finished_runs_that_got_there_and_keep_their_ends(synthetic) -> None:
    synthetic.run(seeds="0-1", epochs=50)
    synthetic.run(seeds="2", epochs=20, reach=None, final=0.3)
    synthetic.run(seeds="3", epochs=40, reach=None, final=0.3, finished=False)
    synthetic.run(seeds="4", epochs=1000)
    found = collect(synthetic.root, load_paper().setup)
    rows = curves(found, 50, task="add")
    assert sorted(set(rows["seed"])) == [0, 1, 4]
    assert rows["epoch"].max() == 50
    long = curves(found, 1000, task="add")["epoch"].to_numpy()
    assert (long[0], long[-1]) == (1, 1000)
    assert len(long) <= 402
    assert np.diff(long).max() <= 3


def test_everything_is_written(whole_report) -> None:
    out, found, results = whole_report.out, whole_report.found, whole_report.results
    for name in ("claims.md", "claims.csv", "runs.csv", "index.html"):
        assert (out / name).stat().st_size > 1000
    assert len(list((out / "figures").iterdir())) == 20
    runs = pd.read_csv(out / "runs.csv")
    assert len(runs) == len(found.replicas)
    assert {"run", "seed", "val_seq_acc", "device", "torch", "commit", "finished", "departs"} <= set(runs)
    page = (out / "index.html").read_text()
    for verdict in {result.verdict for result in results}:  # the filter counts results alone, not repeated facts
        number = sum(result.verdict == verdict and result.claim.counted for result in results)
        assert f'data-verdict="{verdict}" aria-pressed="false">{verdict}<span>{number}</span>' in page
        assert page.count(f' data-verdict="{verdict}">') == number
    claims = pd.read_csv(out / "claims.csv")
    of_runs = claims[(claims["measured_on"] == "our runs") & (claims["verdict"] == "reproduced")]
    assert of_runs[["low", "high", "method", "device", "torch", "commit"]].notna().all().all()


def test_every_claim_has_a_row_and_what_is_missing_a_command(whole_report) -> None:
    paper, found, verdicts = load_paper(), whole_report.found, whole_report.results
    by_id = {result.claim.id: result for result in verdicts}
    assert by_id["appD-after"].verdict == "differs"
    assert ours_text(by_id["examples"]) == "16,384 examples"
    lacking = [result.claim.id for result in verdicts if result.n == 0 and not result.claim.id.startswith("table3-mul")]
    assert {paper.command(by_id[name].claim.make, RUNS) for name in lacking} <= set(missing(verdicts, paper, RUNS))
    rows = claims_table(verdicts, found, paper, RUNS)
    assert rows["id"].tolist() == [claim.id for claim in paper.claims]
    assert rows.loc[rows["measured_on"] == "our runs", "commit"].all()
    lines = [line for line in markdown(verdicts, paper, RUNS).splitlines() if line.startswith("| ")]
    assert all(line.count(" | ") == 6 for line in lines)
