"""Loaded networks are the trained ones; what cannot be loaded is refused in one line."""

import shutil
from functools import partial

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from arith_erd.catalog.loading import (
    PRETRAINED,
    list_pretrained,
    load_handcoded,
    load_pretrained,
    load_run,
    load_seeds,
    load_weights,
)
from arith_erd.errors import UserError
from arith_erd.models import Transformer
from arith_erd.runs.directory import Run, require_runs
from arith_erd.tasks import Add
from tests.tiny import LEARNS


@pytest.fixture
def run(trained_pack, tmp_path) -> Run:
    """A copy of the trained pack, to damage."""
    return Run(shutil.copytree(trained_pack.path, tmp_path / trained_pack.name))


def logits(model) -> torch.Tensor:
    return model.run(model.task.examples())


@pytest.mark.parametrize(("index", "seed"), [(0, 3), (1, 5)])
def test_loaded_network_is_the_trained_replica_and_has_its_reported_accuracy(trained_pack, index, seed):
    model = load_run(trained_pack.path, seed)
    stacks = torch.load(trained_pack.checkpoint_file, weights_only=True)["state_dict"]
    for name, value in model.network.state_dict().items():
        assert torch.equal(value, stacks[f"pack.stacked.{name}"][index])
    assert (model.name, model.seed) == (trained_pack.name, seed)
    examples = model.task.examples()
    hits = logits(model).argmax(-1) == torch.from_numpy(examples.completion)
    held_out = torch.from_numpy(model.provenance.split(examples))
    reported = next(row for row in reversed(trained_pack.metrics()) if row["seed"] == seed)
    assert hits[held_out].double().mean().item() == pytest.approx(reported["val_token_acc"])
    assert hits[~held_out].double().mean().item() == pytest.approx(reported["train_token_acc"])
    assert hits[held_out].all(-1).double().mean().item() == pytest.approx(reported["val_seq_acc"])


def test_a_run_whose_sources_changed_loads_with_a_warning(run, monkeypatch):
    run.finish(run.summary() | {"sources": {"mine": "old"}})
    monkeypatch.setattr("arith_erd.catalog.loading.source_hashes", lambda _: {"mine": "new"})
    with pytest.warns(UserWarning, match="none-.*: the sources of mine have changed since it was trained"):
        load_run(run.path)
    for text in ('{"sources": null}', "{"):  # nothing to compare
        run.summary_file.write_text(text)
        load_run(run.path)


def test_runs_are_found_by_folder_or_glob_and_missing_runs_seeds_and_epochs_refused(trained_pack, tmp_path):
    path = trained_pack.path
    assert require_runs(f"{path.parent}/add-*") == require_runs(str(path)) == [path]
    assert [model.seed for model in load_seeds(path)] == [3, 5]
    for call, said in (
        (lambda: require_runs(f"{tmp_path}/nothing-*"), r"^run=.*nothing-\*: no such folder"),
        (
            lambda: require_runs(str(path.parent)),
            r"^run=\S+: a folder with 1 run; expected run=\S+/NAME, or run='\S+/\*'",
        ),
        (lambda: load_run(tmp_path), "not a run directory"),
        (lambda: load_run(path, 4), r"^seed=4: .* has the seeds 3, 5$"),
        (lambda: load_run(path, 3.0), r"^seed=3\.0: .* has the seeds 3, 5$"),
        (lambda: load_run(path, 3, 3), "^epoch=3: .*epoch 4 and 0 .*checkpoint.keep"),
        (lambda: load_run(path, 3, -1), "^epoch=-1: .*an int"),
        (lambda: load_run(path, 3, "2"), "^epoch='2': .*an int"),
        (lambda: load_handcoded("erd", task=Add(bits=5)), r"^task: received Add\(bits=5\); expected task=add with"),
        (lambda: load_handcoded("erd", 0, Add(interleaved=True)), r"received Add\(.*interleaved=True\); expected"),
    ):
        with pytest.raises(UserError, match=said):
            call()


