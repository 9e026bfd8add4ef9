"""A run directory: rows, weights over time, and when it is finished."""

import math
from pathlib import Path

import pytest

from arith_erd.config.class_spec import source_hashes
from arith_erd.errors import UserError
from arith_erd.runs.directory import METRIC_COLUMNS, Run, append_rows, first_epoch_reaching
from arith_erd.runs.table import load_table
from tests.rows import row, write_metrics
from tests.values import put


def test_metrics_are_read_as_they_were_written(tmp_path):
    run = Run(tmp_path)
    first = [row(1, 0, train_loss=1e30, val_seq_acc=1 / 3, seconds=1e6), row(1, 2**31 - 1, val_seq_acc=0.0)]
    second = [row(4000, 0, train_loss=5e-324, val_seq_acc=1.0)]
    assert run.metrics() == []
    write_metrics(run, first)
    append_rows(run.metrics_file, ([row[name] for name in METRIC_COLUMNS] for row in second))
    assert run.metrics() == [pytest.approx(r, rel=1e-8) for r in first + second]
    assert (run.path / "metrics.csv").read_text().splitlines()[0] == ",".join(METRIC_COLUMNS)
    write_metrics(run, first)
    assert len(run.metrics()) == len(first)


@pytest.mark.parametrize("text", ["a,b\n1,2\n", ",".join(METRIC_COLUMNS) + "\none,0,0,0,0,0,0,0\n"])
def test_rows_with_other_columns_are_refused(text, tmp_path):
    (tmp_path / "metrics.csv").write_text(text)
    with pytest.raises(UserError, match=r"metrics\.csv: expected the columns epoch,"):
        Run(tmp_path).metrics()


def test_run_is_finished_when_it_says_so_and_has_the_weights_of_all_its_seeds(tmp_path, config):
    run = Run(tmp_path / "run")
    run.create(config)
    assert not run.finished
    with pytest.raises(UserError, match="not finished"):
        run.summary()
    run.finish({"seeds": [{"seed": 0, "val_mae": math.nan, "train_loss": math.inf}, {"seed": 1}]})
    entries = [{"seed": 0, "val_mae": None, "train_loss": None}, {"seed": 1}]
    assert run.summary() == {"status": "finished", "seeds": entries}
    for seed in (0, 1):
        assert not run.finished
        run.weights_file(seed).touch()
    assert run.finished


@pytest.mark.parametrize(
    "text",
    [
        *("{", "[]", "{}", "[" * 10**5, '{"status": "finished"}', '{"status": "running", "seeds": [{"seed": 0}]}'),
        f'{{"status": "finished", "seeds": [{{"seed": {"9" * 300}}}]}}',
    ],
)
def test_summary_that_does_not_say_finished_leaves_the_run_unfinished(text, tmp_path, config):
    run = Run(tmp_path)
    run.create(config)
    run.weights_file(0).touch()
    (tmp_path / "summary.json").write_text(text)
    assert not run.finished


def test_folder_that_is_not_a_run_is_refused(tmp_path):
    aliases = "a: &a [1, 1]\nb: [*a, *a]\n"  # a few more lines of these make a million
    damaged = ("- 1\n- 2\n", "a: [", "[" * 10**5, "- " * 10**5, aliases, "a: !!set {b}", f"a: {10**20}", "x" * 10**6)
    for text in (None, *damaged):
        if text is not None:
            (tmp_path / "config.yaml").write_text(text)
        with pytest.raises(UserError, match=str(tmp_path)):
            Run(tmp_path).config()


def test_first_epoch_reaching_an_accuracy_is_that_of_the_seed():
    accuracies = {0: [0.1, 0.95, 0.9, 0.99], 1: [0.2, 0.3, 0.4, 0.5]}
    rows = [row(e, seed, val_seq_acc=x) for seed, values in accuracies.items() for e, x in enumerate(values, start=1)]
    found = [first_epoch_reaching(rows, *asked) for asked in ((0, 0.95), (0, 0.96), (1, 0.5), (1, 0.95))]
    assert found == [2, 4, 4, None]


def test_kept_epochs_are_listed_in_order_and_dropped_after_one(tmp_path):
    run = Run(tmp_path)
    for epoch in (2, 10, 9):
        run.weights_file(0, epoch).parent.mkdir(parents=True)
        run.weights_file(0, epoch).touch()
    run.weights_file(1, 2).touch()
    for name in ("epoch=x", "epoch=-1", "epoch=05", "epoch=3"):
        (tmp_path / "weights" / name).mkdir()
    assert (run.saved_epochs(0), run.saved_epochs(1)) == ([2, 9, 10], [2])
    run.delete_weights_after(2)
    assert run.saved_epochs(0) == [2]
    assert sorted(path.name for path in (tmp_path / "weights").glob("epoch=[0-9]*")) == ["epoch=05", "epoch=2"]


