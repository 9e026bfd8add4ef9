"""Whole runs, of three-bit operands and one layer."""

import fcntl
import math
import os
import resource
import shutil
import signal
import threading
import warnings
from contextlib import nullcontext

import lightning as L
import numpy as np
import pytest
import torch
import wandb
import yaml
from safetensors.torch import load_file
from torch.utils._python_dispatch import TorchDispatchMode

from arith_erd.callbacks import KeepRows
from arith_erd.checkpoint import ResumePoint
from arith_erd.decoding import greedy
from arith_erd.errors import UserError
from arith_erd.lit import LitPack
from arith_erd.load import load_run
from arith_erd.pack import Pack
from arith_erd.preemption import Preempted, signals_caught
from arith_erd.runs import METRICS, Run
from arith_erd.training import wants_compile

LEARNS = ("model=nanogpt", "model.optimizer.lr=0.01")  # enough for accuracies to move within four epochs

FOUR_EPOCHS = (*LEARNS, "trainer.max_epochs=4", "seed=0-1")


def weights(run: Run, seed: int = 0) -> dict[str, torch.Tensor]:
    return load_file(run.weights(seed))


def without_seconds(run: Run) -> list[dict]:
    return [{key: value for key, value in row.items() if key != "seconds"} for row in run.metrics()]


def assert_same(one: Run, other: Run) -> None:
    """Bit for bit: the weights of every seed, every row but its seconds, and the summary's verdict."""
    seeds = [row["seed"] for row in one.summary()["seeds"]]
    for seed in seeds:
        mine, theirs = weights(one, seed), weights(other, seed)
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    assert without_seconds(one) == without_seconds(other)
    assert one.summary()["seeds"] == other.summary()["seeds"]


def interrupt(monkeypatch: pytest.MonkeyPatch, callback: type, epoch: int, after: bool) -> None:
    """Make ``callback`` fail at the end of ``epoch`` (from 1), before or after it has done its work."""
    original = callback.on_train_epoch_end

    def failing(self, trainer, pl_module):
        if after:
            original(self, trainer, pl_module)
        if trainer.current_epoch + 1 == epoch:
            raise RuntimeError("the power went off")
        if not after:
            original(self, trainer, pl_module)

    monkeypatch.setattr(callback, "on_train_epoch_end", failing)


# Same run, same bits


@pytest.mark.parametrize("model", ["transformer", "nanogpt"])
def test_the_same_seed_twice_is_bit_identical(train_in, tmp_path, model):
    overrides = (f"model={model}", "seed=0-1")
    assert_same(train_in(tmp_path / "first", *overrides), train_in(tmp_path / "second", *overrides))


def test_the_global_generators_do_not_matter(train_in, tmp_path):
    runs = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        np.random.seed(seed)
        runs.append(train_in(tmp_path / str(seed)))
    assert_same(*runs)


@pytest.mark.parametrize("model", ["transformer", "nanogpt"])
def test_a_pack_equals_its_seeds_alone(train, model):
    overrides = (f"model={model}", "trainer.max_epochs=1")
    packed = train(*overrides, "seed=[0,2,7]").metrics()
    for row in packed:
        (alone,) = train(*overrides, f"seed={row['seed']}").metrics()
        assert alone["train_loss"] == pytest.approx(row["train_loss"], abs=1e-5)


def test_seeds_differ(train):
    losses = [row["train_loss"] for row in train("seed=0-3").metrics() if row["epoch"] == 1]
    assert len(set(losses)) == 4


# What is trained on


def test_every_training_example_is_trained_on_in_each_epoch(train, monkeypatch):
    sizes, original = [], LitPack.training_step

    def spy(self, batch, batch_idx):
        sizes.append(tuple(batch[0].shape[:2]))
        return original(self, batch, batch_idx)

    monkeypatch.setattr(LitPack, "training_step", spy)
    run = train("seed=0-1")
    assert sizes == 2 * [(2, 20), (2, 20), (2, 8)]
    assert torch.load(run.checkpoint, weights_only=True)["global_step"] == 6


def test_each_step_has_its_own_dropout_and_evaluation_none(train, monkeypatch):
    steps = []

    def spied(original):
        def spy(self, *tokens, step=None):
            steps.append(step)
            return original(self, *tokens, step)

        return spy

    monkeypatch.setattr(Pack, "losses", spied(Pack.losses))
    monkeypatch.setattr(Pack, "forward", spied(Pack.forward))
    train()
    assert steps == [0, 1, 2, None, None, 3, 4, 5, None, None]


