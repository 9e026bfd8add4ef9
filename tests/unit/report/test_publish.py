"""``results/``: every number there, and in the tables made from it, follows from the rows committed with it."""

from io import StringIO
from pathlib import Path

import pandas as pd
import pytest

from arith_erd.report.claims import evaluate
from arith_erd.report.collect import collect
from arith_erd.report.page import markdown
from arith_erd.report.paper import MINI, PAPER, load_paper
from arith_erd.report.publish import WEIGHTS, copy_runs
from arith_erd.report.tables import claims_table, replicas_table

RUNS = Path("runs")


@pytest.mark.parametrize(("folder", "file"), [pytest.param(".", PAPER, marks=pytest.mark.slow), ("mini", MINI)])
def test_claims_and_runs_follow_from_the_rows_in_results(root: Path, folder: str, file: Path) -> None:
    """``python -P -m arith_erd.report.publish`` writes them anew; sums may differ in the last digit on another CPU."""
    paper, results = load_paper(file), root / "results" / folder
    found = collect([path for name in ("runs", "older") if (path := results / name).is_dir()], paper.setup)
    assert found.problems == {}
    verdicts = evaluate(paper, found)
    ours = pd.read_csv(StringIO(claims_table(verdicts, found, paper, RUNS).to_csv(index=False)))
    pd.testing.assert_frame_equal(ours, pd.read_csv(results / "claims.csv"), rtol=1e-12)
    assert markdown(verdicts, paper, RUNS) == (results / "claims.md").read_text()
    assert replicas_table(found).to_csv(index=False, float_format="%.9g") == (results / "runs.csv").read_text()
    assert found.replicas["device"].str.contains("thread|NVIDIA").all()  # the number of threads is on record


def test_finished_runs_are_kept_with_the_weights_of_seed_0_and_without_paths(synthetic, tmp_path: Path) -> None:
    run, results = synthetic.run(seeds="0-2"), tmp_path / "results"
    synthetic.run("task=mul", seeds="0", epochs=5, reach=None, final=0.1, finished=False)
    synthetic.correlations(run.path, range(3))
    for seed in (0, 1):
        run.weights(seed).parent.mkdir(exist_ok=True)
        run.weights(seed).write_bytes(b"0" * 100)
    assert copy_runs(synthetic.root, results, WEIGHTS) == [run.name]
    kept = {str(path.relative_to(results / "runs")) for path in (results / "runs").rglob("*") if path.is_file()}
    files = ("config.yaml", "metrics.csv", "summary.json", "weights/seed=0.safetensors")
    probe = [f"probes/distance_correlation/{name}" for name in ("rows.csv", "probe.json")]
    assert kept == {f"{run.name}/{name}" for name in (*files, *probe)}
    assert str(synthetic.root) not in (results / "runs" / run.name / "config.yaml").read_text()
    assert collect(results / "runs", load_paper().setup).replicas["run"].tolist() == [run.name] * 3
