"""Training on operands of several lengths: what is measured apart, and that a seed alone is the seed in a pack."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch

from arith_erd.config.compose import compose
from arith_erd.errors import UserError
from arith_erd.interp.loading import load_run
from arith_erd.losses import CrossEntropy
from arith_erd.splits import LengthSplit
from arith_erd.tasks import Add
from arith_erd.training.callbacks import MetricsWriter
from tests.behaviour.interruption import assert_same, power_cut, weights_of
from tests.tiny import LEARNS

LENGTHS = (*LEARNS, "task.bits=5", "task.min_bits=1", "data.examples=200", "split=length", "split.trained=3")


def test_slices_are_accuracies_of_the_examples_of_their_kind(train):
    run = train(*LENGTHS, "model.net.positions=abacus", "trainer.max_epochs=6", "seed=0-1")
    examples = Add(5, min_bits=1).sample(200)
    held_out = LengthSplit(3)(examples)
    slices = (
        pd.read_csv(run.slices_file)
        .query("epoch == 6")
        .set_index(["seed", "slice", "value"])["val_seq_acc"]
        .sort_index()
    )
    kinds = {"length": examples.length, "longest_carry": Add(5).longest_carry(examples)}
    for seed, (name, values) in ((seed, kind) for seed in (0, 1) for kind in kinds.items()):
        model = load_run(run.path, seed)
        chosen = [held_out & (values == value) for value in np.unique(values[held_out])]
        found = [model.accuracy(examples[of]) for of in chosen]
        assert slices[seed, name].tolist() == pytest.approx(found)
    assert load_run(run.path, 0).split is None  # which was of the examples drawn
    load_run(run.path, 1).save_pretrained(run.path / "saved")
    (said,) = (row["val_seq_acc"] for row in run.summary()["seeds"] if row["seed"] == 1)
    assert f"{held_out.sum()} held-out examples: {said:.2%}" in (run.path / "saved" / "README.md").read_text()
    assert max(row["val_seq_acc"] for row in run.metrics()) > 0
    assert run.curves.is_file()


def test_seed_alone_is_the_seed_in_a_pack_and_a_power_cut_changes_nothing(train_in, tmp_path):
    options = (*LENGTHS, "model.net.positions=coupled", "trainer.max_epochs=3")
    packed, alone = train_in(tmp_path, *options, "seed=[2,5]"), train_in(tmp_path, *options, "seed=5")
    mine, theirs = weights_of(alone, 5), weights_of(packed, 5)
    assert all(torch.allclose(mine[name], theirs[name], rtol=0, atol=1e-3) for name in mine)
    power_cut(partial(train_in, tmp_path / "cut"), MetricsWriter, 2, True, *options, "seed=5")
    again = train_in(tmp_path / "cut", *options, "seed=5")
    assert_same(alone, again)
    assert alone.slices_file.read_text() == again.slices_file.read_text()


def test_loss_leaves_unused_tokens_out():
    examples = Add(4, min_bits=2).examples([1, 5], [2, 6], length=[2, 4])
    completion = torch.as_tensor(examples.completion)[None]  # (1, 2, 5), the first of 3 digits
    logits = torch.randn(1, 2, 5, 5, generator=torch.Generator().manual_seed(0))
    loss = CrossEntropy()
    loss.padded = True
    each = torch.nn.functional.cross_entropy(logits[0].movedim(-1, 1), completion[0], reduction="none")
    torch.testing.assert_close(loss(logits, completion)[0], torch.cat([each[0, :3], each[1]]).mean())


def test_options_that_do_not_fit_are_one_line(train):
    with pytest.raises(UserError, match=r"^data\.examples=null: expected how many to draw, since task\.min_bits=1$"):
        train("task.min_bits=1")
    with pytest.raises(UserError, match=r"^data\.examples=9: expected null: all 64 examples are used"):
        train("data.examples=9")
    with pytest.raises(UserError, match=r"operands of one length; expected task\.min_bits=null"):
        train(*LENGTHS[2:], "model=transformer")
    with pytest.raises(UserError, match=r"^task\.min_bits=1: expected null, since model=gru takes one length only$"):
        compose("train", ["model=gru", *LENGTHS[2:]]).network()
    for options, message in {
        "split=vs_v": r"^split=vs_v: expected random or length, for operands of several lengths$",
        "loss=cross_entropy_and_value model.loss.site=dec.1": r"^model\.loss: task=add has operands of several lengths",
        "ablation=no_positional_encoding model.net.positions=rope": r"^model\.net\.positions=rope: expected learned,",
    }.items():
        with pytest.raises(UserError, match=message):
            train(*[word for word in LENGTHS if "split" not in word or "split=" not in options], *options.split())