class HostReads(TorchDispatchMode):
    """Counts what makes the host wait for a device: a number read from a tensor, a shape that depends on values."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.name() in ("aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select"):
            self.found.append(function.name())
        return function(*args, **(kwargs or {}))


def test_the_host_never_waits_for_the_device_within_an_epoch(train, monkeypatch):
    found = {}

    def watched(name, original):
        def watch(self, *arguments, **options):
            with HostReads() as reads:
                result = original(self, *arguments, **options)
            found.setdefault(name, []).extend(reads.found)
            return result

        return watch

    for name in ("training_step", "validation_step", "configure_gradient_clipping"):
        monkeypatch.setattr(LitPack, name, watched(name, getattr(LitPack, name)))
    train("seed=0-1", "model=nanogpt")
    assert found == {"training_step": [], "validation_step": [], "configure_gradient_clipping": []}
    with HostReads() as reads:
        torch.ones(1).item()
    assert reads.found  # else it watches nothing


def test_the_loss_of_an_epoch_is_the_mean_over_its_examples(train, monkeypatch):
    """Not over its batches, of which the last is smaller."""
    losses, original = [], LitPack.training_step

    def spy(self, batch, batch_idx):
        loss = original(self, batch, batch_idx)
        losses.append(loss.item() * batch[0].shape[1])
        return loss

    monkeypatch.setattr(LitPack, "training_step", spy)
    (row,) = train("trainer.max_epochs=1").metrics()
    assert row["train_loss"] == pytest.approx(sum(losses) / 48, rel=1e-6)


def test_dropout_is_off_when_accuracy_is_measured(train):
    """The accuracies of the last row are those of the final weights."""
    run = train(*LEARNS, "trainer.max_epochs=4", "model.net.dropout=0.3")
    subject = load_run(run.path)
    examples = subject.task.examples()
    held_out = subject.split(examples)
    prompt, completion = torch.from_numpy(examples.prompt), torch.from_numpy(examples.completion)
    decoded = greedy(subject.network, prompt, subject.task.width)
    right = (decoded == completion).all(-1).double()
    last = run.metrics()[-1]
    assert last["val_seq_acc"] == pytest.approx(right[held_out].mean().item())
    assert last["train_seq_acc"] == pytest.approx(right[~held_out].mean().item())


# The run directory


def test_a_run_directory_holds_what_the_design_lists(trained_pack):
    assert (trained_pack.path / ".lock").is_file()  # by whoever trains; nobody does any more
    files = {
        path.relative_to(trained_pack.path).as_posix() for path in trained_pack.path.rglob("[!.]*") if path.is_file()
    }
    assert files == {
        "config.yaml",
        "metrics.csv",
        "weights/seed=3.safetensors",
        "weights/seed=5.safetensors",
        "last.ckpt",
        "summary.json",
        "curves.png",
    }
    assert trained_pack.curves.read_bytes().startswith(b"\x89PNG")
    assert yaml.safe_load((trained_pack.path / "config.yaml").read_text())["task"]["bits"] == 3


def test_metrics_have_a_row_for_each_epoch_and_seed(trained_pack):
    rows = trained_pack.metrics()
    assert [(row["epoch"], row["seed"]) for row in rows] == [(epoch, seed) for epoch in (1, 2, 3, 4) for seed in (3, 5)]
    assert all(0 <= row[key] <= 1 for row in rows for key in METRICS if key.endswith("_acc"))
    assert all(row["seconds"] > 0 and math.isfinite(row["train_loss"]) for row in rows)


def test_the_summary_says_what_the_design_lists(trained_pack):
    summary = trained_pack.summary()
    assert {"status", "params", "epochs", "wall_seconds", "train_flops", "device", "versions", "seeds"} <= set(summary)
    assert summary["status"] == "finished"
    assert summary["epochs"] == 4
    assert summary["params"] == sum(w.numel() for w in weights(trained_pack, 3).values())
    rows = trained_pack.metrics()
    assert summary["wall_seconds"] == pytest.approx(sum(row["seconds"] for row in rows if row["seed"] == 3))
    for seed, entry in zip((3, 5), summary["seeds"], strict=True):
        last = next(row for row in rows if (row["epoch"], row["seed"]) == (4, seed))
        assert entry["seed"] == seed
        for key in ("train_seq_acc", "val_seq_acc", "val_token_acc"):
            assert entry[key] == last[key]


def test_what_the_summary_had_decoded_is_what_decoding_everything_gives(trained_pack):
    for entry in trained_pack.summary()["seeds"]:
        subject = load_run(trained_pack.path, entry["seed"])
        examples = subject.task.examples()
        held_out = subject.split(examples)
        decoded = greedy(subject.network, torch.from_numpy(examples.prompt[held_out]), subject.task.width).numpy()
        error = abs(subject.task.decode(decoded) - examples.answer[held_out])
        assert entry["val_mae"] == pytest.approx(error.mean())
        assert entry["val_token_acc_autoregressive"] == pytest.approx((decoded == examples.completion[held_out]).mean())


# Interrupted and resumed


@pytest.fixture(scope="module")
def whole(tmp_path_factory, train_in) -> Run:
    """Two seeds, four epochs, never interrupted. For reading only."""
    return train_in(tmp_path_factory.mktemp("whole"), *FOUR_EPOCHS)


@pytest.mark.parametrize(
    ("callback", "after"), [(KeepRows, False), (KeepRows, True), (ResumePoint, False), (ResumePoint, True)]
)
def test_interrupted_then_resumed_equals_uninterrupted(train, whole, monkeypatch, capsys, callback, after):
    """Whether the power went off before or after the rows, and before or after the checkpoint, of epoch 3."""
    with monkeypatch.context() as patch:
        interrupt(patch, callback, epoch=3, after=after)
        with pytest.raises(RuntimeError, match="the power went off"):
            train(*FOUR_EPOCHS)
    capsys.readouterr()
    resumed = train(*FOUR_EPOCHS)
    started = 4 if callback is ResumePoint and after else 3
    assert f"resuming from epoch {started}" in capsys.readouterr().out
    assert_same(whole, resumed)


def test_an_interrupted_run_has_no_summary_and_keeps_its_rows(train, runs_dir, monkeypatch):
    interrupt(monkeypatch, KeepRows, epoch=2, after=True)
    with pytest.raises(RuntimeError):
        train("trainer.max_epochs=3")
    (run,) = (Run(path) for path in runs_dir.iterdir())
    assert not run.finished
    assert run.checkpoint.is_file()
    assert [row["epoch"] for row in run.metrics()] == [1, 2]


def test_a_full_disk_is_a_line_and_the_last_good_state_goes_on(train, whole, monkeypatch):
    """Files may not grow beyond a limit from the second epoch on: the checkpoint fails, what was there stays."""
    unlimited, original = resource.getrlimit(resource.RLIMIT_FSIZE), ResumePoint.on_train_epoch_end

    def limited(self, trainer, pl_module):
        if trainer.current_epoch == 1:
            resource.setrlimit(resource.RLIMIT_FSIZE, (5000, unlimited[1]))
        original(self, trainer, pl_module)

    try:
        with monkeypatch.context() as patch:
            patch.setattr(ResumePoint, "on_train_epoch_end", limited)
            with pytest.raises(
                UserError, match=r"cannot be written \(File too large\); what was saved before is intact"
            ):
                train(*FOUR_EPOCHS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert_same(train(*FOUR_EPOCHS), whole)


def test_resuming_from_sparse_checkpoints(train, whole, monkeypatch, capsys):
    """With a checkpoint every two epochs, epoch 3 is trained again after an interruption in epoch 4."""
    overrides = (*FOUR_EPOCHS, "checkpoint.every_n_epochs=2")
    with monkeypatch.context() as patch:
        interrupt(patch, KeepRows, epoch=4, after=True)
        with pytest.raises(RuntimeError):
            train(*overrides)
    capsys.readouterr()
    assert_same(whole, train(*overrides))
    assert "resuming from epoch 3" in capsys.readouterr().out


def test_interrupted_before_its_first_checkpoint_a_run_starts_again(train, whole, monkeypatch):
    with monkeypatch.context() as patch:
        interrupt(patch, KeepRows, epoch=1, after=True)
        with pytest.raises(RuntimeError):
            train(*FOUR_EPOCHS)
    assert_same(whole, train(*FOUR_EPOCHS))


def test_interrupted_between_training_and_summary(whole, train, runs_dir):
    shutil.copytree(whole.path.parent, runs_dir)
    (runs_dir / whole.name / "summary.json").unlink()
    again = train(*FOUR_EPOCHS)
    assert again.metrics() == whole.metrics()  # the seconds too: nothing was trained again
    assert_same(whole, again)


def half_way(train, monkeypatch, *overrides) -> None:
    """Train until the power goes off in epoch 4, its rows written and its checkpoint not."""
    with monkeypatch.context() as patch:
        interrupt(patch, KeepRows, epoch=4, after=True)
        with pytest.raises(RuntimeError):
            train(*FOUR_EPOCHS, *overrides)


def the_run(runs_dir) -> Run:
    (path,) = runs_dir.iterdir()
    return Run(path)


def cut(path) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


def flip_a_bit(path) -> None:
    """In the middle of a tensor, where only a checksum can tell."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def empty(path) -> None:
    path.write_bytes(b"")


