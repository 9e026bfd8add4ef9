"""Shared by tests of interrupted runs: a simulated power cut, a third-party signal handler, bitwise comparison."""

from collections.abc import Callable

import pytest
import torch
from safetensors.torch import load_file

from arith_erd.runs.directory import Run


def weights_of(run: Run, seed: int = 0) -> dict[str, torch.Tensor]:
    return load_file(run.weights_file(seed))


def assert_same(one: Run, other: Run) -> None:
    """Bit for bit: the weights of every seed, every row but its seconds, tokens, slices, and the summary's verdict."""
    seeds = [row["seed"] for row in one.summary()["seeds"]]
    for seed in seeds:
        mine, theirs = weights_of(one, seed), weights_of(other, seed)
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    mine, theirs = ([row | {"seconds": 0} for row in run.metrics()] for run in (one, other))
    assert mine == theirs
    mine, theirs = (
        [file.read_text() for file in (run.tokens_file, run.slices_file) if file.is_file()] for run in (one, other)
    )
    assert mine == theirs
    assert one.summary()["seeds"] == other.summary()["seeds"]


def power_cut(train: Callable[..., Run], callback: type, epoch: int, after: bool, *overrides: str) -> None:
    """Train until the power goes off at the end of an epoch, before or after the callback has done its work."""
    original = callback.on_train_epoch_end

    def stops(self, trainer, pl_module):
        if after:
            original(self, trainer, pl_module)
        if trainer.current_epoch + 1 == epoch:
            raise RuntimeError("the power went off")
        if not after:
            original(self, trainer, pl_module)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(callback, "on_train_epoch_end", stops)
        with pytest.raises(RuntimeError, match="the power went off"):
            train(*overrides)


class Listener:
    """A signal handler of another library: it does some work and returns."""

    def __init__(self) -> None:
        self.heard: list[int] = []
        self.work: Callable[[], object] = lambda: None

    def __call__(self, number: int, _: object) -> None:
        self.heard.append(number)
        self.work()
