"""Any mix of run directories: each replica once, the unfinished apart, the damaged named and left out."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest

from arith_erd.plots.sheet import Sheet
from arith_erd.report.collect import GIVEN, OTHER, OURS, Collection, collect
from arith_erd.report.paper import load_paper
from arith_erd.report.tables import probe_tables


def read(runs) -> Collection:
    return collect(runs.root, load_paper().setup)


def test_row_a_seed_with_settings_and_final_numbers(synthetic) -> None:
    synthetic.run("task=mul", "model=nanogpt", seeds="0-1,7", epochs=20, reach=9.0, final=[0.97, 0.98, 0.99])
    found = read(synthetic)
    table = found.replicas
    assert table["seed"].tolist() == [0, 1, 7]
    assert table["val_seq_acc"].tolist() == [0.97, 0.98, 0.99]
    assert set(table["task"]) == {"mul"}
    assert set(table["model"]) == {"nanogpt"}
    assert (table["params"] == 297_600).all()
    assert table["minutes"].tolist() == pytest.approx([25 * 20 / 60] * 3)  # of one replica, not of the pack
    assert len(found.metrics) == 3 * 20
    assert found.problems == {}


def test_replica_in_two_packs_counts_once_in_tables(synthetic) -> None:
    synthetic.run(seeds="0-4")
    synthetic.run(seeds="0")
    synthetic.run(seeds="3-6")
    found = read(synthetic)
    assert sorted(found.replicas["seed"]) == [*range(7)]
    assert found.metrics.groupby("replica").size().tolist() == [50] * 7


def test_finished_copy_of_a_replica_is_preferred(synthetic) -> None:
    unfinished = synthetic.run(seeds="0-4", epochs=25, finished=False)
    finished = synthetic.run(seeds="0", epochs=50)
    assert unfinished.name != finished.name
    found = read(synthetic)
    seed = found.replicas[found.replicas["seed"] == 0]
    assert seed["finished"].tolist() == [True]
    assert seed["run"].tolist() == [finished.name]
    assert len(found.unfinished) == 4


def test_longer_run_of_the_same_replica_is_another_configuration_of_one_trajectory(synthetic) -> None:
    synthetic.run(seeds="0", epochs=50)
    synthetic.run(seeds="0", epochs=150)
    synthetic.run(seeds="0", epochs=50, settings={"model.optimizer.lr": 0.01})
    table = read(synthetic).replicas
    assert len(table) == 3
    assert sorted(table.groupby("trajectory").size()) == [1, 2]


def test_runs_lie_at_any_depth_and_what_lies_inside_one_is_left_alone(synthetic) -> None:
    run = synthetic.run(seeds="0")
    deep = synthetic.root / "cluster" / "node7"
    deep.mkdir(parents=True)
    shutil.move(run.path, deep)
    inside = deep / run.name / "wandb" / "offline-run-1" / "files"
    inside.mkdir(parents=True)
    (inside / "config.yaml").write_text("task:\n  value: add\n")
    found = read(synthetic)
    assert found.replicas["run"].tolist() == [f"cluster/node7/{run.name}"]
    assert found.problems == {}
    itself = collect(deep / run.name, load_paper().setup)
    assert itself.replicas["run"].tolist() == [run.name]


def damage(run, name: str, text: str | None) -> None:
    if text is None:
        (run.path / name).unlink()
    else:
        (run.path / name).write_text(text)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("config.yaml", None, "config.yaml"),
        ("config.yaml", "{", "config.yaml"),
        ("config.yaml", "seed: 0\n", "config.yaml: not that of a run"),
        ("config.yaml", "\x00\xff", "config.yaml"),
        ("metrics.csv", "epoch,seed\n1,0\n", "metrics.csv: not the columns"),
        ("metrics.csv", "not, a\n table", "metrics.csv"),
        ("metrics.csv", None, "summary.json: not that of a finished run (metrics.csv does not hold"),
        ("summary.json", "{", "summary.json"),
        ("summary.json", "[]", "summary.json"),
        ("summary.json", '{"seeds": [{"seed": 0, "val_mae": "none"}]}', "summary.json"),
    ],
)
def test_damaged_run_is_named_and_the_others_count(synthetic, name: str, text: str | None, says: str) -> None:
    good = synthetic.run(seeds="0")
    bad = synthetic.run("task=mul", seeds="0")
    damage(bad, name, text)
    found = read(synthetic)
    assert list(found.problems) == [bad.name]
    assert says in found.problems[bad.name]
    assert "\n" not in found.problems[bad.name]
    assert found.replicas.loc[found.replicas["finished"], "run"].tolist() == [good.name]


def test_accuracy_above_one_is_damage(synthetic) -> None:
    run = synthetic.run(seeds="0", epochs=3, reach=None, final=0.5)
    text = (run.path / "metrics.csv").read_text().splitlines()
    text[2] = text[2].replace(text[2].split(",")[4], "51.2")
    (run.path / "metrics.csv").write_text("\n".join(text))
    assert "no fraction from 0 to 1" in read(synthetic).problems[run.name]


def test_truncated_line_loses_only_that_line(synthetic) -> None:
    run = synthetic.run(seeds="0", epochs=9, finished=False)
    with (run.path / "metrics.csv").open("a") as file:
        file.write("10,0,0.5,0.6")
    found = read(synthetic)
    assert found.problems == {}
    assert found.replicas["epochs"].tolist() == [9]
    assert found.metrics["epoch"].max() == 9


def test_run_before_its_first_epoch_is_unfinished(synthetic) -> None:
    run = synthetic.run(seeds="0-1", epochs=2, finished=False)
    (run.path / "metrics.csv").unlink()
    found = read(synthetic)
    assert found.unfinished["epochs"].tolist() == [0, 0]
    assert found.metrics.empty


def test_summary_of_other_seeds_is_damage(synthetic) -> None:
    run = synthetic.run(seeds="0-2")
    summary = run.summary()
    summary["seeds"] = summary["seeds"][:2]
    (run.path / "summary.json").write_text(json.dumps(summary))
    found = read(synthetic)
    assert "seeds" in found.problems[run.name]
    assert len(found.unfinished) == 3


def test_probes_of_runs_of_tasks_and_of_given_weights_stay_apart(synthetic) -> None:
    run = synthetic.run(seeds="0-1")
    synthetic.correlations(run.path, (0, 1))
    synthetic.correlations(synthetic.root, (0,), "distance_correlation-add")
    synthetic.tables("mul")
    found = read(synthetic)
    rows = found.probes["distance_correlation"]
    assert rows.groupby("source")["replica"].unique().map(list).to_dict() == {OURS: [0, 1], GIVEN: [-1]}
    assert set(rows["task"]) == {"add"}
    assert found.probes["dataset"]["prompt"].str.len().unique().tolist() == [15]  # text, leading zeros and all
    assert set(found.probes["discontinuity"]["task"]) == {"mul"}


def test_reference_is_not_taken_for_the_authors_weights(synthetic) -> None:
    description = synthetic.correlations(synthetic.root, (0,), "distance_correlation-add").with_name("probe.json")
    sheet = json.loads(description.read_text())
    sheet["settings"]["weights"] = {"reference": "erd", "seeds": "0"}
    description.write_text(json.dumps(sheet))
    rows = read(synthetic).probes["distance_correlation"]
    assert set(rows["source"]) == {OTHER}
    assert set(rows["departs"]) == {"reference=erd, seeds=0"}


def test_replica_in_two_probed_packs_counts_once(synthetic) -> None:
    for seeds in ("0-2", "2-4"):
        run = synthetic.run(seeds=seeds)
        numbers = range(3) if seeds == "0-2" else range(2, 5)
        synthetic.correlations(run.path, numbers)
    rows = read(synthetic).probes["distance_correlation"]
    assert rows.groupby("seed").size().nunique() == 1
    assert sorted(rows["seed"].unique()) == [*range(5)]


def test_unreadable_probe_table_is_named(synthetic) -> None:
    run = synthetic.run(seeds="0")
    synthetic.probe(run.path, "amnesic", pd.DataFrame({"site": ["dec.3"]}))
    empty = synthetic.probe(run.path, "errors", pd.DataFrame({"seed": [0]}))
    empty.write_text("")
    found = read(synthetic)
    assert sorted(found.problems) == sorted(f"{run.name}/probes/{name}/rows.csv" for name in ("amnesic", "errors"))
    assert found.probes == {}


def mutated(text: bytes, rng: np.random.Generator) -> bytes:
    """A few bytes lost, doubled or changed, or the end cut off."""
    at, length = int(rng.integers(len(text))), int(rng.integers(1, 40))
    other = bytes(rng.integers(0, 256, 3, dtype=np.uint8))
    kinds = (
        text[:at],
        text[:at] + text[at + length :],
        text[: at + length] + text[at:],
        text[:at] + other + text[at + 3 :],
    )
    return kinds[rng.integers(len(kinds))]


def test_unreadable_bytes_do_not_hide_the_rest(synthetic) -> None:
    good = synthetic.run(seeds="0", epochs=5, reach=None, final=0.5)
    bad = synthetic.run("task=mul", seeds="0-1", epochs=5, reach=None, final=0.5)
    synthetic.erasures(bad.path, (0, 1))
    files = {path: path.read_bytes() for path in bad.path.rglob("*") if path.is_file()}
    rng = np.random.default_rng(0)
    for _ in range(12):
        path = [*files][rng.integers(len(files))]
        path.write_bytes(mutated(files[path], rng))
        found = read(synthetic)
        assert good.name in set(found.replicas["run"])
        assert set(found.problems) <= {bad.name, f"{bad.name}/probes/amnesic/rows.csv"}
        assert not any("\n" in problem for problem in found.problems.values())
        path.write_bytes(files[path])


def test_empty_folder_is_an_empty_collection(synthetic) -> None:
    found = read(synthetic)
    assert found.replicas.empty
    assert found.metrics.empty
    assert found.probes == {}
    assert found.problems == {}


def test_run_without_validation_examples_is_finished(synthetic) -> None:
    run = synthetic.run(seeds="0-1", epochs=5, reach=None, final=0.5)
    rows = pd.read_csv(run.path / "metrics.csv").assign(val_seq_acc=np.nan, val_token_acc=np.nan)
    rows.to_csv(run.path / "metrics.csv", index=False, na_rep="nan")
    found = read(synthetic)
    assert found.problems == {}
    assert found.unfinished.empty


def test_unpublished_model_is_named_without_paper_numbers(synthetic) -> None:
    synthetic.run(seeds="0", settings={"model": {"name": "mlp", "net": {}, "optimizer": {}}, "model.name": "nanogpt"})
    config_file = next(synthetic.root.glob("*/config.yaml"))
    config_file.write_text(config_file.read_text().replace("name: nanogpt", "name: mlp"))
    assert read(synthetic).replicas["departs"].tolist() == ["model=mlp"]


def test_probe_tables_pool_the_seeds_of_one_experiment_only(synthetic) -> None:
    for epochs in (20, 50):
        run = synthetic.run(seeds="0-2", epochs=epochs, reach=15.0)
        synthetic.correlations(run.path, range(3))
    synthetic.correlations(synthetic.run(seeds="3-4", epochs=50, reach=15.0).path, (3, 4))
    tables = probe_tables(read(synthetic))
    assert sorted((table.title, table.note.split(" and")[0]) for table in tables) == [
        ("distance correlation: addition, transformer, 20 epochs", "mean of 3 seeds"),
        ("distance correlation: addition, transformer, 50 epochs", "mean of 5 seeds"),
    ]
    assert [*tables[0].cells][-4:] == ["in token", "in value", "out token", "out value"]


def test_rows_without_a_description_are_read_by_their_own_columns(synthetic) -> None:
    """What versions before ``probe.json`` left, and leading zeros in it."""
    run = synthetic.run(seeds="0-1")
    (synthetic.correlations(run.path, (0, 1)).parent / "probe.json").unlink()
    synthetic.tables("add")
    (synthetic.root / "probes" / "dataset-add-random" / "probe.json").unlink()
    found = read(synthetic)
    assert found.problems == {}
    assert set(found.probes["distance_correlation"]["departs"]) == {""}  # the run recorded its settings
    assert set(found.probes["dataset"]["completion"].str.len()) == {8}
    assert len(probe_tables(found)) == 3


def test_users_own_probe_gets_a_table(synthetic) -> None:
    run = synthetic.run(seeds="0-2")
    rows = pd.DataFrame({"seed": [0, 1, 2], "site": "dec.1", "share": [0.5, 0.6, 0.7]})
    target = run.path / "probes" / "mine"
    target.mkdir(parents=True)
    rows.to_csv(target / "rows.csv", index=False)
    (target / "probe.json").write_text(Sheet.of("mine", rows, {"share": "accuracy"}).to_json())
    (table,) = probe_tables(read(synthetic))
    assert table.cells.to_dict("records") == [{"site": "dec.1", "share": "60.0% [35.2, 84.8]"}]


@pytest.mark.parametrize("text", ["{", "[]", '{"name": "x"}', '{"name": "x", "columns": {"nowhere": "text"}}'])
def test_damaged_description_is_named(synthetic, text: str) -> None:
    run = synthetic.run(seeds="0")
    path = synthetic.correlations(run.path, (0,))
    path.with_name("probe.json").write_text(text)
    found = read(synthetic)
    assert list(found.problems) == [f"{run.name}/probes/distance_correlation/rows.csv"]
    assert found.probes == {}