def another_file(path) -> None:
    torch.save({"epoch": 2}, path)


@pytest.mark.parametrize("damage", [cut, flip_a_bit, empty, another_file])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(train, whole, runs_dir, monkeypatch, capsys, damage):
    half_way(train, monkeypatch)
    damage(the_run(runs_dir).checkpoint)
    capsys.readouterr()
    assert_same(whole, train(*FOUR_EPOCHS))
    lines = capsys.readouterr().out.splitlines()
    assert sum("last.ckpt: damaged; going on from the one before" in line for line in lines) == 1
    assert sum("resuming from epoch 3" in line for line in lines) == 1


def test_killed_between_the_two_renames(train, whole, runs_dir, monkeypatch, capsys):
    half_way(train, monkeypatch)
    the_run(runs_dir).checkpoint.unlink()
    assert_same(whole, train(*FOUR_EPOCHS))
    assert "resuming from epoch 3" in capsys.readouterr().out


def test_a_damaged_checkpoint_never_takes_the_place_of_a_good_one(train, whole, runs_dir, monkeypatch):
    """Fallen back, then interrupted at once: the good one is still there."""
    half_way(train, monkeypatch)
    cut(the_run(runs_dir).checkpoint)
    with monkeypatch.context() as patch:
        interrupt(patch, KeepRows, epoch=3, after=False)
        with pytest.raises(RuntimeError):
            train(*FOUR_EPOCHS)
    assert_same(whole, train(*FOUR_EPOCHS))


