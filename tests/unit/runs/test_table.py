"""``arith-runs``: what runs there are; a damaged folder is one line of the list, and ends nothing."""

import json

import pandas as pd
import pytest

from arith_erd.errors import UserError
from arith_erd.plots.curves import draw_by_setting
from arith_erd.plots.tables import csv_text
from arith_erd.runs.__main__ import accuracy_by_settings, main
from arith_erd.runs.__main__ import list_runs as listed
from arith_erd.runs.directory import Run
from arith_erd.runs.identity import without_legacy_values
from arith_erd.runs.table import load_table, mean_accuracies, read_replicas
from arith_erd.stats import Estimate, Moments
from arith_erd.system.files import locked
from tests.rows import finish, row, write_metrics
from tests.values import put


def begun(folder, name: str, config, accuracies: dict[int, float] | None = None, epoch: int = 1) -> Run:
    """A run with the rows of one epoch: seed -> accuracy. It has no weights, as most runs in ``paper/results/``."""
    run, by_seed = Run(folder / name), accuracies or {}
    run.create(config | {"seed": [*by_seed]} if by_seed else config)
    write_metrics(run, (row(epoch, seed, val_seq_acc=accuracy) for seed, accuracy in by_seed.items()))
    return run


def finished(folder, name: str, config, accuracies: dict[int, float], epochs: int = 1) -> Run:
    run = begun(folder, name, config, accuracies, epochs)
    finish(run, accuracies, epochs)
    return run


def list_runs(pattern, *options, **named):
    return listed(load_table(pattern), *options, **named)


@pytest.fixture
def arith_runs(monkeypatch, capsys):
    """``arith_runs("runs", "--csv")`` runs the command and gives what it printed."""

    def run(*words):
        monkeypatch.setattr("sys.argv", ["runs", *words])
        main()
        return capsys.readouterr()

    return run


@pytest.fixture
def folder(tmp_path, config):
    finished(tmp_path, "done", config, {0: 1.0, 1: 0.5})
    begun(tmp_path, "failed", config).error_file.write_text("no")
    begun(tmp_path, "stopped", config, {0: 0.25})
    (tmp_path / "other").mkdir()
    (begun(tmp_path, "bad", config).path / "config.yaml").write_text("[")
    (begun(tmp_path, "worse", config).path / "metrics.csv").write_bytes(b"\xff\n\xff\n")
    begun(tmp_path, "odd", config | {"trainer": None})
    return tmp_path


def test_list_says_state_epochs_accuracy_and_device(folder, config):
    found = list_runs(str(folder)).set_index("run")
    assert found["state"].to_dict() == {
        **dict.fromkeys(("bad", "odd", "worse"), "unreadable"),
        **{name: name for name in ("failed", "stopped")},
        "done": "finished",
    }
    done = found.loc["done", ["epochs", "max_epochs", "val_seq_acc", "worst", "device"]]
    assert done.to_list() == [1, 50, 0.75, 0.5, "a card"]
    with locked(folder / "stopped"):
        assert list_runs(f"{folder}/st*")["state"].to_list() == ["training"]
    done = folder / "done" / "metrics.csv"
    done.write_text("".join(done.read_text().splitlines(keepends=True)[:-1]))
    assert list_runs(f"{folder}/do*")["state"].to_list() == ["damaged"]
    with locked(folder / "done"):  # and trains again
        assert list_runs(f"{folder}/do*")["state"].to_list() == ["training"]
    Run(folder / "done").move_to_backup()
    begun(folder, "done", config, {0: 0.125})
    found = list_runs(f"{folder}/do*")
    assert sorted(zip(found["state"], found["val_seq_acc"], strict=True)) == [("replaced", 1.0), ("stopped", 0.125)]


def test_list_is_sorted_by_any_heading_with_the_unknown_last(folder):
    for heading in ("val_seq_acc", "accuracy"):
        assert list_runs(str(folder), heading, reverse=True)["run"].to_list()[:2] == ["done", "stopped"]
    assert list_runs(str(folder))["run"].to_list() == ["bad", "done", "failed", "odd", "stopped", "worse"]
    with pytest.raises(UserError, match=r"^--sort=loss: expected one of run, state, .*accuracy$"):
        list_runs(str(folder), "loss")


