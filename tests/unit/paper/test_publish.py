"""What `arith_erd.paper.publish` copies to the results."""

from arith_erd.paper.publish import WEIGHTS, copy_runs
from arith_erd.report.claims_file import load_paper
from arith_erd.report.collect import collect
from tests.unit.report.conftest import Synthetic


def test_finished_runs_are_kept_with_the_weights_of_seed_0_and_without_paths(tmp_path):
    synthetic = Synthetic(tmp_path / "runs")
    run, results = synthetic.run(seeds="0-2"), tmp_path / "results"
    synthetic.run("task=mul", seeds="0", epochs=5, reach=None, final=0.1, finished=False)
    synthetic.measured(run.path, range(3))
    for seed in (0, 1):
        run.weights_file(seed).parent.mkdir(exist_ok=True)
        run.weights_file(seed).write_bytes(b"0" * 100)
    assert copy_runs(synthetic.root, results, WEIGHTS) == [run.name]
    kept = {str(path.relative_to(results / "runs")) for path in (results / "runs").rglob("*") if path.is_file()}
    files = ("config.yaml", "metrics.csv", "summary.json", "weights/seed=0.safetensors")
    probe = [f"probes/distance_correlation/{name}" for name in ("rows.csv", "probe.json")]
    assert kept == {f"{run.name}/{name}" for name in (*files, *probe)}
    assert str(synthetic.root) not in (results / "runs" / run.name / "config.yaml").read_text()
    assert collect([results / "runs"], load_paper().setup).replicas["run"].tolist() == [run.name] * 3
