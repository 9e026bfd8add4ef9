"""Any mix of run directories: each replica once, the unfinished apart, the damaged named and left out."""

import json

import pandas as pd
import pytest

from arith_erd.report.collect import AUTHORS, OTHER, OURS, Collection, collect
from arith_erd.report.paper import load_paper
from arith_erd.report.tables import probe_tables


def read(runs) -> Collection:
    return collect(runs.root, load_paper().setup)


def test_finished_copy_of_a_replica_in_two_packs_is_preferred(synthetic) -> None:
    unfinished = synthetic.run(seeds="0-4", epochs=25, finished=False)
    finished = synthetic.run(seeds="0", epochs=50)
    assert unfinished.name != finished.name
    found = read(synthetic)
    assert sorted(found.replicas["seed"]) == [*range(5)]
    seed = found.replicas[found.replicas["seed"] == 0]
    assert seed["run"].tolist() == [finished.name]
    assert (~found.replicas["finished"]).sum() == 4


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("config.yaml", "seed: 0\n", "config.yaml: not that of a run"),
        ("metrics.csv", None, "summary.json: not that of a finished run (metrics.csv does not hold"),
        ("summary.json", '{"seeds": [{"seed": 0, "val_mae": "none"}]}', "summary.json"),
    ],
)
def test_damaged_run_is_named_and_the_others_count(synthetic, name: str, text: str | None, says: str) -> None:
    good = synthetic.run(seeds="0")
    bad = synthetic.run("task=mul", seeds="0")
    (bad.path / name).unlink()
    if text is not None:
        (bad.path / name).write_text(text)
    found = read(synthetic)
    assert list(found.problems) == [bad.name]
    assert says in found.problems[bad.name]
    assert "\n" not in found.problems[bad.name]
    assert found.replicas.loc[found.replicas["finished"], "run"].tolist() == [good.name]


def test_probes_of_runs_of_tasks_and_of_given_weights_stay_apart(synthetic) -> None:
    run = synthetic.run(seeds="0-1")
    synthetic.correlations(run.path, (0, 1))
    path = synthetic.correlations(synthetic.root, (0,), "distance_correlation-add").with_name("probe.json")
    synthetic.discontinuity("mul")
    synthetic.probe(synthetic.root, "dataset-mul", pd.DataFrame({"prompt": ["0000011"], "answer": [0]}))
    found = read(synthetic)
    rows = found.probes["distance_correlation"]
    assert rows.groupby("source")["replica"].unique().map(list).to_dict() == {OURS: [0, 1], AUTHORS: [-1]}
    assert set(rows["task"]) == {"add"}
    assert found.probes["dataset"]["prompt"].tolist() == ["0000011"]  # text, leading zeros and all
    assert set(found.probes["discontinuity"]["task"]) == {"mul"}
    sheet = json.loads(path.read_text())
    sheet["settings"]["weights"] = {"reference": "erd", "seeds": "0"}
    path.write_text(json.dumps(sheet))
    rows = read(synthetic).probes["distance_correlation"]
    assert set(rows.loc[rows["replica"] < 0, "source"]) == {OTHER}  # no longer taken for the authors' weights
    assert set(rows.loc[rows["replica"] < 0, "departs"]) == {"reference=erd, seeds=0"}


@pytest.mark.parametrize("text", [None, '{"name": "x", "columns": {"nowhere": "text"}}'])
def test_probe_without_a_readable_table_or_description_is_named(synthetic, text: str | None) -> None:
    run = synthetic.run(seeds="0")
    synthetic.probe(run.path, "amnesic", pd.DataFrame({"site": ["dec.3"]}))
    description = synthetic.correlations(run.path, (0,)).with_name("probe.json")
    description.unlink()
    if text is not None:
        description.write_text(text)
    found = read(synthetic)
    names = ("amnesic", "distance_correlation")
    assert sorted(found.problems) == [f"{run.name}/probes/{name}/rows.csv" for name in names]
    assert found.probes == {}


def test_probe_tables_pool_the_seeds_of_one_experiment_only(synthetic) -> None:
    for epochs in (20, 50):
        run = synthetic.run(seeds="0-2", epochs=epochs, reach=15.0)
        synthetic.correlations(run.path, range(3))
    synthetic.correlations(synthetic.run(seeds="2-4", epochs=50, reach=15.0).path, (2, 3, 4))
    found = read(synthetic)
    rows, tables = found.probes["distance_correlation"], probe_tables(found)
    assert rows.groupby(["experiment", "seed"]).size().nunique() == 1  # seed 2 counts once
    assert sorted((table.title, table.note.split(" and")[0]) for table in tables) == [
        ("distance correlation: addition, transformer, 20 epochs", "mean of 3 seeds"),
        ("distance correlation: addition, transformer, 50 epochs", "mean of 5 seeds"),
    ]
    assert [*tables[0].cells][-4:] == ["in token", "in value", "out token", "out value"]
