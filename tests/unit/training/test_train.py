"""Whole runs of three-bit operands and one layer, and how accuracies are counted."""

import math
import os
import shutil
import signal
from functools import partial
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st
from lightning.pytorch.utilities.exceptions import SIGTERMException
from torch._dynamo.exc import TorchDynamoException
from torch._inductor import config as inductor_config

from arith_erd.catalog.loading import load_run
from arith_erd.config.compose import compose
from arith_erd.digits import PAD
from arith_erd.errors import UserError
from arith_erd.models.network import greedy_decode
from arith_erd.runs.directory import Run
from arith_erd.stats import stuck_status
from arith_erd.system.signals import Interrupted
from arith_erd.training.checkpoint import CheckpointWriter
from arith_erd.training.lit_pack import LitPack, accuracies
from arith_erd.training.train import say_unused_gpus
from tests.behaviour.interruption import assert_same, power_cut, weights_of
from tests.tiny import LEARNS


@pytest.mark.slow
def test_loss_of_an_epoch_is_the_mean_over_its_examples(train, monkeypatch):
    """A mean over its batches would differ, since the last is smaller."""
    losses, original = [], LitPack.training_step

    def spy(self, batch, batch_idx):
        loss = original(self, batch, batch_idx)
        losses.append(loss.item() * batch[0].shape[1])
        return loss

    monkeypatch.setattr(LitPack, "training_step", spy)
    (row,) = train("trainer.max_epochs=1").metrics()
    assert row["train_loss"] == pytest.approx(sum(losses) / 48, rel=1e-6)


def test_finished_run_has_weights_of_its_seeds_and_six_other_files(trained_pack):
    assert (trained_pack.path / ".lock").is_file()  # by whoever trains; nobody does any more
    root = trained_pack.path
    files = {path.relative_to(root).as_posix() for path in root.rglob("[!.]*") if path.is_file()}
    assert files == {
        *("config.yaml", "metrics.csv", "tokens.csv", "last.ckpt", "summary.json", "curves.png"),
        *("weights/seed=3.safetensors", "weights/seed=5.safetensors"),
    }
    assert trained_pack.curves_file.read_bytes().startswith(b"\x89PNG")
    assert yaml.safe_load((trained_pack.path / "config.yaml").read_text())["task"]["bits"] == 3


def test_summary_equals_decoding_everything(trained_pack):
    """So do the accuracies of the last row: dropout is off when they are measured."""
    tokens = pd.read_csv(trained_pack.tokens_file).query("epoch == 4").set_index(["seed", "split"])
    for entry in trained_pack.summary()["seeds"]:
        model = load_run(trained_pack.path, entry["seed"])
        examples = model.task.examples()
        held_out = model.provenance.split(examples)
        decoded = greedy_decode(model.network, torch.from_numpy(examples.prompt), model.task.width).numpy()
        right = decoded == examples.completion
        error = abs(model.task.decode(decoded) - examples.answer)
        assert entry["val_mae"] == pytest.approx(error[held_out].mean())
        assert entry["val_token_acc_autoregressive"] == pytest.approx(right[held_out].mean())
        assert entry["val_seq_acc"] == pytest.approx(right[held_out].all(axis=1).mean())
        assert entry["train_seq_acc"] == pytest.approx(right[~held_out].all(axis=1).mean())
        for t, name in enumerate(model.task.answer_names):
            counts = []
            for split, inside in (("train", ~held_out), ("val", held_out)):
                n, most_common = inside.sum(), np.bincount(examples.completion[inside, t]).max()
                counts.append((round(tokens.loc[(entry["seed"], split), name] * n), n, most_common / n))
            assert (stuck_status(*counts) == "never learned") == (name in entry["never_learnt"])