def test_unfinished_run_loads_from_its_last_checkpoint(run, trained_pack):
    """It has the epoch of these weights; metrics.csv may have later ones."""
    shutil.rmtree(run.path / "weights")
    (run.path / "summary.json").unlink()
    lines = run.metrics_file.read_text().splitlines()
    run.metrics_file.write_text("\n".join([*lines, *(f"5{line[1:]}" for line in lines[-2:])]) + "\n")
    assert load_run(run.path, 3).provenance.epoch == 4
    for seed in (3, 5):
        assert torch.equal(logits(load_run(run.path, seed)), logits(load_run(trained_pack.path, seed)))
    for file in (run.checkpoint_file, run.weights_file(5)):
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"cut")
        with pytest.raises(UserError, match=rf"{file.name}: cannot be read .* delete it and give the command"):
            load_run(run.path, 5)
        file.unlink()
    with pytest.raises(UserError, match="no weights of seed 5"):
        load_run(run.path, 5)


def test_each_kept_epoch_loads_with_its_weights(whole, train_in, tmp_path):
    """Epoch 2 of 4 has the weights of a run of two epochs, the last one the final ones; 0 is before training."""
    short = train_in(tmp_path, *LEARNS, "trainer.max_epochs=2", "seed=0-1")
    for epoch, same in ((2, load_run(short.path, 1)), (4, load_run(whole.path, 1))):
        model = load_run(whole.path, 1, epoch)
        assert model.provenance.epoch == epoch
        assert torch.equal(logits(model), logits(same))
    first = load_run(whole.path, 1, 0)
    assert torch.equal(logits(first), logits(load_run(short.path, 1, 0)))
    assert not torch.equal(logits(first), logits(load_run(whole.path, 1, 1)))


@pytest.mark.parametrize(("name", "size"), [("head.bias", 0), ("head.scale", 5), ("head.bias", 7)])
def test_weights_that_do_not_fit_are_refused_by_name(run, name, size):
    """A weight is missing, is one too many, or has another shape."""
    state = load_file(run.weights_file(3)) | ({name: torch.ones(size)} if size else {})
    save_file(state if size else {key: x for key, x in state.items() if key != name}, run.weights_file(3))
    with pytest.raises(UserError, match=rf"weights do not fit its config\.yaml: {name}$"):
        load_run(run.path, 3)


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_weights_under_our_own_names_load_from_a_file(suffix, tmp_path):
    make = partial(Transformer, 7, 4, d_model=16, num_heads=2, num_layers=1)
    network = make()
    path = tmp_path / f"weights{suffix}"
    (save_file if suffix == ".safetensors" else torch.save)(network.state_dict(), path)
    loaded = load_weights(path, Add(bits=3), make).network
    assert all(torch.equal(p, q) for p, q in zip(network.parameters(), loaded.parameters(), strict=True))


def test_finished_runs_are_found_by_name_and_seed_and_others_refused(trained_pack: Run) -> None:
    folder = trained_pack.path.parent
    assert list_pretrained(folder) == {"add-transformer": {3: trained_pack.path, 5: trained_pack.path}}
    loaded, expected = load_pretrained("add-transformer", 5, folder), load_run(trained_pack.path, 5)
    assert (loaded.name, loaded.seed) == (expected.name, 5)
    refused = (("sub-mlp", 3, "add-transformer"), ("add-transformer", 4, "3, 5 for add-transformer"))
    for name, seed, said in (*refused, ("erd", None, r"by hand.*load_handcoded\('erd'\)")):
        with pytest.raises(UserError, match=said):
            load_pretrained(name, seed, folder)


def test_damaged_run_is_named_and_not_listed(tmp_path):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "summary.json").touch()
    with pytest.warns(UserWarning, match=r"/bad: left out \(.*config\.yaml cannot be read: No such file"):
        assert list_pretrained(tmp_path) == {}


CHECKED = {name: min(runs) for name, runs in list_pretrained().items()}


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("name", CHECKED)
def test_network_in_the_repository_is_as_accurate_as_its_summary_says(name: str) -> None:
    """We ask a sample of the held-out pairs, and allow five standard deviations of such a sample."""
    model = load_pretrained(name, seed := CHECKED[name])
    (said,) = (entry for entry in Run(PRETRAINED / model.name).summary()["seeds"] if entry["seed"] == seed)
    examples = model.task.examples()
    chosen = np.random.default_rng(0).permutation(np.flatnonzero(model.provenance.split(examples)))[:256]
    deviation = (said["val_seq_acc"] * (1 - said["val_seq_acc"]) / len(chosen)) ** 0.5
    near = pytest.approx(said["val_seq_acc"], abs=5 * deviation + 1 / len(chosen))
    assert model.accuracy(examples[chosen]) == near
