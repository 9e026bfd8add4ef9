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
        self.more(vocab_size)

    def more(self, vocab_size: int) -> None:
        """What a subclass has besides."""

    def middle(self, x):
        return self.dropout(x) * self.scale

    def forward(self, prompt, answer_in):
        return self.head(self.middle(self.embedding(answer_in)))

    def sites(self):
        return {"dec.1": self.embedding}


def network(name: str, **methods) -> type[Good]:
    """A subclass of this module, where its class is looked up."""
    globals()[name] = type(name, (Good,), {**methods, "__module__": __name__})
    return globals()[name]


def counting(self, x):
    self.scale += 1
    return x


def reassigning(self, x):
    self.scale = self.scale * 1.0
    return x


def empty(self, vocab_size):
    for name in ("embedding", "head"):
        delattr(self, name)
    self.sizes = vocab_size


BAD_NETWORKS = [
    (
        network("Failing", middle=lambda self, x: x @ torch.zeros(3, 3)),
        r"RuntimeError: .* \(test_trial\.py, line \d+\)$",
    ),
    (
        network("OtherShape", forward=lambda self, *tokens: Good.forward(self, *tokens)[:, 1:]),
        r"gives logits of shape \(2, 3, 5\); expected \(B, m, V\), here \(2, 4, 5\)$",
    ),
    (network("Drawing", middle=lambda self, x: x + torch.rand(())), "draws random numbers; expected "),
    (
        network("Branching", middle=lambda self, x: x if x.sum() > 0 else -x),
        r"RuntimeError: vmap: .*data-dependent control flow",
    ),
    (network("Counting", middle=counting), "changes its buffer scale; expected "),
    (network("Reassigning", middle=reassigning), "changes its buffer scale; expected "),
    (
        network("OwnGain", more=lambda self, _: self.register_buffer("gain", torch.randn(1), persistent=False)),
        "draws its buffer gain; expected parameters for what differs between seeds",
    ),
    (
        network("Normed", more=lambda self, _: setattr(self, "norm", nn.BatchNorm1d(4))),
        r"also keeps norm\.num_batches_tracked, norm\.running_mean, norm\.running_var; expected ",
    ),
    (
        network("Tied", more=lambda self, _: setattr(self.head, "weight", self.embedding.weight)),
        r"also keeps head\.weight; expected parameters under one name each",
    ),
    (
        network("Empty", more=empty, forward=lambda self, prompt, answer_in: torch.zeros(*answer_in.shape, self.sizes)),
        "has no parameters that require gradients; expected ",
    ),
    (
        network("Frozen", more=lambda self, _: self.requires_grad_(False)),
        "has no parameters that require gradients; expected ",
    ),
]


class AtSite(CrossEntropy):
    site = "dec.1"

    def begin(self, replicas, activation, targets):
        self.head = nn.Parameter(torch.ones(replicas))


class OfTheActivation(AtSite):
    """That is all it reads; it has a parameter, too."""

    def forward(self, logits, completion, activation, targets=None):
        return activation.square().flatten(1).mean(1) * self.head


def loss(name: str, forward, base: type[CrossEntropy] = CrossEntropy) -> type[CrossEntropy]:
    globals()[name] = type(name, (base,), {"forward": forward, "__module__": __name__})
    return globals()[name]


def own(self, logits, completion, *_):
    """The loss that the bad ones are made of, (R,)."""
    return CrossEntropy.forward(self, logits, completion)


def of_each_example(self, logits, completion, *_):
    return own(self, logits.flatten(0, 1).unsqueeze(1), completion.flatten(0, 1).unsqueeze(1))


def of_others_before(self, *tensors):
    """The first row is its own."""
    losses = own(self, *tensors)
    return torch.cat([losses[:1], losses[1:] + losses[:-1]])


DEPENDS = "gives each seed a loss that depends on other seeds"
BAD_LOSSES = [
    (
        loss("Mean", lambda self, *t: own(self, *t).mean()),
        "seed=0",
        r"gives a tensor of shape \(\); expected \(1,\), one",
    ),
    (globals()["Mean"], "seed=0-2", r"gives a tensor of shape \(\); expected \(3,\)"),
    (loss("OfEachExample", of_each_example), "seed=0", r"gives a tensor of shape \(2,\); expected \(1,\)"),
    (loss("Shared", lambda self, *t: own(self, *t) + own(self, *t).sum()), "seed=0-2", DEPENDS),
    (loss("Scaled", lambda self, *t: own(self, *t) / own(self, *t).detach().sum()), "seed=0-2", DEPENDS),
    (loss("OfThoseBefore", lambda self, *t: own(self, *t).cumsum(0)), "seed=0-2", DEPENDS),
    (loss("OfOthersBefore", of_others_before), "seed=0-2", DEPENDS),
    (loss("OfAll", lambda self, *t: own(self, *t) + t[2].square().mean(), AtSite), "seed=0-2", DEPENDS),
    (loss("Constant", lambda self, *t: torch.zeros(len(t[0]))), "seed=0", "does not depend on what the network comp"),
    (loss("OfItsHead", lambda self, *t: self.head.square(), AtSite), "seed=0-2", "does not depend on what the network"),
    (loss("Infinite", lambda self, *t: own(self, *t) / 0), "seed=0", "gives inf at the first step; expected a finite"),
    (
        loss("Noisy", lambda self, *t: own(self, *t) * torch.rand(())),
        "seed=0",
        "gives another value at the second call; expected no randomness",
    ),
    (
        loss("Broken", lambda self, *t: t[0].nothing),
        "seed=0",
        r"AttributeError: .*nothing.* \(test_trial\.py, line \d+\)$",
    ),
]


@cache
def tiny(seeds: str) -> Job:
    return compose("train", [*TINY, seeds])


def assembled(seeds: str, net: type = Good, loss: type = CrossEntropy) -> None:
    job = tiny(seeds)
    classes = {"net": Factory(f"{__name__}.{net.__name__}", key="model.net")}
    if loss is not CrossEntropy:
        classes["loss"] = Factory(f"{__name__}.{loss.__name__}", key="model.loss")
    assemble(replace(job, model=replace(job.model, **classes)), CPU)


@pytest.fixture(autouse=True)
def trusted(monkeypatch):
    monkeypatch.setattr("arith_erd.config.build._trusted", {__name__})


@pytest.mark.parametrize("loss", [CrossEntropy, OfTheActivation])
@pytest.mark.parametrize("seeds", ["seed=0", "seed=0-2"])
def test_network_and_loss_of_ones_own_are_accepted(seeds, loss):
    assembled(seeds, loss=loss)


@pytest.mark.parametrize("seeds", ["seed=0", "seed=0-2"])
@pytest.mark.parametrize(("net", "message"), BAD_NETWORKS)
def test_network_that_cannot_train_is_refused_in_one_line(net, message, seeds):
    with pytest.raises(UserError, match=rf"^model\.net\._target_={__name__}\.{net.__name__}: ({message})"):
        assembled(seeds, net)


@pytest.mark.parametrize(("loss", "seeds", "message"), BAD_LOSSES)
def test_loss_that_would_train_wrongly_is_refused_in_one_line(loss, seeds, message):
    with pytest.raises(UserError, match=rf"^model\.loss\._target_={__name__}\.{loss.__name__}: {message}"):
        assembled(seeds, loss=loss)