def test_two_damaged_checkpoints_are_one_line(train, runs_dir, monkeypatch):
    half_way(train, monkeypatch)
    run = the_run(runs_dir)
    for path in (run.checkpoint, run.previous_checkpoint):
        cut(path)
    with pytest.raises(UserError, match=r"^\S+: last\.ckpt and previous\.ckpt are damaged; delete them to start"):
        train(*FOUR_EPOCHS)


def test_a_line_cut_in_the_middle_is_written_again(train, whole, runs_dir, monkeypatch):
    half_way(train, monkeypatch)
    metrics = the_run(runs_dir).path / "metrics.csv"
    metrics.write_text(metrics.read_text()[:-20])
    assert [row["epoch"] for row in the_run(runs_dir).metrics()] == [1, 1, 2, 2, 3, 3, 4]
    assert_same(whole, train(*FOUR_EPOCHS))


def test_epochs_without_their_rows_are_not_gone_on_from(train, runs_dir, monkeypatch):
    half_way(train, monkeypatch)
    (the_run(runs_dir).path / "metrics.csv").unlink()
    with pytest.raises(UserError, match=r"metrics\.csv lacks epoch 1; delete last\.ckpt to start again"):
        train(*FOUR_EPOCHS)


def test_a_save_that_fails_leaves_both_checkpoints_as_they_were(train, whole, runs_dir, monkeypatch):
    half_way(train, monkeypatch)
    run = the_run(runs_dir)
    before = {path.name: path.read_bytes() for path in (run.checkpoint, run.previous_checkpoint)}
    with monkeypatch.context() as patch:

        def full(self, path, *_):
            path.write_bytes(b"half of a checkp")
            raise OSError(28, "No space left on device")

        patch.setattr(L.Trainer, "save_checkpoint", full)
        with pytest.raises(UserError, match="No space left"):
            train(*FOUR_EPOCHS)
    assert {path.name: path.read_bytes() for path in (run.checkpoint, run.previous_checkpoint)} == before
    assert not list(run.path.rglob("*.partial"))
    assert "No space left" in run.error.read_text()
    assert_same(whole, train(*FOUR_EPOCHS))
    assert not run.error.exists()
    assert not run.previous_checkpoint.exists()