@pytest.mark.parametrize(
    ("then", "now", "said"),
    [
        ("aaa", "aaa", ""),
        (None, "aaa-dirty", ""),
        ("aaa", "bbb", "; trained at commit aaa, the code is now at bbb"),
        ("aaa", "aaa-dirty", "; trained at commit aaa, the code is now at aaa with changes"),
        ("aaa-dirty", "aaa-dirty", "; cannot tell whether the code changed: both had uncommitted changes"),
    ],
)
def test_finished_run_of_other_code_says_so(tmp_path, config, monkeypatch, then, now, said):
    run = Run(tmp_path)
    run.create(config)
    run.finish({"seeds": [], "versions": {"commit": then}})
    monkeypatch.setattr("arith_erd.runs.directory.git_commit", lambda: now)
    assert run.skip_message(config, "none", {}) == f"{run.path}: finished already, skipped{said}"


def test_finished_run_says_which_trusted_packages_changed(tmp_path, config, monkeypatch):
    """A package counts if a class of the configuration comes from it; a cache of bytecode is no source."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("arith_erd.config.class_spec._trusted_packages", {"mine", "unused", "one_file"})
    for name in ("mine/__init__.py", "mine/inner/tasks.py", "unused/__init__.py", "one_file.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    config = put(put(config, "task._target_", "mine.inner.tasks.Gcd"), "model.net._target_", "one_file.Net")
    run, before = Run(tmp_path / "run"), source_hashes(config)
    run.create(config)
    run.finish({"seeds": [], "versions": {"commit": None}, "sources": before})
    assert set(before) == {"mine", "one_file"}
    (tmp_path / "mine" / "inner" / "tasks.pyc").write_text("cached")
    assert "sources" not in run.skip_message(config, "none", source_hashes(config))
    (tmp_path / "mine" / "inner" / "tasks.py").write_text("changed = True")
    assert run.skip_message(config, "none", source_hashes(config)).endswith("; the sources of mine have changed since")


@pytest.fixture
def finished(tmp_path, config) -> Run:
    """Two seeds and three epochs. Epoch 2 lacks the kept weights of a seed, epoch 3 those of both."""
    run = Run(tmp_path)
    run.create(config | {"seed": [0, 1]})
    run.finish({"seeds": [{"seed": 0}, {"seed": 1}], "epochs": 3, "versions": {"commit": None}})
    write_metrics(run, [row(epoch, seed) for epoch in (1, 2, 3) for seed in (0, 1)])
    for epoch, seed in ((1, 0), (1, 1), (2, 0)):
        run.weights_file(seed, epoch).parent.mkdir(parents=True, exist_ok=True)
        run.weights_file(seed, epoch).touch()
    return run


def test_finished_run_without_the_weights_asked_for_says_how_to_get_them(finished):
    said = [finished.skip_message(finished.config(), keep, {}) for keep in ("all", "none", "every:4")]
    assert "epochs without kept weights: 2 (overwrite=true" in said[0]
    assert all("overwrite" not in line for line in said[1:])


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("metrics.csv", lambda text: text[:-1]),
        *(("config.yaml", lambda text, cut=cut: cut) for cut in ("", "[")),
        ("config.yaml", lambda text: text.replace("lr: 0.0001", "lr: 0.000")),
        *(("config.yaml", lambda text, key=key: text[: text.index(key)]) for key in ("data:", "prompt_order")),
    ],
)
def test_finished_run_whose_files_were_cut_short_says_so(finished, name, damage):
    config, file = finished.config(), finished.path / name
    file.write_text(damage(file.read_text()))
    assert "; it lacks a valid config.yaml or metrics.csv, so tables" in finished.skip_message(config, "none", {})


@pytest.mark.parametrize("name", ["config.yaml", "metrics.csv"])
@pytest.mark.parametrize(
    ("error", "said"),
    [
        ((13, "Permission denied"), "{file}: Permission denied; this user may not read or write it"),
        ((24, "Too many open files"), "OSError: [Errno 24] Too many open files: '{file}'"),
    ],
)
def test_file_that_could_not_be_read_is_not_called_damaged(finished, name, error, said, monkeypatch):
    config, file, read = finished.config(), finished.path / name, Path.read_text

    def fails(path, *arguments, **options):
        if path == file:
            raise OSError(*error, str(path))
        return read(path, *arguments, **options)

    monkeypatch.setattr(Path, "read_text", fails)
    line = said.format(file=file)
    assert finished.skip_message(config, "none", {}).endswith(f"skipped; {line}, so tables omit it")
    assert load_table(finished.path)["problem"].to_list() == [line.removeprefix(f"{finished.path}/")]
