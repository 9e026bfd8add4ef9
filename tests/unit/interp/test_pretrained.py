"""Trained networks are found by their short names."""

from pathlib import Path

import numpy as np
import pytest
import torch

from arith_erd.errors import UserError
from arith_erd.interp.pretrained import BOX, load_pretrained, pretrained
from arith_erd.interp.subject import load_run
from arith_erd.models.decoding import shift_right
from arith_erd.runs import Run

SAMPLE = 256  # held-out pairs of each network


def test_finished_runs_are_found_by_name_and_seed(trained_pack: Run) -> None:
    box = trained_pack.path.parent
    assert pretrained(box) == {"add-transformer": {3: trained_pack.path, 5: trained_pack.path}}
    loaded, expected = load_pretrained("add-transformer", 5, box), load_run(trained_pack.path, 5)
    assert (loaded.name, loaded.seed) == (expected.name, 5)


@pytest.mark.parametrize(
    ("name", "seed", "said"), [("sub-mlp", 3, "add-transformer"), ("add-transformer", 4, "3, 5 for add-transformer")]
)
def test_unknown_names_and_seeds_are_refused(name: str, seed: int, said: str, trained_pack: Run) -> None:
    with pytest.raises(UserError, match=said):
        load_pretrained(name, seed, trained_pack.path.parent)


def test_empty_box_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no finished run"):
        load_pretrained("add-transformer", box=tmp_path)


BOXED = [(name, seed) for name, runs in pretrained().items() for seed in runs]


def test_networks_behind_the_results_are_in_the_box() -> None:
    assert {("add-transformer", 0), ("add-nanogpt", 0)} <= set(BOXED)
    with pytest.raises(UserError, match=r"^name=add-nothing: expected .*add-nanogpt.* or .*add-transformer"):
        load_pretrained("add-nothing")


@torch.no_grad()
@pytest.mark.parametrize(("name", "seed"), BOXED)
def test_network_in_the_box_is_as_accurate_as_its_summary_says(name: str, seed: int) -> None:
    """On a sample of the held-out pairs, within five standard deviations of such a sample."""
    subject = load_pretrained(name, seed)
    (said,) = (entry for entry in Run(BOX / subject.name).summary()["seeds"] if entry["seed"] == seed)
    examples = subject.task.examples()
    chosen = np.random.default_rng(0).permutation(np.flatnonzero(subject.split(examples)))[:SAMPLE]
    prompt, completion = (torch.from_numpy(x[chosen]) for x in (examples.prompt, examples.completion))
    right = (subject.network(prompt, shift_right(completion)).argmax(-1) == completion).all(-1)
    deviation = (said["val_seq_acc"] * (1 - said["val_seq_acc"]) / len(right)) ** 0.5
    assert right.double().mean().item() == pytest.approx(said["val_seq_acc"], abs=5 * deviation + 1 / len(right))