@pytest.mark.parametrize(
    "crafted",
    [{"loops": {"fit_loop": {"epoch_progress": {"current": {"processed": 3}}}}}, {"pytorch-lightning_version": "?"}],
)
def test_a_checkpoint_with_all_its_keys_and_nonsense_in_them_is_a_line(train, runs_dir, monkeypatch, crafted):
    half_way(train, monkeypatch)
    run = the_run(runs_dir)
    torch.save(torch.load(run.checkpoint, weights_only=True) | crafted, run.checkpoint)
    with pytest.raises(UserError, match=r"last\.ckpt: training cannot go on from it .*; delete it to start again"):
        train(*FOUR_EPOCHS)


def test_a_checkpoint_without_the_state_of_its_optimizer_is_none(train, whole, runs_dir, monkeypatch):
    """Lightning would go on with a new one, to another end."""
    half_way(train, monkeypatch)
    run = the_run(runs_dir)
    torch.save(torch.load(run.checkpoint, weights_only=True) | {"optimizer_states": []}, run.checkpoint)
    assert_same(train(*FOUR_EPOCHS), whole)


@pytest.mark.parametrize(
    ("hook", "batch", "place", "left"),
    [
        ("on_train_batch_end", 0, "epoch 3, after 1 of 3 steps", 5),
        ("on_train_batch_end", 1, "epoch 3, after 2 of 3 steps", 4),
        ("on_train_batch_end", 2, "epoch 3, after 3 of 3 steps", 3),
        ("on_validation_batch_end", 0, "epoch 3, after 3 of 3 steps", 3),
        ("on_train_epoch_end", None, "epoch 4", 3),
    ],
)
def test_a_signal_ends_a_run_that_goes_on_from_that_step(
    train, whole, runs_dir, monkeypatch, capsys, hook, batch, place, left
):
    """In the middle of an epoch, in its last step, in its validation, or while its checkpoint is written.

    Three steps an epoch; ``left`` are those that the same command then takes.
    """
    original = getattr(KeepRows, hook)

    def signalled(self, trainer, pl_module, *rest):
        original(self, trainer, pl_module, *rest)
        if trainer.current_epoch == 2 and (batch is None or rest[2] == batch):
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(KeepRows, hook, signalled)
        with pytest.raises(Preempted, match="143"), signals_caught():
            train(*FOUR_EPOCHS)
    assert f"the same command resumes from {place}\n" in capsys.readouterr().out
    assert not the_run(runs_dir).error.exists()
    steps, step = [], LitPack.training_step
    monkeypatch.setattr(LitPack, "training_step", lambda self, *rest: steps.append(rest[1]) or step(self, *rest))
    assert_same(whole, train(*FOUR_EPOCHS))
    assert f"resuming from {place}\n" in capsys.readouterr().out
    assert len(steps) == left


