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


class Good(Network):
    """Each token from the one before, with what a network may have: dropout of ours, and a constant."""

    def __init__(self, prompt_length: int, answer_length: int, vocab_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, 4)
        self.dropout = Dropout(0.5)
        self.head = nn.Linear(4, vocab_size)
        self.register_buffer("scale", torch.tensor(2.0), persistent=False)
        self.more()

    def more(self) -> None:
        """What a subclass has besides."""

    def middle(self, x):
        return self.dropout(x) * self.scale

    def forward(self, prompt, answer_in):
        return self.head(self.middle(self.embedding(answer_in)))

    def sites(self):
        return {"dec.1": self.embedding}


class AtSite(CrossEntropy):
    site = "dec.1"

    def begin(self, replicas, activation, targets):
        self.head = nn.Parameter(torch.ones(replicas))


class OfTheActivation(AtSite):
    def forward(self, logits, completion, activation, targets=None):
        return activation.square().flatten(1).mean(1) * self.head


def own(self, logits, completion, *_):
    """The loss that the bad ones are made of, (R,)."""
    return CrossEntropy.forward(self, logits, completion)


def of_each_example(self, logits, completion, *_):
    return own(self, logits.flatten(0, 1).unsqueeze(1), completion.flatten(0, 1).unsqueeze(1))


def of_others_before(self, *tensors):
    """The first row is its own."""
    losses = own(self, *tensors)
    return torch.cat([losses[:1], losses[1:] + losses[:-1]])


def counting(self, x):
    self.scale += 1
    return x


LOGITS = r"gives logits of shape \(2, 3, 5\); expected \(B, m, V\), here \(2, 4, 5\)$"
NORMED = r"also keeps norm\.num_batches_tracked, norm\.running_mean, norm\.running_var; expected "
BAD_NETWORKS = {  # name -> a method, by its name, and the message
    "Failing": ("middle", lambda self, x: x @ torch.zeros(3, 3), r"RuntimeError: .* \(test_trial\.py, line \d+\)$"),
    "OtherShape": ("forward", lambda self, *tokens: Good.forward(self, *tokens)[:, 1:], LOGITS),
    "Drawing": ("middle", lambda self, x: x + torch.rand(()), "RuntimeError: vmap: called random operation"),
    "Branching": ("middle", lambda self, x: x if x.sum() > 0 else -x, "RuntimeError: vmap: .*data-dependent control"),
    "Counting": ("middle", counting, "draws or changes its buffer scale; expected "),
    "OwnGain": (
        "more",
        lambda self: self.register_buffer("gain", torch.randn(1), persistent=False),
        "draws or changes its buffer gain; expected parameters for what is not constant",
    ),
    "Recurrent": (
        "more",
        lambda self: setattr(self, "memory", nn.LSTM(4, 4)),
        r"memory is an nn\.LSTM, which vmap cannot batch; expected a layer of arith_erd\.models\.recurrent",
    ),
    "Normed": ("more", lambda self: setattr(self, "norm", nn.BatchNorm1d(4)), NORMED),
    "Tied": (
        "more",
        lambda self: setattr(self.head, "weight", self.embedding.weight),
        r"also keeps head\.weight; expected parameters under one name each",
    ),
}
OTHERS = "depends for each seed on other seeds, earlier calls or random numbers"
NOTHING = "does not depend on a parameter of the network that requires gradients"
BAD_LOSSES = {  # name -> base, forward, and the message with three seeds
    "Mean": (CrossEntropy, lambda self, *t: own(self, *t).mean(), r"gives a tensor of shape \(\); expected \(3,\)"),
    "OfEachExample": (CrossEntropy, of_each_example, r"gives a tensor of shape \(6,\); expected \(3,\), one loss for"),
    "Shared": (CrossEntropy, lambda self, *t: own(self, *t) + own(self, *t).sum(), OTHERS),
    "Scaled": (CrossEntropy, lambda self, *t: own(self, *t) / own(self, *t).detach().sum(), OTHERS),
    "OfOthersBefore": (CrossEntropy, of_others_before, OTHERS),
    "OfAll": (AtSite, lambda self, *t: own(self, *t) + t[2].square().mean(), OTHERS),
    "Constant": (CrossEntropy, lambda self, *t: torch.zeros(len(t[0])), NOTHING),
    "OfItsHead": (AtSite, lambda self, *t: self.head.square(), NOTHING),
    "Noisy": (CrossEntropy, lambda self, *t: own(self, *t) * torch.rand(()), OTHERS),
    "Broken": (CrossEntropy, lambda self, *t: t[0].no, r"AttributeError: .* \(test_trial\.py, line \d+\)$"),
}
for name, (method, function, _) in BAD_NETWORKS.items():  # classes are looked up in their module
    globals()[name] = type(name, (Good,), {method: function, "__module__": __name__})
for name, (base, function, _) in BAD_LOSSES.items():
    globals()[name] = type(name, (base,), {"forward": function, "__module__": __name__})


@cache
def tiny(seeds: str) -> Job:
    return compose("train", [*TINY, seeds])


def assembled(seeds: str, net: str = "Good", loss: str | None = None) -> None:
    job = tiny(seeds)
    classes = {"net": Factory(f"{__name__}.{net}", key="model.net._target_")}
    if loss is not None:
        classes["loss"] = Factory(f"{__name__}.{loss}", key="model.loss._target_")
    assemble(replace(job, model=replace(job.model, **classes)), torch.device("cpu"))


@pytest.fixture(autouse=True)
def trusted(monkeypatch):
    monkeypatch.setattr("arith_erd.config.build._trusted", {__name__})


@pytest.mark.parametrize("loss", [None, "OfTheActivation"])
@pytest.mark.parametrize("seeds", ["seed=0", "seed=0-2"])
def test_network_and_loss_of_ones_own_are_accepted(seeds, loss):
    assembled(seeds, loss=loss)


@pytest.mark.parametrize("net", BAD_NETWORKS)
def test_network_that_cannot_train_is_refused_in_one_line(net):
    with pytest.raises(UserError, match=rf"^model\.net\._target_={__name__}\.{net}: {BAD_NETWORKS[net][2]}"):
        assembled("seed=0-2", net)


@pytest.mark.parametrize("loss", BAD_LOSSES)
def test_loss_that_would_train_wrongly_is_refused_in_one_line(loss):
    with pytest.raises(UserError, match=rf"^model\.loss\._target_={__name__}\.{loss}: {BAD_LOSSES[loss][2]}"):
        assembled("seed=0-2", loss=loss)


@pytest.mark.parametrize("loss", ["OfEachExample", "Noisy", "OfItsHead"])
def test_one_seed_alone_is_checked_too(loss):
    with pytest.raises(UserError, match=r"expected \(1,\), one loss for each seed|random numbers|does not depend"):
        assembled("seed=0", loss=loss)


class Frozen(Good):
    def more(self):
        self.requires_grad_(False)


def test_network_without_anything_to_learn_is_refused():
    with pytest.raises(UserError, match=NOTHING):
        assembled("seed=0-1", "Frozen")
