"""The examples of a task as tensors on the device, and their batches."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import lightning as L
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from ..digits import Array
from ..errors import UserError
from ..seeds import RandomStream, derive_seed
from ..splits import Split
from ..tasks import Task

Batch = tuple[Tensor, ...]
"""Prompts, completions, and the loss's targets if it has any."""


class TrainBatches:
    """The training batches of an epoch for R replicas, each in its own order: a pure function of seed and step.

    Iteration starts after the ``step()`` optimizer steps already done. The last batch of an epoch may be smaller.
    ``examples`` are all prompts (N, P), completions (N, m), and targets (N, k) if the loss has any.
    """

    def __init__(self, examples: Batch, seeds: Sequence[int], batch_size: int, step: Callable[[], int]) -> None:
        self.examples, self.seeds, self.batch_size, self.step = examples, seeds, batch_size, step

    def __len__(self) -> int:
        return math.ceil(len(self.examples[0]) / self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        """Yield prompts (R, B, P), completions (R, B, m), and targets (R, B, k) if there are any."""
        epoch, taken = divmod(self.step(), len(self))
        tokens, stream = self.examples[0], RandomStream.BATCHES
        # On the CPU for any device: permutations (R, N) of the examples.
        generators = (torch.Generator().manual_seed(derive_seed(seed, stream, epoch)) for seed in self.seeds)
        order = torch.stack([torch.randperm(len(tokens), generator=rng) for rng in generators]).to(tokens.device)
        for index in order.split(self.batch_size, dim=1)[taken:]:
            yield tuple(x[index] for x in self.examples)


class TaskData(L.LightningDataModule):
    """A task's table, or ``num_examples`` of it, divided by a split into ``train`` and ``validation``.

    For drawn examples ``slices`` has the kinds of each validation example, by name, as in `Task.slices`.
    """

    def __init__(
        self,
        task: Task,
        split: Split,
        seeds: Sequence[int],
        batch_size: int,
        num_examples: int | None = None,
    ) -> None:
        super().__init__()
        self.task, self.seeds, self.batch_size = task, tuple(seeds), batch_size
        self.examples = examples = task.examples() if num_examples is None else task.sample(num_examples)
        held_out = np.asarray(split(examples))
        if held_out.dtype != bool or held_out.shape != (len(examples),):
            received = f"returned {held_out.dtype} of shape {held_out.shape}"
            raise UserError(f"split: {received}; expected True or False for each of {len(examples)} examples")
        self.held_out = np.flatnonzero(held_out)
        tokens = torch.from_numpy(examples.prompt), torch.from_numpy(examples.completion)
        self.train: Batch = tuple(x[~held_out] for x in tokens)
        self.validation: Batch = tuple(x[held_out] for x in tokens)
        kinds = {} if task.enumerable else task.slices(examples)
        self.slices = {name: kind[held_out] for name, kind in kinds.items()}

    def set_targets(self, targets: Array | None) -> None:
        """Give the training batches their targets: rows (N, k) from `Loss.prepare`, one for each of ``examples``."""
        if targets is not None:
            trained = torch.from_numpy(np.delete(targets, self.held_out, axis=0))
            self.train = (*self.train[:2], trained.to(torch.get_default_dtype()))

    def setup(self, stage: str) -> None:
        if self.trainer is not None:
            device = self.trainer.strategy.root_device
            self.train = tuple(x.to(device) for x in self.train)
            self.validation = tuple(x.to(device) for x in self.validation)

    @property
    def steps_per_epoch(self) -> int:
        return math.ceil(len(self.train[0]) / self.batch_size)

    def train_dataloader(self) -> TrainBatches:
        trainer = self.trainer
        assert trainer is not None
        return TrainBatches(self.train, self.seeds, self.batch_size, lambda: trainer.global_step)

    def val_dataloader(self) -> list[DataLoader]:
        """Batches of both subsets, training first: prompts (B, P) and completions (B, m), the same for all replicas."""
        size = evaluation_batch_size(self.train[0].device, len(self.seeds))
        subsets: Any = ([*zip(x[0].split(size), x[1].split(size), strict=True)] for x in (self.train, self.validation))
        own = torch.Generator()  # else each loader draws a number from the global generator
        return [DataLoader(batches, batch_size=None, generator=own) for batches in subsets]


def evaluation_batch_size(device: torch.device, replicas: int) -> int:
    """Number of examples in a forward pass without gradients: a power of two, since each batch size is compiled."""
    if device.type == "cpu":
        return 256  # fits the caches
    examples = max(256, 32768 // replicas)  # about two gigabytes of activations
    return min(4096, 1 << examples.bit_length() - 1)