def test_a_run_that_another_process_trains_is_left_alone(train, whole, runs_dir, monkeypatch):
    half_way(train, monkeypatch)
    run = the_run(runs_dir)
    stamps = {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}
    with (run.path / ".lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="in use by process"):
            train(*FOUR_EPOCHS)
        assert load_run(run.path).seed == 0  # who only reads needs no lock
    assert {path: path.stat().st_mtime_ns for path in run.path.rglob("*")} == stamps


# Stopping early


def accuracies(monkeypatch: pytest.MonkeyPatch, by_seed: dict[int, list[float]]) -> None:
    """Report these validation accuracies, one an epoch."""
    original = LitPack.on_validation_epoch_end

    def reporting(self):
        original(self)
        for row in self.rows:
            row["val_seq_acc"] = by_seed[row["seed"]][row["epoch"] - 1]

    monkeypatch.setattr(LitPack, "on_validation_epoch_end", reporting)


def test_a_run_stops_when_every_replica_has_got_there(train, monkeypatch):
    accuracies(monkeypatch, {0: [0.97, 0.5, 0.95, 0.9], 1: [0.2, 0.96, 0.99, 0.9]})
    run = train("seed=0-1", "trainer.max_epochs=4", "trainer.stop_at=0.95")
    assert [row["epoch"] for row in run.metrics()] == [1, 1, 2, 2, 3, 3]
    assert run.summary()["epochs"] == 3
    assert [seed["epochs_to_95"] for seed in run.summary()["seeds"]] == [1, 2]


def test_without_stop_at_a_run_goes_on(train, monkeypatch):
    accuracies(monkeypatch, {0: [1.0, 1.0, 1.0]})
    assert train("trainer.max_epochs=3").summary()["epochs"] == 3


def test_a_stopped_run_is_not_trained_further(train, monkeypatch):
    accuracies(monkeypatch, {0: [0.5, 0.97, 0.97, 0.97]})
    overrides = ("trainer.max_epochs=4", "trainer.stop_at=0.95")
    stopped = train(*overrides)
    before, rows = weights(stopped), stopped.metrics()
    (stopped.path / "summary.json").unlink()  # as if interrupted before the summary was written
    again = train(*overrides)
    assert again.metrics() == rows
    assert again.summary()["epochs"] == 2
    assert all(torch.equal(before[name], after) for name, after in weights(again).items())


# Loss that is no number


def test_a_loss_that_explodes_names_epoch_and_seed(train, runs_dir):
    with pytest.raises(UserError, match=r"the loss became (nan|inf) in epoch \d, seed 4; .*model\.optimizer\.lr"):
        train("model=nanogpt", "model.optimizer.lr=1e30", "seed=4")
    (run,) = (Run(path) for path in runs_dir.iterdir())
    assert not run.finished


def test_the_last_good_checkpoint_is_kept_when_one_seed_fails(train, runs_dir, monkeypatch):
    original = LitPack.on_train_epoch_start

    def poisoned(self):
        original(self)
        if self.current_epoch == 2:
            with torch.no_grad():
                next(iter(self.pack.parameters()))[1] = math.nan

    monkeypatch.setattr(LitPack, "on_train_epoch_start", poisoned)
    with pytest.raises(UserError, match="the loss became nan in epoch 3, seed 6"):
        train("seed=[5,6]", "trainer.max_epochs=4")
    (run,) = (Run(path) for path in runs_dir.iterdir())
    saved = torch.load(run.checkpoint, weights_only=True)
    assert saved["epoch"] == 1  # the second
    assert all(stack.isfinite().all() for stack in saved["state_dict"].values())
    assert [row["epoch"] for row in run.metrics()] == [1, 1, 2, 2]
    assert not run.finished
    assert not (run.path / "summary.json").exists()
    assert not list(run.path.rglob("*.partial"))


# Devices


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("option", [True, False, "auto"])
def test_compilation_is_for_cuda_unless_asked_for(option, device):
    assert wants_compile(option, torch.device(device)) is (device == "cuda" if option == "auto" else option)


def test_a_device_that_is_not_there_is_a_short_error(train, runs_dir):
    if torch.cuda.is_available():
        pytest.skip("there is one here")
    with pytest.raises(UserError, match=r"^trainer\.accelerator=cuda"):
        train("trainer.accelerator=cuda")
    assert not runs_dir.exists()


# One after another in a process


def state_of_the_process() -> dict:
    return {
        "threads": {thread.name for thread in threading.enumerate()},
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "dtype": torch.get_default_dtype(),
        "environment": {key: os.environ[key] for key in os.environ if key != "PYTEST_CURRENT_TEST"},
        "handlers": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "wandb": wandb.run,
        "warnings": len(warnings.filters),
    }


@pytest.mark.parametrize("fails", [False, True])
def test_a_job_leaves_nothing_behind_for_the_next(train, whole, monkeypatch, fails):
    """What one that finished, or one that failed, changed in the process; and the next comes to the same bits."""
    train("trainer.max_epochs=1", "logger=wandb")  # the first one imports, and sets what all share
    before = state_of_the_process()
    overrides = ("logger=wandb", "model=nanogpt", "trainer.precision=64-true", "trainer.max_epochs=1")
    with monkeypatch.context() as patch, pytest.raises(RuntimeError) if fails else nullcontext():
        interrupt(patch, ResumePoint, epoch=1 if fails else 9, after=False)
        train(*overrides)
    after = state_of_the_process()
    ours = after["threads"] - {name for name in after["threads"] if "wandb" in name.lower()}  # its service has its own
    assert ours <= before["threads"]
    assert {**after, "threads": None} == {**before, "threads": None}
    assert_same(whole, train(*FOUR_EPOCHS))


# Ways to train


@pytest.mark.parametrize(
    "overrides",
    [
        ("task=mul", "split=vs_t"),
        ("task=random_output", "split=vs_v", "task.seed=3"),
        ("model=nanogpt", "ablation=no_attention"),
        ("ablation=squeezed_encoder", "task.prompt_order=plain", "task.completion_order=plain"),
        ("trainer.precision=64-true", "task.bits=2"),
        ("trainer.precision=bf16-mixed",),
    ],
    ids=" ".join,
)
def test_any_combination_trains(train, overrides):
    run = train(*overrides, "trainer.max_epochs=1", "seed=0-1")
    assert run.summary()["epochs"] == 1
