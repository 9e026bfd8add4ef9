"""Every figure of the paper comes out of runs, light enough to commit, and shows what the runs say."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from arith_erd.report.claims import evaluate
from arith_erd.report.collect import Collection, collect
from arith_erd.report.figures import DRAW, curves, paper_figures
from arith_erd.report.paper import load_paper

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