def test_damaged_neighbours_are_named_and_left_out(swept, config, arith_runs):
    """Settings that cannot be compared, counted or grouped; names and texts that act in a terminal or a spreadsheet."""
    (swept / "a" / "slices.csv").write_text("epoch,seed,slice\n1,0,len\xff\n", encoding="latin-1")
    rows = "".join(f"1,{seed},length,3,0.5\n" for seed in range(3))
    (swept / "b" / "slices.csv").write_text(f"epoch,seed,slice,value,val_seq_acc\n{rows}")
    for name, fraction in (("x\x1b[2J", 0.1), ("=cmd", 10**20), ("@text", "half")):
        finished(swept, name, put(config, "split.fraction", fraction), {0: 0.5})
    run = Run(swept / "c")
    run.metrics_file.write_text("".join(run.metrics_file.read_text().splitlines(keepends=True)[:-1]))
    lists = (
        ("--sort split.fraction", f"{swept}/=cmd: config.yaml: expected a mapping"),
        ("--csv", f"{swept}/c: summary.json: not that of a finished run (metrics.csv does not hold all its epochs)"),
        *(("--csv", "'=cmd"), ("--json", "@text")),
    )
    means = ("--by split.fraction", "half"), ("--by length", f"left out {swept}/a: slices.csv: ")
    for typed, says in (*lists, *means):
        said = "".join(arith_runs(str(swept), *typed.split()))
        assert says in said
        assert "\x1b" not in said


def test_text_that_a_spreadsheet_would_calculate_is_quoted_and_numbers_are_not():
    table = pd.DataFrame(
        {"x": ["=1", "-2+3", "-1 [-2]", None], "y": [-0.5, 1.0, 2.0, 3.0], "z": [-1, "+1", "@", "\x1b"]}
    )
    assert csv_text(table) == "x,y,z\n'=1,-0.5,-1\n'-2+3,1.0,'+1\n-1 [-2],2.0,'@\n,3.0,\\x1b\n"


@pytest.mark.parametrize("form", [[], ["--csv"], ["--json"]])
def test_list_is_printed_with_whole_names(folder, form, config, arith_runs, monkeypatch):
    long = f"add-random-transformer-none-{'x' * 90}-seed0-4-1f0c2d3e"
    begun(folder, long, config, {0: 0.75})
    monkeypatch.setenv("COLUMNS", "80")
    out = arith_runs(str(folder), *form).out
    assert long in out
    assert out.endswith("\n")
    if form == ["--json"]:
        assert {run["run"]: run["val_seq_acc"] for run in json.loads(out)}["done"] == 0.75
    if not form:
        lines = out.splitlines()
        assert lines[0].split() == ["epochs", "accuracy", "worst", "age", "state", "device", "run"]
        assert {line.rindex(line.split()[-1]) for line in lines} == {lines[0].index("run")}


@pytest.fixture
def swept(tmp_path, config):
    """Finished runs: fractions 0.1 and 0.5, three seeds each; a pack that repeats seed 0; one that is not finished."""
    low, high = (put(config, "split.fraction", fraction) for fraction in (0.1, 0.5))
    finished(tmp_path, "a", without_legacy_values(low), {0: 0.9, 1: 1.0, 2: 0.8})  # as in 0.1.0
    finished(tmp_path, "b", high, {0: 0.5, 1: 0.5, 2: 0.5})
    finished(tmp_path, "c", high, {0: 0.5})
    begun(tmp_path, "d", high, {3: 0.0})
    return tmp_path


def test_table_has_a_row_for_each_seed_and_a_column_for_each_setting_that_differs(swept):
    found = load_table(f"{swept}/*")
    assert list(found)[:4] == ["run", "split.fraction", "seed", "epochs"]
    assert found.groupby("split.fraction")["val_seq_acc"].apply(list).to_dict() == {
        0.1: [0.9, 1.0, 0.8],
        0.5: [0.5, 0.5, 0.5, 0.5, 0.0],
    }
    assert found["seed"].to_list() == [0, 1, 2, 0, 1, 2, 0, 3]
    assert "split.fraction" not in load_table(swept / "a")
    assert set(load_table(swept / "a", ["split.fraction"])["split.fraction"]) == {0.1}


def test_accuracies_by_a_setting_are_means_with_intervals_of_distinct_finished_seeds(swept, arith_runs):
    drawn = swept / "by.png"
    said = arith_runs(f"{swept}/*", "--by", "split.fraction", "--json", "--plot", str(drawn))
    few, many = json.loads(said.out)
    low, high = Estimate.of_means([Moments.from_values([0.9, 1.0, 0.8])]).interval
    assert few["accuracy"] == pytest.approx(0.9)
    assert (few["ci_low"], few["ci_high"]) == pytest.approx((low, min(high, 1.0)))
    assert many == {"split.fraction": 0.5, "seeds": 3, "accuracy": 0.5, "ci_low": 0.5, "ci_high": 0.5}
    assert said.err == "left out 1 unfinished run\n"
    assert drawn.read_bytes().startswith(b"\x89PNG")


def test_null_is_a_group_in_the_table_and_in_the_figure(tmp_path, config):
    for clip in (None, 0.5, 1.0):
        finished(tmp_path, f"clip{clip}", put(config, "model.gradient_clip", clip), {0: 0.5})
    runs, means = accuracy_by_settings(load_table(tmp_path), ["model.gradient_clip"])
    assert means["model.gradient_clip"].tolist() == [0.5, 1.0, "null"]
    (ax,) = draw_by_setting(means, runs).axes
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0.5", "1.0", "null"]
    assert [len(line.get_xdata()) for line in ax.lines if line.get_marker() != "."] == [3]
    assert mean_accuracies(runs, ["state"])["seeds"].tolist() == [1]  # the same seed in three runs


