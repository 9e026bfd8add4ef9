"""Accuracies are what counting says, for each replica by itself."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from arith_erd.training.module import LitPack


class Guesses(torch.nn.Module):
    """A pack whose logits say the next of some predictions (R, B, m)."""

    def __init__(self, replicas: int) -> None:
        super().__init__()
        self.seeds = tuple(range(replicas))
        self.weight = torch.nn.Parameter(torch.zeros(replicas, 1))
        self.predicted: torch.Tensor

    def forward(self, prompt: torch.Tensor, answer_in: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.one_hot(self.predicted, 5)


@given(st.integers(1, 4), st.integers(1, 5), st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_accuracies_are_what_counting_says(replicas: int, length: int, sizes: list[int]) -> None:
    """Of predictions (R, B, m) and completions (B, m), in batches of any sizes, in two epochs."""
    random = np.random.default_rng(len(sizes))
    pack = Guesses(replicas)
    module = LitPack(pack, torch.optim.SGD)  # type: ignore[arg-type]
    for _ in range(2):
        module.loss_sum.fill_(1.0)
        module.examples_seen.fill_(1.0)
        for subset, name in enumerate(("train", "val")):
            hits = []
            for size in sizes:
                predicted, completion = random.integers(3, 5, size=(2, replicas, size, length))
                pack.predicted = torch.from_numpy(predicted)
                module.validation_step((torch.zeros(size, 1), torch.from_numpy(completion[0])), 0, subset)
                hits.append(predicted == completion[0])
            expected = np.concatenate(hits, axis=1)
            if name == "train":
                train = expected
        module.on_validation_epoch_end()
        for row, in_train, in_val in zip(module.rows, train, expected, strict=True):
            assert row["train_token_acc"] == pytest.approx(in_train.mean())
            assert row["val_seq_acc"] == pytest.approx(in_val.all(axis=1).mean())
