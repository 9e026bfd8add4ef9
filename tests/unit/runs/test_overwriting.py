"""Overwriting: the old run stays until the new one has finished, wherever that is cut off."""

from dataclasses import replace

import pytest

from arith_erd.config.compose import compose
from arith_erd.runs import Run
from arith_erd.runs.overwriting import begun_at, settle, successor
from arith_erd.training.train import train


def run_at(path, config, mark: str, finished: bool = True) -> Run:
    run = Run(path)
    run.create(config)
    (path / mark).touch()
    if finished:
        run.weights(0).touch()
        run.finish({"seeds": [{"seed": 0}]})
    return run


def test_unfinished_successor_leaves_the_old_run(tmp_path, config):
    run = run_at(tmp_path / "run", config, "old")
    run_at(successor(run).path, config, "new", finished=False)
    settle(run)
    assert (run.path / "old").is_file()
    assert successor(run).path.is_dir()


@pytest.mark.parametrize("cut_off", ["before", "between the two renames"])
def test_finished_successor_takes_the_place_of_the_old_run(tmp_path, config, cut_off):
    run = run_at(tmp_path / "run", config, "old")
    run_at(successor(run).path, config, "new")
    if cut_off != "before":
        run.path.rename(tmp_path / ".run.old")
    settle(run)
    assert (run.path / "new").is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_interrupted_overwriting_of_several_packs_continues_with_the_same_pack(tmp_path, monkeypatch, capsys):
    """Three packs; the power goes off in the second. Then all are done, and the next command begins again."""
    job = compose("train", ["seed=0-2", "pack.max_replicas=1", f"runs_dir={tmp_path}"])
    for run in job.runs():
        run_at(run.path, job.resolved, "old")
    trained, failing = [], [1]

    def train_pack(pack):
        pack.run.create(pack.resolved)
        if list(pack.seeds) == failing:
            failing.clear()
            raise RuntimeError("the power went off")
        trained.append(pack.seeds)
        run_at(pack.run.path, pack.resolved, "new")

    monkeypatch.setattr("arith_erd.training.train.train_pack", train_pack)
    job = replace(job, overwrite=True)
    with pytest.raises(RuntimeError):
        train(job)
    assert trained == [(0,)]
    train(job)
    assert trained == [(0,), (1,), (2,)]
    assert "trained anew already, skipped" in capsys.readouterr().out
    assert [(run.path / "new").is_file() for run in job.runs()] == [True] * 3
    assert len(list(tmp_path.iterdir())) == 3
    train(job)
    assert trained[3:] == [(0,), (1,), (2,)]


@pytest.mark.parametrize("overwrite", [False, True])
def test_finished_successor_is_not_trained_again(tmp_path, monkeypatch, capsys, overwrite):
    job = compose("train", ["seed=0-1", "pack.max_replicas=1", f"runs_dir={tmp_path}"])
    for run in job.runs():
        run_at(run.path, job.resolved, "old")
    last = job.runs()[1]
    run_at(successor(last).path, job.resolved, "new")
    monkeypatch.setattr("arith_erd.training.train.train_pack", None)
    train(replace(job, overwrite=overwrite))
    assert (last.path / "new").is_file()
    assert capsys.readouterr().out.count("skipped") == 2


def test_kill_before_the_change_of_places_does_not_hide_what_is_left(tmp_path, config):
    first, second = (run_at(tmp_path / name, config, "old") for name in ("first", "second"))
    run_at(successor(first).path, config, "new")
    settle(first, [second])
    assert begun_at([first, second]) == 1
