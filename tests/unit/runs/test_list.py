"""``arith-runs``: what runs there are; a damaged folder is one line of the list, and ends nothing."""

import json

import pytest

from arith_erd.errors import UserError
from arith_erd.runs import METRICS, Run
from arith_erd.runs.__main__ import age, list_runs, main
from arith_erd.system import lock


def begun(folder, name: str, config, **accuracies: float) -> Run:
    """A run with one epoch behind it; ``seed0=0.5`` is an accuracy."""
    run = Run(folder / name)
    run.create(config)
    blank = dict.fromkeys(METRICS, 0.0) | {"epoch": 1}
    run.write_metrics(blank | {"seed": int(name[4:]), "val_seq_acc": x} for name, x in accuracies.items())
    return run


@pytest.fixture
def folder(tmp_path, config):
    done = begun(tmp_path, "done", config, seed0=1.0, seed1=0.5)
    done.weights(0).touch()
    done.finish({"seeds": [{"seed": 0}], "device": "a card"})
    begun(tmp_path, "failed", config).error.write_text("no")
    begun(tmp_path, "stopped", config, seed0=0.25)
    (tmp_path / "other").mkdir()
    (begun(tmp_path, "bad", config).path / "config.yaml").write_text("[")
    (begun(tmp_path, "worse", config).path / "metrics.csv").write_bytes(b"\xff\n\xff\n")
    begun(tmp_path, "odd", config | {"trainer": None})
    return tmp_path


def test_list_says_state_epochs_accuracy_and_device(folder):
    found = list_runs(str(folder)).set_index("run")
    assert found["state"].to_dict() == {
        **dict.fromkeys(("bad", "odd", "worse"), "unreadable"),
        **{name: name for name in ("failed", "stopped")},
        "done": "finished",
    }
    assert found.loc["done", ["epochs", "max_epochs", "val_seq_acc", "worst", "device"]].to_list() == [
        *(1, 50, 0.75, 0.5, "a card")
    ]
    with lock.holding(folder / "stopped"):
        assert list_runs(f"{folder}/st*")["state"].to_list() == ["training"]


def test_list_is_sorted_by_any_heading_with_the_unknown_last(folder):
    for heading in ("val_seq_acc", "accuracy"):
        assert list_runs(str(folder), heading, reverse=True)["run"].to_list()[:2] == ["done", "stopped"]
    assert list_runs(str(folder))["run"].to_list() == ["bad", "done", "failed", "odd", "stopped", "worse"]
    with pytest.raises(UserError, match=r"^--sort=loss: expected one of run, state, .*accuracy$"):
        list_runs(str(folder), "loss")


def test_folder_whose_name_would_be_a_pattern_is_listed(tmp_path, config):
    (tmp_path / "runs[1]").mkdir()
    begun(tmp_path / "runs[1]", "some", config, seed0=0.5)
    assert list_runs(str(tmp_path / "runs[1]"))["run"].to_list() == ["some"]


def test_run_that_is_being_replaced_is_listed_beside_the_new_one(folder, config):
    Run(folder / "done").set_aside()
    begun(folder, "done", config, seed0=0.125)
    found = list_runs(f"{folder}/do*")
    assert sorted(zip(found["state"], found["val_seq_acc"], strict=True)) == [("replaced", 0.75), ("stopped", 0.125)]


@pytest.mark.parametrize("form", [[], ["--csv"], ["--json"]])
def test_list_is_printed_with_whole_names(folder, form, config, monkeypatch, capsys):
    long = f"add-random-transformer-none-{'x' * 90}-seed0-4-1f0c2d3e"
    begun(folder, long, config, seed0=0.75)
    monkeypatch.setattr("sys.argv", ["runs", str(folder), *form])
    monkeypatch.setenv("COLUMNS", "80")
    main()
    out = capsys.readouterr().out
    assert long in out
    assert out.endswith("\n")
    if form == ["--json"]:
        assert {run["run"]: run["val_seq_acc"] for run in json.loads(out)}["done"] == 0.75
    if not form:
        lines = out.splitlines()
        assert lines[0].split() == ["epochs", "accuracy", "worst", "age", "state", "device", "run"]
        assert {line.rindex(line.split()[-1]) for line in lines} == {lines[0].index("run")}


def test_folder_without_runs_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["runs", str(tmp_path)])
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().err.startswith(f"error: {tmp_path}: no run there; expected a folder of runs")


def test_ages_have_one_unit():
    assert [age(x) for x in (3, 90, 7300, 864000)] == ["3 s", "2 min", "2 h", "10 d"]
