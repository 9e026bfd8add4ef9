"""Each seed sees every training example once an epoch, in an order of its own; and operands of several lengths."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from arith_erd.catalog.export import save_pretrained
from arith_erd.catalog.loading import load_run
from arith_erd.config.compose import compose
from arith_erd.errors import UserError
from arith_erd.losses import CrossEntropy
from arith_erd.plots.curves import draw_learning_curves
from arith_erd.splits import LengthSplit, RandomSplit, TokenSplit, ValueSplit
from arith_erd.tasks import Add, Mul
from arith_erd.training.build import build_task_data
from arith_erd.training.data import TaskData, TrainBatches
from arith_erd.training.fit import fit
from tests.tiny import LEARNS

SEEDS = (4, 0, 11)


@pytest.fixture(scope="module")
def data() -> TaskData:
    return TaskData(Add(4), RandomSplit(), SEEDS, batch_size=40)  # 192 training examples: 4 batches of 40, one of 32


def batches(data: TaskData, seeds=SEEDS, epoch: int = 0, size: int = 40, taken: int = 0) -> list:
    steps = -(-len(data.train[0]) // size)
    return list(TrainBatches(data.train, seeds, size, step=lambda: epoch * steps + taken))


def examples(prompt: torch.Tensor, completion: torch.Tensor) -> list[tuple[int, ...]]:
    return [tuple(row) for row in torch.cat([prompt, completion], dim=-1).tolist()]


@pytest.mark.parametrize("epoch", [0, 1, 49])
def test_epoch_shows_each_replica_every_training_example_once_as_its_seed_alone(data, epoch):
    torch.manual_seed(epoch)  # does not matter
    packed = batches(data, epoch=epoch)
    for index, seed in enumerate(SEEDS):
        seen = [row for prompt, completion in packed for row in examples(prompt[index], completion[index])]
        assert sorted(seen) == sorted(examples(*data.train))
        for (prompt, completion), (p, c) in zip(packed, batches(data, [seed], epoch), strict=True):
            assert torch.equal(prompt[index], p[0])
            assert torch.equal(completion[index], c[0])


@pytest.mark.parametrize("split", [RandomSplit(), TokenSplit(), ValueSplit()])
@pytest.mark.parametrize("task", [Add(4), Mul(4, "plain", "plain")])
def test_subsets_share_nothing_make_up_the_table_and_are_evaluated_whole(split, task):
    data = TaskData(task, split, SEEDS, 128)
    train, validation = (examples(*half) for half in (data.train, data.validation))
    table = task.examples()
    everything = examples(torch.from_numpy(table.prompt), torch.from_numpy(table.completion))
    assert not set(train) & set(validation)
    assert sorted(train + validation) == sorted(everything)
    held_out = split(table)
    assert validation == [row for row, out in zip(everything, held_out, strict=True) if out]
    for evaluated, subset in zip(data.val_dataloader(), (train, validation), strict=True):
        assert [row for prompt, completion in evaluated for row in examples(prompt, completion)] == subset


@pytest.mark.parametrize(("answer", "number"), [(True, 64), (False, 0)])
def test_split_that_leaves_one_side_empty_is_refused(answer: bool, number: int) -> None:
    job = replace(compose("train", ["task.bits=3"]), split=lambda examples: np.full(len(examples), answer))
    with pytest.raises(UserError, match=rf"^split=random: holds out {number} of 64 examples; expected at least 1"):
        build_task_data(job)


class Whole:
    def __call__(self, examples):
        return np.array([True])


def test_split_that_answers_for_all_examples_together_is_refused():
    with pytest.raises(UserError, match=r"^split\._target_=.*Whole: expected a split: True or False for each example$"):
        fit(Add(bits=3), split=Whole(), epochs=1)


class DrawnAtEachCall:
    def __call__(self, examples):
        return np.random.default_rng().random(len(examples)) < 0.25


class DrawnOnce:
    def __init__(self):
        self.mask = np.random.default_rng().random(64) < 0.25

    def __call__(self, examples):
        return self.mask[: len(examples)]


class DrawnInTurn:
    def __init__(self):
        self.rng = np.random.default_rng(0)

    def __call__(self, examples):
        return self.rng.random(len(examples)) < 0.25


class AnyAnswer(Add):
    def answer(self, *operands):
        return np.random.default_rng().integers(16, size=len(operands[0]))


class AnyTable(Add):
    def __init__(self, bits=3):
        super().__init__(bits)
        self.table = np.random.default_rng().integers(16, size=64)

    def answer(self, *operands):
        return self.table[operands[0] * 8 + operands[1]]


@pytest.mark.parametrize(
    ("task", "split", "key"),
    [
        (Add(bits=3), DrawnAtEachCall(), "split=drawnateachcall"),
        (Add(bits=3), DrawnOnce(), "split=drawnonce"),
        (Add(bits=3), DrawnInTurn(), "split=drawninturn"),
        *((task(bits=3), None, "task=add") for task in (AnyAnswer, AnyTable)),
    ],
)
def test_examples_that_are_drawn_anew_each_time_are_refused(task, split, key):
    """Else a loaded network would have other answers or other held-out examples than it was trained with."""
    said = f"^{key}: gives other examples when it is made or asked again; expected the same"
    with pytest.raises(UserError, match=said):
        fit(task, split=split, epochs=1)


LENGTHS = (*LEARNS, "task.bits=5", "task.min_bits=1", "data.examples=200", "split=length", "split.trained=3")


def test_slices_are_accuracies_of_the_examples_of_their_kind(train):
    run = train(*LENGTHS, "model.net.positions=abacus", "trainer.max_epochs=6", "seed=0-1")
    examples = Add(5, min_bits=1).sample(200)
    held_out = LengthSplit(3)(examples)
    slices = pd.read_csv(run.slices_file).query("epoch == 6").set_index(["seed", "slice"])["val_seq_acc"].sort_index()
    kinds = Add(5).slices(examples)
    for seed, (name, values) in ((seed, kind) for seed in (0, 1) for kind in kinds.items()):
        model = load_run(run.path, seed)
        chosen = [held_out & (values == value) for value in np.unique(values[held_out])]
        found = [model.accuracy(examples[of]) for of in chosen]
        assert slices[seed, name].tolist() == pytest.approx(found)
    assert load_run(run.path, 0).provenance.split is None  # which was of the examples drawn
    save_pretrained(load_run(run.path, 1), run.path / "saved")
    (said,) = (row["val_seq_acc"] for row in run.summary()["seeds"] if row["seed"] == 1)
    assert f"{held_out.sum()} held-out examples: {said:.2%}" in (run.path / "saved" / "README.md").read_text()
    assert max(row["val_seq_acc"] for row in run.metrics()) > 0
    assert draw_learning_curves(run.metrics(), run.name, pd.read_csv(run.slices_file)).axes


def test_loss_leaves_unused_tokens_out():
    examples = Add(4, min_bits=2).examples([1, 5], [2, 6], length=[2, 4])
    completion = torch.as_tensor(examples.completion)  # (2, 5), the first of 3 digits
    logits = torch.randn(2, 5, 5, generator=torch.Generator().manual_seed(0))
    loss = CrossEntropy()
    loss.prepare(torch.nn.Identity(), Add(4, min_bits=2), examples)
    each = torch.nn.functional.cross_entropy(logits.movedim(-1, 1), completion, reduction="none")
    torch.testing.assert_close(loss.loss_of_logits(logits, completion), torch.cat([each[0, :3], each[1]]).mean())


@pytest.mark.slow
def test_options_that_do_not_fit_give_a_one_line_error(train):
    with pytest.raises(UserError, match=r"data\.examples=null: .*; task=add has operands of several lengths$"):
        train("task.min_bits=1")
    with pytest.raises(UserError, match=r"^data\.examples=9: expected null: all 64 examples are used"):
        train("data.examples=9")
    with pytest.raises(UserError, match=r"^task\.min_bits: expected null, since an encoder-decoder takes"):
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