def test_settings_of_one_seed_are_no_sample_of_seeds(tmp_path, config):
    for clip, accuracy in ((0.5, 0.1), (1.0, 0.5), (2.0, 0.9)):
        finished(tmp_path, f"{clip}", put(config, "model.gradient_clip", clip), {0: accuracy})
    (row,) = mean_accuracies(load_table(tmp_path), ["state"]).to_dict("records")
    assert (row["seeds"], row["accuracy"], row["ci_low"]) == (1, pytest.approx(0.5), None)


def test_rows_after_a_seed_has_stopped_are_no_measurements(tmp_path, config):
    run = Run(tmp_path / "pack")
    run.create(put(config | {"seed": [0, 1]}, "trainer.stop_at", 0.3333333333))
    accuracies = {1: (0.1, 0.2), 2: (1 / 3, 0.2), 3: (1 / 3, 0.5)}
    rows = (
        row(epoch, seed, val_seq_acc=accuracy)
        for epoch, both in accuracies.items()
        for seed, accuracy in enumerate(both)
    )
    write_metrics(run, rows)
    finish(run, [0, 1], epochs=3)
    rows, metrics = read_replicas(run)
    assert metrics.groupby("seed")["epoch"].max().to_dict() == {0: 2, 1: 3}
    assert [row["epochs"] for row in rows] == [2, 3]
    assert [row["state"] for row in rows] == ["finished", "finished"]


def test_a_folder_that_looks_like_a_glob_is_that_folder(tmp_path, config):
    begun(tmp_path / "q1", "run", config, {0: 0.5})
    own = begun(tmp_path / "q[1]", "run", config, {0: 0.25})
    for source in (own, own.path, tmp_path / "q[1]"):
        assert load_table(source)["val_seq_acc"].tolist() == [0.25]


def test_every_folder_given_has_its_runs_listed_or_is_named(swept, config, monkeypatch):
    begun(swept / "big", "inside", config)
    (swept / "probes").mkdir()
    monkeypatch.chdir(swept)
    with pytest.warns(UserWarning, match=r"^left out 2 paths without a run: probes, pro\*$"):
        found = load_table(["a", "probes", "big", "[b-d]", "pro*"])
    assert [*dict.fromkeys(found["run"])] == ["a", "inside", "b", "c", "d"]
    assert "inside" not in [*load_table(f"{swept}/*")["run"]]


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (". --by tusk", "--by=tusk: expected a setting of these runs, such as split.fraction"),
        (". --by split,split.name", "--by=split.name,split.name: expected each setting once"),
        (". --by length", "--by length: expected finished runs that have it; found none"),
        (". --by seed --sort age", "--by=seed: expected neither --sort nor --reverse"),
        (". --by=", "--by=: expected a setting"),
        (". nope", "nope: no such folder"),
        (". --plot x.png", "--plot=x.png: expected --by KEY too"),
        (". --by split.fraction --plot x.txt", "--plot=x.txt: expected a file that ends in .png"),
        (". --by split.fraction --plot no/x.png", "--plot=no/x.png: expected a file in a folder that exists"),
        ("a/weights", "a/weights: no run there; expected a folder of runs"),
        ("no nope", "no, nope: no run there"),
    ],
)
def test_folder_or_grouping_that_cannot_be_is_refused(swept, typed, message, arith_runs, monkeypatch, capsys):
    monkeypatch.chdir(swept)
    with pytest.raises(SystemExit):
        arith_runs(*typed.split())
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"error: {message}")


def test_accuracy_by_length_is_that_of_the_last_epoch(tmp_path, config, arith_runs):
    for seed in (0, 1):
        run = finished(tmp_path, f"run{seed}", config, {seed: 0.5}, epochs=2)
        rows = [f"{epoch},{seed},length,3,{epoch / 4 - seed / 8}" for epoch in (1, 2)]
        run.slices_file.write_text("\n".join(["epoch,seed,slice,value,val_seq_acc", *rows]) + "\n")
    finished(tmp_path, "other", config, {7: 1.0})
    for seeds, accuracy in ((2, (0.5 + 0.375) / 2), (1, 0.5)):  # then the last line is cut off
        said = arith_runs(f"{tmp_path}/*", "--by", "length", "--json")
        (row,) = json.loads(said.out)
        assert (row["length"], row["seeds"], row["accuracy"]) == (3, seeds, accuracy)
        cut = f"left out {run.path}: slices.csv: ValueError: does not hold the last epoch of all seeds"
        assert (cut in said.err) == (seeds == 1)
        run.slices_file.write_text("".join(run.slices_file.read_text().splitlines(keepends=True)[:-1]))
