"""Folders of runs are read in any mix: each run counts once, and a damaged one is named."""

import json
import shutil

import pandas as pd
import pytest

from arith_erd.report.collect import AUTHORS_WEIGHTS, OTHER_WEIGHTS, OUR_RUNS, collect


def test_finished_copy_of_a_replica_in_two_packs_is_preferred(synthetic) -> None:
    unfinished = synthetic.run(seeds="0-4", epochs=25, finished=False)
    finished = synthetic.run(seeds="0", epochs=50)
    assert unfinished.name != finished.name
    found = synthetic.data()
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
def test_damaged_run_is_named_and_the_others_count(synthetic, tmp_path, name: str, text: str | None, says: str) -> None:
    good = synthetic.run(seeds="0")
    bad = synthetic.run("task=mul", seeds="0")
    whole = shutil.copytree(synthetic.root, tmp_path / "copy")
    (bad.path / name).unlink()
    if text is not None:
        (bad.path / name).write_text(text)
    found = synthetic.data()
    assert list(found.problems) == [bad.name]
    assert says in found.problems[bad.name]
    assert "\n" not in found.problems[bad.name]
    assert found.replicas.loc[found.replicas["finished"], "run"].tolist() == [good.name]
    assert bad.name not in synthetic.data(whole).problems or name != "config.yaml"


def test_probes_of_runs_of_tasks_and_of_given_weights_stay_apart(synthetic, tmp_path) -> None:
    run = synthetic.run(seeds="0-1")
    first = shutil.copytree(synthetic.measured(run.path, (0, 1)).parent, run.path / "probes" / "a") / "probe.json"
    path = synthetic.measured(synthetic.root, (0,), "distance_correlation-add").with_name("probe.json")
    synthetic.discontinuity("mul").with_name("figure.png").touch()
    synthetic.probe(synthetic.root, "dataset-mul", pd.DataFrame({"prompt": ["0000011"], "answer": [0]}))
    found = synthetic.data()
    both = synthetic.data(shutil.copytree(synthetic.root, tmp_path / "copy"))
    assert both.pictures == found.pictures
    assert all(both.probes[name].equals(rows) for name, rows in found.probes.items())
    rows = found.probes["distance_correlation"]
    replicas = {OUR_RUNS: [0, 1], AUTHORS_WEIGHTS: [-1]}
    assert rows.groupby("source")["replica"].unique().map(list).to_dict() == replicas
    assert set(rows["task"]) == {"add"}
    assert found.probes["dataset"]["prompt"].tolist() == ["0000011"]  # text, leading zeros and all
    assert set(found.probes["discontinuity"]["task"]) == {"mul"}
    schema = json.loads(path.read_text())
    schema["settings"]["weights"] = {"handcoded": "erd", "seeds": "0"}
    path.write_text(json.dumps(schema))
    shutil.copy(path, first)
    rows = synthetic.data().probes["distance_correlation"]
    assert set(rows.loc[rows["replica"] < 0, "source"]) == {OTHER_WEIGHTS}  # not the authors'
    assert set(rows.loc[rows["replica"] < 0, "unpublished_settings"]) == {"handcoded=erd, seeds=0"}
    assert set(rows.loc[rows["replica"] >= 0, "unpublished_settings"]) == {"", "handcoded=erd, seeds=0"}


@pytest.mark.parametrize("text", [None, '{"name": "x", "columns": {"nowhere": "text"}}'])
def test_probe_without_a_readable_table_or_description_is_named(synthetic, text: str | None) -> None:
    run = synthetic.run(seeds="0")
    synthetic.probe(run.path, "amnesic", pd.DataFrame({"site": ["dec.3"]}))
    description = synthetic.measured(run.path, (0,)).with_name("probe.json")
    description.unlink()
    if text is not None:
        description.write_text(text)
    found = synthetic.data()
    names = ("amnesic", "distance_correlation")
    assert sorted(found.problems) == [f"{run.name}/probes/{name}/rows.csv" for name in names]
    assert found.probes == {}


def test_runs_of_one_name_in_two_folders_are_both_read(synthetic, tmp_path) -> None:
    first, second = synthetic.run(seeds="0"), synthetic.run(seeds="1")
    (tmp_path / "other").mkdir()
    second.path.rename(tmp_path / "other" / first.name)
    data = synthetic.data(tmp_path / "other")
    assert sorted(data.replicas["seed"]) == [0, 1]


@pytest.mark.parametrize("base", [2, 3])
def test_a_setting_that_came_later_has_its_first_value_in_old_runs(synthetic, base: int) -> None:
    synthetic.run(seeds="0")
    data = collect([synthetic.root], {"all": {"task.base": base, "model.net.positions": "sinusoidal"}})
    assert data.replicas["unpublished_settings"].tolist() == ["" if base == 2 else "task.base=2"]
