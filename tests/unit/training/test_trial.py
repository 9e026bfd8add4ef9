"""Networks and losses that would train to wrong numbers, or fail once the run has begun, are refused before it."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import nn

from arith_erd.config.build import Factory
from arith_erd.config.compose import compose
from arith_erd.config.job import Job
from arith_erd.errors import UserError
from arith_erd.losses import CrossEntropy
from arith_erd.models import Network
from arith_erd.models.dropout import Dropout
from arith_erd.training.assemble import assemble
from tests.tiny import TINY

CPU = torch.device("cpu")


class Good(Network):
    """Each token from the one before, with what a network may have: dropout of ours, and a constant."""

    def __init__(self, prompt_length: int, answer_length: int, vocab_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, 4)
        self.dropout = Dropout(0.5)
        self.head = nn.Linear(4, vocab_size)
        self.register_buffer("scale", torch.tensor(2.0), persistent=False)

    def encode(self, prompt):
        return prompt

    def middle(self, x):
        return self.dropout(x) * self.scale

    def decode(self, memory, answer_in, tree=None):
        return self.head(self.middle(self.embedding(answer_in)))

    def sites(self):
        return {"dec.1": self.embedding}


class Failing(Good):
    def middle(self, x):
        return x @ torch.zeros(3, 3)


class OtherShape(Good):
    def decode(self, memory, answer_in, tree=None):
        return super().decode(memory, answer_in)[:, 1:]


class Drawing(Good):
    def middle(self, x):
        return x + torch.rand(())


class Branching(Good):
    def middle(self, x):
        return x if x.sum() > 0 else -x


class Counting(Good):
    def middle(self, x):
        self.scale += 1
        return x


class Reassigning(Good):
    def middle(self, x):
        self.scale = self.scale * 1.0
        return x


class OwnGain(Good):
    def __init__(self, **sizes):
        super().__init__(**sizes)
        self.register_buffer("gain", torch.randn(1), persistent=False)


class Normed(Good):
    def __init__(self, **sizes):
        super().__init__(**sizes)
        self.norm = nn.BatchNorm1d(4)


class Tied(Good):
    def __init__(self, **sizes):
        super().__init__(**sizes)
        self.head.weight = self.embedding.weight


class Frozen(Good):
    def __init__(self, *sizes, **options):
        super().__init__(*sizes, **options)
        self.requires_grad_(False)


class Empty(Good):
    def __init__(self, vocab_size, **sizes):
        Network.__init__(self)
        self.vocab_size = vocab_size

    def decode(self, memory, answer_in, tree=None):
        return torch.zeros(*answer_in.shape, self.vocab_size)


class Mean(CrossEntropy):
    def forward(self, *tensors):
        return super().forward(*tensors).mean()


class OfEachExample(CrossEntropy):
    def forward(self, logits, completion, *more):
        return super().forward(logits.flatten(0, 1).unsqueeze(1), completion.flatten(0, 1).unsqueeze(1))


class Shared(CrossEntropy):
    def forward(self, *tensors):
        losses = super().forward(*tensors)
        return losses + losses.sum()


class Scaled(CrossEntropy):
    def forward(self, *tensors):
        losses = super().forward(*tensors)
        return losses / losses.detach().sum()


class OfThoseBefore(CrossEntropy):
    def forward(self, *tensors):
        return super().forward(*tensors).cumsum(0)


class OfOthersBefore(CrossEntropy):
    """The first row is its own."""

    def forward(self, *tensors):
        losses = super().forward(*tensors)
        return torch.cat([losses[:1], losses[1:] + losses[:-1]])


class AtSite(CrossEntropy):
    site = "dec.1"

    def begin(self, replicas, activation, targets):
        self.head = nn.Parameter(torch.ones(replicas))


class OfTheActivation(AtSite):
    """That is all it reads; it has a parameter, too."""

    def forward(self, logits, completion, activation, targets=None):
        return activation.square().flatten(1).mean(1) * self.head


class OfAllActivations(AtSite):
    def forward(self, logits, completion, activation, targets=None):
        return super().forward(logits, completion) + activation.square().mean()


class OfItsHead(AtSite):
    def forward(self, logits, completion, activation, targets=None):
        return self.head.square()


class Constant(CrossEntropy):
    def forward(self, logits, *more):
        return torch.zeros(len(logits))


class Infinite(CrossEntropy):
    def forward(self, *tensors):
        return super().forward(*tensors) / 0


class Noisy(CrossEntropy):
    def forward(self, *tensors):
        return super().forward(*tensors) + torch.rand(())


class Broken(CrossEntropy):
    def forward(self, logits, completion, *more):
        return logits.nothing


@cache
def tiny(seeds: str) -> Job:
    return compose("train", [*TINY, seeds])


def with_classes(seeds: str, net: type = Good, loss: type = CrossEntropy) -> Job:
    job = tiny(seeds)
    classes = {"net": Factory(f"{__name__}.{net.__name__}", key="model.net")}
    if loss is not CrossEntropy:
        classes["loss"] = Factory(f"{__name__}.{loss.__name__}", key="model.loss")
    return replace(job, model=replace(job.model, **classes))


@pytest.fixture(autouse=True)
def trusted(monkeypatch):
    monkeypatch.setattr("arith_erd.config.build._trusted", {__name__})


@pytest.mark.parametrize("loss", [CrossEntropy, OfTheActivation])
@pytest.mark.parametrize("seeds", ["seed=0", "seed=0-2"])
def test_network_and_loss_of_ones_own_are_accepted(seeds, loss):
    assemble(with_classes(seeds, loss=loss), CPU)


@pytest.mark.parametrize("seeds", ["seed=0", "seed=0-2"])
@pytest.mark.parametrize(
    ("net", "message"),
    [
        (Failing, r"RuntimeError: .* \(test_trial\.py, line \d+\)$"),
        (OtherShape, r"gives logits of shape \(2, 3, 5\); expected \(B, m, V\), here \(2, 4, 5\)$"),
        (Drawing, "draws random numbers; expected "),
        (Branching, r"RuntimeError: vmap: .*data-dependent control flow"),
        (Counting, "changes its buffer scale; expected "),
        (Reassigning, "changes its buffer scale; expected "),
        (OwnGain, "draws its buffer gain; expected parameters for what differs between seeds"),
        (Normed, r"also keeps norm\.num_batches_tracked, norm\.running_mean, norm\.running_var; expected "),
        (Tied, r"also keeps head\.weight; expected parameters under one name each"),
        (Empty, "has no parameters that require gradients; expected "),
        (Frozen, "has no parameters that require gradients; expected "),
    ],
)
def test_network_that_cannot_train_is_refused_in_one_line(net, message, seeds):
    with pytest.raises(UserError, match=rf"^model\.net\._target_={__name__}\.{net.__name__}: ({message})"):
        assemble(with_classes(seeds, net=net), CPU)


@pytest.mark.parametrize(
    ("loss", "seeds", "message"),
    [
        (Mean, "seed=0", r"gives a tensor of shape \(\); expected \(1,\), one loss for each seed$"),
        (Mean, "seed=0-2", r"gives a tensor of shape \(\); expected \(3,\)"),
        (OfEachExample, "seed=0", r"gives a tensor of shape \(2,\); expected \(1,\)"),
        *[
            (kind, "seed=0-2", "gives each seed a loss that depends on other seeds")
            for kind in (Shared, Scaled, OfThoseBefore, OfOthersBefore, OfAllActivations)
        ],
        (Constant, "seed=0", "does not depend on what the network computes"),
        (OfItsHead, "seed=0-2", "does not depend on what the network computes"),
        (Infinite, "seed=0", "gives inf at the first step; expected a finite number"),
        (Noisy, "seed=0", "gives another value at the second call; expected no randomness"),
        (Broken, "seed=0", r"AttributeError: .*nothing.* \(test_trial\.py, line \d+\)$"),
    ],
)
def test_loss_that_would_train_wrongly_is_refused_in_one_line(loss, seeds, message):
    with pytest.raises(UserError, match=rf"^model\.loss\._target_={__name__}\.{loss.__name__}: {message}"):
        assemble(with_classes(seeds, loss=loss), CPU)
