"""Runs with more epochs, runs that are overwritten, files that cannot be read, and what counts as finished."""

import pytest

from arith_erd.config.compose import compose
from arith_erd.errors import UserError
from arith_erd.runs.directory import Run
from arith_erd.training.checkpoint import CheckpointWriter
from arith_erd.training.run_pack import train_pack
from arith_erd.training.train import train as train_job
from tests.behaviour.interruption import assert_same, power_cut
from tests.tiny import FOUR_EPOCHS, TINY


def test_longer_run_continues_a_shorter_one_bit_for_bit(train, whole, capsys, monkeypatch):
    """The shorter one has a checkpoint at its end only, and was trained by other code."""
    monkeypatch.setattr("arith_erd.system.machine.git_commit", lambda: "aaa")
    monkeypatch.setattr("arith_erd.runs.directory.git_commit", lambda: "bbb")
    shorter = train(*FOUR_EPOCHS, "trainer.max_epochs=2", "checkpoint.every_n_epochs=5")
    longer = train(*FOUR_EPOCHS)
    out = capsys.readouterr().out
    continued = f"{longer.path}: continues {shorter.path}, which was trained to epoch 2"
    assert f"{continued}; trained at commit aaa, the code is now at bbb\n" in out
    assert "resuming from epoch 3" in out
    assert_same(longer, whole)
    assert shorter.finished


@pytest.mark.slow
def test_longer_run_starts_at_the_beginning_if_the_state_was_not_kept_or_the_schedule_is_another(train, capsys):
    shorter = train("checkpoint.keep_last=false")
    assert not shorter.checkpoint_file.exists()
    train("trainer.max_epochs=3")
    train("scheduler=warmup_linear", "trainer.max_epochs=1")
    train("scheduler=warmup_linear")
    assert "continues" not in capsys.readouterr().out


def no_file(run: Run) -> None:
    run.checkpoint_file.unlink()
    run.checkpoint_file.symlink_to("nowhere")


def a_folder(run: Run) -> None:
    run.tokens_file.unlink()
    run.tokens_file.mkdir()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda run: run.checkpoint_file.write_bytes(b"cut"), "last.ckpt: cannot be read"),
        (a_folder, "tokens.csv"),
        (no_file, ""),
    ],
)
def test_shorter_run_that_is_damaged_is_left_out_and_named(train, whole, capsys, damage, said):
    """The next shorter one is continued."""
    shorter = train(*FOUR_EPOCHS, "trainer.max_epochs=2", "checkpoint.keep=all")
    train(*FOUR_EPOCHS, "trainer.max_epochs=1")
    damage(shorter)
    longer = train(*FOUR_EPOCHS)
    out = capsys.readouterr().out
    assert (f"{shorter.path}: not continued (" in out) == bool(said)
    assert said in out
    assert "which was trained to epoch 1" in out
    assert_same(longer, whole)
    assert 2 not in longer.saved_epochs(0)


@pytest.mark.slow
def test_overwriting_keeps_the_old_run_until_the_new_one_has_finished(train, runs_dir, capsys):
    old = train()
    (old.path / "mine").touch()
    power_cut(train, CheckpointWriter, 1, True, "overwrite=true")
    assert (old.backup.path / "mine").is_file()
    again = train("overwrite=true")
    out = capsys.readouterr().out
    assert "resuming from epoch 2" in out
    assert again.path == old.path
    assert not (old.path / "mine").exists()
    assert [path.name for path in runs_dir.iterdir()] == [old.name]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "pack", "missing"), [("move_to_backup", 1, [(1,)]), ("finish", 1, [(1,)]), ("delete_backup", 0, [])]
)
def test_overwriting_of_several_packs_goes_on_where_it_was_killed(runs_dir, monkeypatch, method, pack, missing):
    """Before the second old run is renamed, before the new one has finished, or before the old ones are deleted."""
    words = [*TINY, "trainer.max_epochs=1", "seed=0-1", "pack.max_replicas=1", f"runs_dir={runs_dir}"]
    old = train_job(compose("train", words))
    for run in old:
        (run.path / "mine").touch()
    original, trained = getattr(Run, method), []

    def killed(self, *arguments):
        if self.path == old[pack].path:
            raise KeyboardInterrupt
        original(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Run, method, killed)
        with pytest.raises(KeyboardInterrupt):
            train_job(compose("train", [*words, "overwrite=true"]))
    monkeypatch.setattr("arith_erd.training.run_pack.train_pack", lambda job: trained.append(job) or train_pack(job))
    train_job(compose("train", [*words, "overwrite=true"]))
    assert [job.seeds for job in trained] == missing
    assert all(run.finished and not (run.path / "mine").exists() for run in old)
    assert sorted(path.name for path in runs_dir.iterdir()) == sorted(run.name for run in old)


@pytest.mark.slow
def test_run_whose_old_one_was_renamed_by_a_launcher_continues_no_shorter_run(train, capsys):
    train("trainer.max_epochs=1")
    train().move_to_backup()
    assert "which was trained to epoch 1" in capsys.readouterr().out
    new = train()
    assert "which was trained to epoch 1" not in capsys.readouterr().out
    assert new.finished
    assert not new.backup.path.exists()


def test_refused_command_leaves_the_old_run(train, runs_dir, monkeypatch):
    old = train()
    before = {path: path.read_bytes() for path in old.path.rglob("*") if path.is_file() and path.name != ".lock"}
    monkeypatch.setattr("os.sysconf", lambda name: 1)
    with pytest.raises(UserError, match="too large for the memory"):
        train("overwrite=true")
    assert {path: path.read_bytes() for path in before} == before
    assert [path.name for path in runs_dir.iterdir()] == [old.name]
