"""Overwriting: the old run stays until the new one has finished, wherever that is cut off."""

import pytest

from arith_erd.runs import Run
from arith_erd.runs.overwriting import settle, successor


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
