"""``results/``: every number follows from the rows there, and its report has every claim and figure of the paper."""

from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from arith_erd.report.__main__ import build
from arith_erd.report.claims import evaluate_claims, missing_commands
from arith_erd.report.claims_file import CLAIMS, PaperFigure, load_paper
from arith_erd.report.collect import collect
from arith_erd.report.figures import curve_rows, paper_figures
from arith_erd.report.page import (
    claims_table,
    experiment_text,
    markdown,
    replicas_table,
    shared_settings,
)
from tests.unit.report.conftest import Synthetic

RUNS = Path("runs")
PAPERS = ("fig1", "fig2", "fig3", "fig4", "table3", "appendixA", "figC6", "appendixD", "figE7", "figE8")


@pytest.fixture(scope="module")
def whole_report(root: Path, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """The report of ``results/`` and of made-up runs for what is missing there, and its figures. For reading only."""
    out, made = tmp_path_factory.mktemp("report"), Synthetic(tmp_path_factory.mktemp("made") / "runs")
    made.run("task=random_output", seeds="0-2", epochs=1000, every=10, reach=None, final=0.004, train_final=0.3)
    made.run("task.prompt_order=plain", "task.completion_order=plain", epochs=150, reach=110.0)
    made.run("task.prompt_order=plain", epochs=150, reach=41.0)
    figures: dict[str, Figure | None] = {}

    def kept(*given: Any) -> Iterator[tuple[PaperFigure, Figure | None]]:
        for spec, figure in paper_figures(*given):
            figures[spec.name] = figure
            yield spec, figure

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("arith_erd.report.__main__.paper_figures", kept)
        found, results = build([root / "paper" / "results" / "runs", made.root], out, runs_name=Path("runs"))
    return SimpleNamespace(found=found, results=results, figures=figures, out=out)


@pytest.mark.slow
def test_every_figure_is_there_and_light_and_has_the_papers_numbers(whole_report) -> None:
    drawn = whole_report.figures
    assert tuple(drawn) == PAPERS
    sizes = [file.stat().st_size for file in (whole_report.out / "figures").iterdir()]
    assert len(sizes) == 20
    assert 5_000 < min(sizes) < max(sizes) < 300_000
    for ax, numbers in zip(drawn["fig3"].axes, ((1.0, 1.0, 0.937), (0.989, 0.975, 0.943)), strict=True):
        assert [line.get_ydata()[0] for line in ax.lines if line.get_marker() == "D"] == list(numbers)
    never = {text.get_text() for ax in drawn["table3"].axes for text in ax.texts}
    assert {"2.4%", "1.8%", "0.9%", "1.7%"} <= never
    assert "27.9" in {text.get_text() for text in drawn["appendixA"].axes[0].texts}


@pytest.mark.slow
def test_line_is_the_median_over_seeds_of_the_papers_settings(synthetic) -> None:
    synthetic.run(seeds="0-2", final=[0.96, 1.0, 0.98])
    synthetic.run(seeds="3", settings={"model.net.dropout": 0.5}, reach=None, final=0.1)  # unpublished: not drawn
    synthetic.run("split=vs_v", seeds="0")
    paper = load_paper()
    paper = paper.model_copy(update={"figures": [spec for spec in paper.figures if spec.name in ("fig1", "fig3")]})
    found = synthetic.data()
    figures = {spec.name: figure for spec, figure in paper_figures(paper, found, evaluate_claims(paper, found))}
    line = next(line for line in figures["fig1"].axes[0].lines if line.get_label() == "validation")
    assert line.get_ydata()[-1] == pytest.approx(0.98)
    (panel,) = figures["fig3"].axes  # of multiplication there are no runs
    assert {"random split (seeds: 3)", "VSᵥ (seeds: 1)"} <= {line.get_label() for line in panel.lines}


def test_settings_of_all_experiments_are_said_once(synthetic) -> None:
    for seed, own in enumerate(({"model.net.num_layers": 2}, {"model.net.num_layers": 3}, {})):
        synthetic.run(seeds=str(seed), settings={"model.net.dropout": 0.5} | own)
    replicas = synthetic.data().replicas
    assert shared_settings(replicas) == ["model.net.dropout=0.5"]
    texts = {experiment_text(row, shared_settings(replicas)) for _, row in replicas.iterrows()}
    layers = (" (model.net.num_layers=2)", " (model.net.num_layers=3)", "")
    assert texts == {f"addition, transformer{own}" for own in layers}
    assert shared_settings(replicas[:1]) == []  # of one experiment nothing is shared


def test_curves_come_from_finished_runs_that_got_there_and_keep_their_ends(synthetic) -> None:
    synthetic.run(seeds="0-1", epochs=50)
    synthetic.run(seeds="2", epochs=20, reach=None, final=0.3)
    synthetic.run(seeds="3", epochs=40, reach=None, final=0.3, finished=False)
    synthetic.run(seeds="4", epochs=1000)
    found = synthetic.data()
    rows = curve_rows(found, 50, task="add")
    assert sorted(set(rows["seed"])) == [0, 1, 4]
    assert rows["epoch"].max() == 50
    long = curve_rows(found, 1000, task="add")["epoch"].to_numpy()
    assert (long[0], long[-1]) == (1, 1000)
    assert len(long) <= 402
    assert np.diff(long).max() <= 3


@pytest.mark.slow
def test_tables_and_page_are_written_and_the_page_counts_verdicts(whole_report) -> None:
    out, results = whole_report.out, whole_report.results
    assert len(pd.read_csv(out / "runs.csv")) == len(whole_report.found.replicas)
    page = (out / "index.html").read_text()
    for verdict in {result.verdict for result in results}:  # the filter counts results alone, not repeated facts
        number = sum(result.verdict == verdict and result.claim.counted for result in results)
        assert f'data-verdict="{verdict}" aria-pressed="false">{verdict}<span>{number}</span>' in page
        assert page.count(f' data-verdict="{verdict}">') == number


@pytest.mark.slow
def test_claim_without_data_has_a_command(whole_report) -> None:
    paper, verdicts = load_paper(), whole_report.results
    lacking = [r.claim for r in verdicts if r.num_seeds == 0 and not r.claim.id.startswith("table3-mul")]
    commands = {paper.command(claim.make, RUNS) for claim in lacking}
    assert commands <= set(missing_commands(verdicts, paper, RUNS))


@pytest.mark.slow
@pytest.mark.parametrize(("folder", "file"), [(".", "claims"), ("mini", "mini")])
def test_claims_and_runs_follow_from_the_rows_in_results(root: Path, folder: str, file: str) -> None:
    """``python -m arith_erd.paper.publish`` writes them anew; sums may differ in the last digit on another CPU."""
    paper, results = load_paper(CLAIMS.with_name(f"{file}.yaml")), root / "paper" / "results" / folder
    found = collect([path for name in ("runs", "older") if (path := results / name).is_dir()], paper.setup)
    assert found.problems == {}
    verdicts = evaluate_claims(paper, found)
    ours = pd.read_csv(StringIO(claims_table(verdicts, found, paper, RUNS).to_csv(index=False)))
    pd.testing.assert_frame_equal(ours, pd.read_csv(results / "claims.csv"), rtol=1e-12)
    assert markdown(verdicts, paper, RUNS) == (results / "claims.md").read_text()
    assert replicas_table(found).to_csv(index=False, float_format="%.9g") == (results / "runs.csv").read_text()
    assert found.replicas["device"].str.contains("thread|NVIDIA").all()  # the number of threads is on record
