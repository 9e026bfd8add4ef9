"""The list of runs, and what is said of a finished run of other code."""

import json

import pytest

from arith_erd.errors import UserError
from arith_erd.runs import METRICS, Run
from arith_erd.runs.__main__ import age, main
from arith_erd.runs.kept import Keep
from arith_erd.runs.listing import list_runs
from arith_erd.runs.provenance import skipped
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
    return tmp_path


def test_folder_whose_name_would_be_a_pattern_is_listed(tmp_path, config):
    (tmp_path / "runs[1]").mkdir()
    begun(tmp_path / "runs[1]", "some", config, seed0=0.5)
    assert [run.run for run in list_runs(str(tmp_path / "runs[1]"))] == ["some"]


def test_list_says_state_epochs_accuracy_and_device(folder):
    found = {run.run: run for run in list_runs(str(folder))}
    assert {name: run.state for name, run in found.items()} == {
        "bad": "unreadable",
        "done": "finished",
        "failed": "failed",
        "stopped": "stopped",
    }
    done = found["done"]
    assert (done.epochs, done.max_epochs, done.val_seq_acc, done.worst, done.device) == (1, 50, 0.75, 0.5, "a card")
    with lock.holding(folder / "stopped"):
        assert [run.state for run in list_runs(f"{folder}/st*")] == ["training"]


def test_list_is_sorted_with_the_unknown_last(folder):
    assert [run.run for run in list_runs(str(folder), "val_seq_acc", reverse=True)][:2] == ["done", "stopped"]
    assert [run.run for run in list_runs(str(folder))] == ["bad", "done", "failed", "stopped"]


def test_list_is_sorted_by_the_headings_of_the_table_too(folder):
    assert list_runs(str(folder), "accuracy", reverse=True)[0].run == "done"
    with pytest.raises(UserError, match=r"^--sort=loss: expected one of run, state, .*accuracy$"):
        list_runs(str(folder), "loss")


def test_unfinished_new_run_is_listed_beside_the_old_one_and_mentioned(folder, config):
    new = begun(folder, ".done.new", config, seed0=0.125)
    found = [(run.run, run.state, run.val_seq_acc) for run in list_runs(f"{folder}/do*")]
    assert found == [("done", "finished", 0.75), ("done", "overwriting, stopped", 0.125)]
    assert skipped(Run(folder / "done")).endswith(f"; {new.name} is half trained: overwrite=true completes it")


def test_long_names_are_whole_and_above_their_columns_at_80_columns(tmp_path, config, monkeypatch, capsys):
    long = f"add-random-transformer-none-{'x' * 90}-seed0-4-1f0c2d3e"
    run = begun(tmp_path, long, config, seed0=1.0)
    run.weights(0).touch()
    run.finish({"seeds": [{"seed": 0}], "device": "NVIDIA H100 80GB HBM3"})
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.argv", ["runs", str(tmp_path)])
    main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == long
    assert lines[3].split() == ["finished", "1/50", *["100.00%"] * 2, "0", "s", "NVIDIA", "H100", "80GB", "HBM3"]
    assert lines[1].index("accuracy") + len("accuracy") == lines[3].index("100.00%") + len("100.00%")


@pytest.mark.parametrize("form", [[], ["--csv"], ["--json"]])
def test_list_is_printed(folder, form, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["runs", str(folder), *form])
    monkeypatch.setenv("COLUMNS", "80")
    main()
    out = capsys.readouterr().out
    assert "done" in out
    assert "75.00%" in out if not form else "0.75" in out
    if form == ["--json"]:
        assert {run["run"] for run in json.loads(out)} == {"bad", "done", "failed", "stopped"}


def test_folder_without_runs_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["runs", str(tmp_path)])
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().err.startswith(f"error: {tmp_path}: no run there; expected a folder of runs")


def test_ages_have_one_unit():
    assert [age(x) for x in (3, 90, 7300, 864000)] == ["3 s", "2 min", "2 h", "10 d"]


@pytest.mark.parametrize(
    ("then", "now", "said"),
    [
        ("aaa", "aaa", ""),
        ("aaa", None, ""),
        ("aaa", "bbb", "; trained at commit aaa, this is bbb"),
        ("aaa", "aaa-dirty", "; trained at commit aaa, this is aaa, with changes"),
        ("aaa-dirty", "aaa-dirty", "; trained at commit aaa, with changes, this is aaa, with changes"),
    ],
)
def test_finished_run_of_other_code_says_so(tmp_path, config, monkeypatch, then, now, said):
    run = Run(tmp_path / "run")
    run.create(config)
    run.finish({"seeds": [], "versions": {"commit": then}})
    monkeypatch.setattr("arith_erd.runs.provenance.commit", lambda: now)
    assert skipped(run) == f"{run.path}: finished already, skipped{said}"


def test_finished_run_without_the_weights_asked_for_says_how_to_get_them(tmp_path, config, monkeypatch):
    """Two of the three epochs asked for are not there; of one the file of a seed is missing."""
    run = Run(tmp_path / "run")
    run.create(config)
    run.finish({"seeds": [{"seed": 0}, {"seed": 1}], "epochs": 3, "versions": {"commit": None}})
    for epoch, seed in ((1, 0), (1, 1), (2, 0)):
        run.weights(seed, epoch).parent.mkdir(parents=True, exist_ok=True)
        run.weights(seed, epoch).touch()
    assert "it kept no weights of 2 epoch(s): overwrite=true" in skipped(run, Keep("all"))
    assert "overwrite" not in skipped(run)
    assert "overwrite" not in skipped(run, Keep("every", 4))