@pytest.mark.slow
def test_each_replica_of_a_pack_stops_where_it_stops_alone_and_is_not_trained_further(
    train, train_in, tmp_path, monkeypatch
):
    """Up to rounding: weights, rows and summary. An interruption after the first has stopped changes no bit."""
    accuracies, original = ([0.97, 0.5, 0.5, 0.5], [0.2, 0.3, 0.96, 0.5]), LitPack.on_validation_epoch_end

    def reporting(self):
        original(self)
        for row in self.rows:
            row["val_seq_acc"] = accuracies[row["seed"]][row["epoch"] - 1]

    monkeypatch.setattr(LitPack, "on_validation_epoch_end", reporting)
    options = (*LEARNS, "trainer.max_epochs=4", "trainer.stop_at=0.95")
    pack = train(*options, "seed=0-1")
    assert pack.summary()["epochs"] == 3
    for seed, epochs in ((0, 1), (1, 3)):
        alone = train(*options, f"seed={seed}")
        assert alone.summary()["epochs"] == epochs
        mine, theirs = weights_of(pack, seed), weights_of(alone, seed)
        assert all(torch.allclose(mine[name], theirs[name], rtol=0, atol=1e-4) for name in theirs)
        rows = [row for row in pack.metrics() if row["seed"] == seed]
        for row, own in zip(rows, alone.metrics(), strict=False):
            assert {**row, "seconds": 0} == pytest.approx({**own, "seconds": 0}, abs=1e-4)
        for row in rows[epochs:]:
            assert row | {"epoch": 0, "seconds": 0} == rows[epochs - 1] | {"epoch": 0, "seconds": 0}
    again = partial(train_in, tmp_path / "interrupted")
    power_cut(again, CheckpointWriter, 2, True, *options, "seed=0-1")
    assert_same(pack, again(*options, "seed=0-1"))
    rows = pack.metrics()
    pack.summary_file.unlink()  # as if interrupted before it was written
    assert train(*options, "seed=0-1").metrics() == rows
    assert pack.summary()["epochs"] == 3


def test_last_good_checkpoint_is_kept_when_one_seed_fails(train, runs_dir, monkeypatch):
    original = LitPack.on_train_epoch_start

    def poisoned(self):
        original(self)
        if self.current_epoch == 2:
            with torch.no_grad():
                next(iter(self.pack.parameters()))[1] = math.nan

    monkeypatch.setattr(LitPack, "on_train_epoch_start", poisoned)
    with pytest.raises(UserError, match=r"the loss became nan in epoch 3, seed 6; .*model\.optimizer\.lr"):
        train("seed=[5,6]", "trainer.max_epochs=4")
    (run,) = (Run(path) for path in runs_dir.iterdir())
    saved = torch.load(run.checkpoint_file, weights_only=True)
    assert saved["epoch"] == 1  # the second
    assert all(stack.isfinite().all() for stack in saved["state_dict"].values())
    assert [row["epoch"] for row in run.metrics()] == [1, 1, 2, 2]
    assert not run.finished
    assert not (run.path / "summary.json").exists()
    assert not list(run.path.rglob(".partial-*"))


@pytest.mark.parametrize(
    ("raised", "expected", "said"),
    [
        (SystemExit(0), UserError, r"^test_train\.py, line \d+: SystemExit: 0; expected a result, or an error"),
        (GeneratorExit(), UserError, r"^test_train\.py, line \d+: GeneratorExit; expected a result"),
        *((stop, type(stop), None) for stop in (KeyboardInterrupt(), Interrupted(signal.SIGTERM), SIGTERMException())),
    ],
)
def test_own_code_that_exits_is_a_failed_run_and_a_signal_is_not(raised, expected, said, train, runs_dir, monkeypatch):
    def exits(*_):
        raise raised

    monkeypatch.setattr(LitPack, "training_step", exits)
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(expected, match=said):
        train()
    signal.signal(signal.SIGINT, handler)  # Lightning ignores a second Ctrl-C
    (run,) = (Run(path) for path in runs_dir.iterdir())
    assert run.error_file.exists() == (expected is UserError)


