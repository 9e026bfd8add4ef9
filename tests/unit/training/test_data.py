"""Each seed sees every training example once an epoch, in an order of its own that depends on nothing else."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from arith_erd.config.compose import compose
from arith_erd.errors import UserError
from arith_erd.splits import RandomSplit, TokenSplit, ValueSplit
from arith_erd.tasks import Add, Mul
from arith_erd.training.assemble import table_data
from arith_erd.training.data import EvaluationBatches, TableData, TrainBatches, evaluation_batch_size

SEEDS = (4, 0, 11)


@pytest.fixture(scope="module")
def data() -> TableData:
    return TableData(Add(4), RandomSplit(), SEEDS, batch_size=40)  # 192 training examples: 4 batches of 40, one of 32


def batches(data: TableData, seeds=SEEDS, epoch: int = 0, size: int = 40, taken: int = 0) -> list:
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


@pytest.mark.parametrize(("size", "sizes"), [(40, [40] * 4 + [32]), (192, [192]), (500, [192]), (191, [191, 1])])
def test_last_smaller_batch_is_kept(data, size, sizes):
    found = batches(data, size=size)
    assert [prompt.shape for prompt, _ in found] == [(3, size, 9) for size in sizes]
    assert [completion.shape for _, completion in found] == [(3, size, 5) for size in sizes]
    assert [len(prompt) for prompt, _ in EvaluationBatches(*data.validation, 50)] == [50, 14]


@pytest.mark.parametrize("taken", [0, 1, 4])
def test_interrupted_epoch_continues_with_the_remaining_batches(data, taken):
    left, whole = batches(data, epoch=2, taken=taken), batches(data, epoch=2)[taken:]
    assert all(torch.equal(x, y) for a, b in zip(left, whole, strict=True) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("split", [RandomSplit(), TokenSplit(), ValueSplit()])
@pytest.mark.parametrize("task", [Add(4), Mul(4, "plain", "plain")])
def test_subsets_share_nothing_make_up_the_table_and_are_evaluated_whole(split, task):
    data = TableData(task, split, SEEDS)
    train, validation = (examples(*half) for half in (data.train, data.validation))
    table = task.examples()
    everything = examples(torch.from_numpy(table.prompt), torch.from_numpy(table.completion))
    assert not set(train) & set(validation)
    assert sorted(train + validation) == sorted(everything)
    held_out = split(table)
    assert validation == [row for row, out in zip(everything, held_out, strict=True) if out]
    for evaluated, subset in zip(data.val_dataloader(), (train, validation), strict=True):
        assert [row for prompt, completion in evaluated for row in examples(prompt, completion)] == subset


@pytest.mark.parametrize(("device", "replicas"), [("cpu", 1), ("cpu", 64), ("cuda", 15), ("cuda", 1000)])
def test_papers_subsets_are_evaluated_in_batches_of_one_size(device, replicas):
    """A compiled pack has a compilation for each."""
    size = evaluation_batch_size(torch.device(device), replicas)
    assert size >= 256
    assert 12288 % size == 4096 % size == 0


@pytest.mark.parametrize(("answer", "number"), [(True, 64), (False, 0)])
def test_split_that_leaves_one_side_empty_is_refused(answer: bool, number: int) -> None:
    job = replace(compose("train", ["task.bits=3"]), split=lambda examples: np.full(len(examples), answer))
    with pytest.raises(UserError, match=rf"^split=random .*: holds out {number} of 64 examples; expected at least 1"):
        table_data(job)
