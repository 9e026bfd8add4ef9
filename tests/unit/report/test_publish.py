"""``results/``: every number there, and in the tables made from it, follows from the rows committed with it."""

import json
from pathlib import Path

import pytest

from arith_erd.interp.loading import pretrained
from arith_erd.report import publish
from arith_erd.report.claims import evaluate
from arith_erd.report.collect import collect
from arith_erd.report.page import markdown
from arith_erd.report.paper import load_paper
from arith_erd.report.publish import between, blocks, keep, main
from arith_erd.report.tables import claims_table, replicas_table, spreadsheet

RUNS = Path("runs")


@pytest.fixture(scope="module")
def recomputed(root: Path):
    paper = load_paper()
    found = collect([root / "results" / name for name in ("runs", "older")], paper.setup)
    assert found.problems == {}
    return found, evaluate(paper, found), paper


def test_claims_follow_from_the_rows_in_results(recomputed, root: Path) -> None:
    """``python -m arith_erd.report.publish`` writes them anew."""
    found, results, paper = recomputed
    table = spreadsheet(claims_table(results, found, paper, RUNS))
    assert table == (root / "results" / "claims.csv").read_text()
    assert markdown(results, paper, RUNS) == (root / "results" / "claims.md").read_text()


def test_runs_csv_follows_from_the_summaries_in_results(recomputed, root: Path) -> None:
    found, _, _ = recomputed
    text = spreadsheet(replicas_table(found), float_format="%.9g")
    assert text == (root / "results" / "runs.csv").read_text()
    assert found.replicas["device"].str.contains("thread|NVIDIA").all()  # the number of threads is on record


def test_tables_in_the_documents_are_those_of_results(root: Path) -> None:
    for path, name, block in blocks(root / "results"):
        found = between(path.read_text(), name)
        assert found, f"{path.name} has no markers"
        assert found[0] == block, f"{path.name}: python -m arith_erd.report.publish"


def test_no_verdict_in_results_comes_from_fewer_than_three_seeds(recomputed) -> None:
    _, results, _ = recomputed
    for result in results:
        if result.verdict in ("reproduced", "differs"):
            assert result.exact or result.n >= 3


def test_finished_runs_are_kept_with_weights_and_without_paths(synthetic, tmp_path: Path) -> None:
    run, results = synthetic.run(seeds="0-2"), tmp_path / "results"
    half = synthetic.run("task=mul", seeds="0", epochs=5, reach=None, final=0.1, finished=False)
    synthetic.correlations(run.path, range(3))
    run.weights(0).write_bytes(b"0" * 100)
    assert keep(synthetic.root, results) == [run.name]
    kept = {str(path.relative_to(results / "runs")) for path in (results / "runs").rglob("*") if path.is_file()}
    probe = f"{run.name}/probes/distance_correlation"
    seeds = {f"weights/seed={seed}.safetensors" for seed in range(3) if run.weights(seed).is_file()}
    names = {f"{run.name}/{name}" for name in ("config.yaml", "metrics.csv", "summary.json", *seeds)}
    assert kept == names | {f"{probe}/rows.csv", f"{probe}/probe.json"}
    assert str(synthetic.root) not in (results / "runs" / run.name / "config.yaml").read_text()
    assert half.name not in str(kept)
    assert collect(results / "runs", load_paper().setup).replicas["run"].tolist() == [run.name] * 3


def test_weights_of_other_settings_make_room_for_seed_0_and_the_random_split(synthetic, tmp_path, monkeypatch) -> None:
    for split in ("random", "vs_v"):
        run = synthetic.run(f"split={split}", seeds="0-2")
        for seed in range(3):
            run.weights(seed).parent.mkdir(exist_ok=True)
            run.weights(seed).write_bytes(b"0" * 100)
    monkeypatch.setattr(publish, "BOX", 400)
    keep(synthetic.root, tmp_path / "results")
    kept = sorted((tmp_path / "results" / "runs").glob("*/weights/*"))
    assert [(path.parts[-3].split("-")[1], path.stem) for path in kept] == [
        ("random", "seed=0"),
        ("random", "seed=1"),
        ("random", "seed=2"),
        ("vs_v", "seed=0"),
    ]
    assert {name: [*seeds] for name, seeds in pretrained(tmp_path / "results" / "runs").items()} == {
        "add-transformer": [0, 1, 2],
        "add-vs_v-transformer": [0],
    }


def test_seed_in_the_first_folder_replaces_that_of_an_older_commit(synthetic, synthetic_in, tmp_path: Path) -> None:
    older = synthetic_in(tmp_path / "older")
    pack = older.run(seeds="0-2", reach=45.0)
    summary = json.loads((pack.path / "summary.json").read_text())
    summary["versions"]["commit"] = "0000000"
    (pack.path / "summary.json").write_text(json.dumps(summary))
    synthetic.run(seeds="1", reach=30.0)
    found = collect([synthetic.root, older.root], load_paper().setup)
    commits = found.replicas.set_index("seed")["commit"].to_dict()
    assert commits == {0: "0000000", 1: "abc1234", 2: "0000000"}
    assert found.metrics.groupby("replica").size().tolist() == [50] * 3


def test_publishing_writes_tables_figures_and_blocks(synthetic, tmp_path: Path) -> None:
    synthetic.run(seeds="0-4")
    (tmp_path / "README.md").write_text("above\n<!-- results:begin -->\nold\n<!-- results:end -->\nbelow\n")
    results = tmp_path / "results"
    results.mkdir()
    main([str(synthetic.root), f"--results={results}"])
    assert {"claims.csv", "claims.md", "runs.csv", "fig1.png", "runs"} <= {path.name for path in results.iterdir()}
    text = (tmp_path / "README.md").read_text()
    assert text.startswith("above\n<!-- results:begin -->\nOf ")
    assert "| 39 epochs | 39 epochs [39, 39] | 5 | reproduced |" in text
    assert text.endswith("<!-- results:end -->\nbelow\n")


def test_missing_folder_is_one_line(tmp_path: Path, capsys) -> None:
    with pytest.raises(SystemExit, match="1"):
        main([str(tmp_path / "nowhere"), f"--results={tmp_path}"])
    assert capsys.readouterr().err.count("\n") == 1