@pytest.mark.slow
def test_sweep_compiles_every_pack(train, monkeypatch):
    """Two packs, each with versions of its own for two batch sizes; more than that would end in an error here."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))  # no C++: it is about the counting
    monkeypatch.setattr("arith_erd.training.pack.RECOMPILE_LIMIT", 2)
    with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
        for seeds in ("0-1", "2-3"):
            train("model=nanogpt", "trainer.max_epochs=1", "trainer.compile=true", f"seed={seeds}")


@pytest.fixture
def always_compiles(monkeypatch):
    """Make ``auto`` compile, however short the run is."""
    monkeypatch.setattr("arith_erd.training.pack.MIN_OPERATIONS_TO_COMPILE", 0)
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def test_compiler_that_fails_leaves_auto_uncompiled_and_refuses_true(
    train_in, always_compiles, tmp_path, monkeypatch, capsys
):
    def compiled(function, **options):
        return Mock(side_effect=TorchDynamoException("no omp.h"))

    plain = train_in(tmp_path / "plain", "trainer.compile=false", "trainer.max_epochs=1")
    monkeypatch.setattr(torch, "compile", compiled)
    capsys.readouterr()
    tried = train_in(tmp_path / "tried", "trainer.compile=auto", "trainer.max_epochs=1")
    assert_same(tried, plain)
    assert "TorchDynamoException: no omp.h" in capsys.readouterr().err
    assert not tried.error_file.exists()
    said = r"^trainer\.compile=true: expected auto or false, since the compiler fails here"
    with pytest.raises(UserError, match=said):
        train_in(tmp_path / "true", "trainer.compile=true")


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="no C++ compiler")
@pytest.mark.parametrize("broken", ["backwards", "in the first evaluation"])
def test_auto_trains_to_the_end_whenever_the_compiler_breaks(
    broken, train, always_compiles, tmp_path, monkeypatch, capsys
):
    """A C++ compiler without OpenMP, as on a Mac."""
    compiler = tmp_path / "g++"
    says = "echo \"fatal error: 'omp.h' file not found\" >&2; exit 1"
    compiler.write_text(f'#!/bin/sh\ncase "$*" in *-*version) exec g++ "$@";; esac\n{says}\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    with inductor_config.patch({"cpp.cxx": ("g++",), "fx_graph_cache": False}):

        def breaks(*_):
            inductor_config.cpp.cxx = (str(compiler),)

        hook = "on_before_backward" if broken == "backwards" else "on_validation_start"
        monkeypatch.setattr(LitPack, hook, breaks)
        run = train("model=nanogpt", "trainer.compile=auto", "trainer.max_epochs=1")
    said = "trainer.compile=auto: not compiled, since the compiler fails here: InductorError: CppCompileError: "
    assert said in (err := capsys.readouterr().err)
    assert "fatal error: 'omp.h' file not found" in err
    assert run.finished


def test_folder_for_compiled_code_that_cannot_be_made_is_not_used(train, monkeypatch, capsys):
    """If it were used, PyTorch would not load what optimizers import."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/proc/nope")
    assert train("trainer.max_epochs=1").finished
    assert capsys.readouterr().err == "TORCHINDUCTOR_CACHE_DIR=/proc/nope: not used (No such file or directory)\n"
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == "/proc/nope"


@pytest.mark.slow
@pytest.mark.parametrize("overrides", [("task=mul", "trainer.precision=64-true"), ("trainer.precision=bf16-mixed",)])
def test_other_precisions_train_and_a_missing_gpu_is_refused(train, overrides, monkeypatch):
    assert train(*overrides, "trainer.max_epochs=1", "seed=0-1").summary()["epochs"] == 1
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    said = r"^trainer\.accelerator=gpu: expected cpu or auto: PyTorch sees no CUDA device"
    with pytest.raises(UserError, match=said):
        train(*overrides, "trainer.accelerator=gpu")


@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 6), st.integers(0, 99))
def test_accuracies_equal_counting(replicas: int, length: int, size: int, seed: int) -> None:
    """Predictions are (R, N, m), completions (N, m). Unused tokens, perhaps a whole column, do not count."""
    random = np.random.default_rng(seed)
    predicted = random.integers(3, 5, size=(replicas, size, length))
    completion = random.integers(3, 5, size=(size, length))
    completion[:, 1:][random.random((size, length - 1)) < 0.3] = PAD
    used, right = completion != PAD, predicted == completion
    found = accuracies(torch.from_numpy(predicted), torch.from_numpy(completion)).numpy()
    for own, hits in zip(found, right, strict=True):
        columns = (hits[used[:, t], t] for t in range(length))
        by_token = [column.mean() if column.size else np.nan for column in columns]
        expected = [hits[used].mean(), (hits | ~used).all(axis=1).mean(), *by_token]
        assert own == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    ("gpus", "accelerator", "said"), [("0,1,2", "auto", True), ("0,1,2", "cpu", False), ("0", "auto", False)]
)
def test_gpus_that_stay_idle_are_named_in_one_line(gpus, accelerator, said, monkeypatch, capsys):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpus)
    say_unused_gpus(compose("train", [f"trainer.accelerator={accelerator}"]))
    line = "3 GPUs are visible and this uses one; -m hydra/launcher=gpus trains packs on all of them\n"
    assert capsys.readouterr().out == (line if said else "")
