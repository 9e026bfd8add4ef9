"""Every optimizer, scheduler and loss: a replica is the same alone, in a pack, and after an interruption."""

import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from arith_erd.config.class_spec import ClassSpec
from arith_erd.config.compose import compose
from arith_erd.errors import UserError
from arith_erd.interp.hooks import cache_outputs
from arith_erd.losses import CrossEntropy
from arith_erd.models import Network
from arith_erd.models.dropout import Dropout
from arith_erd.models.network import shift_right
from arith_erd.training.build import build_module, build_task_data, checked_scheduler
from arith_erd.training.checkpoint import CheckpointWriter
from arith_erd.training.lit_pack import LitPack, step_scheduler
from arith_erd.training.run_pack import train_pack
from tests.behaviour.interruption import assert_same, power_cut, weights_of
from tests.tiny import TINY
from tests.values import options

pytestmark = pytest.mark.slow_after(5)

CPU = torch.device("cpu")
OPTIMIZERS, SCHEDULERS = options("optimizer"), options("scheduler")
LOSSES = (
    ("loss=cross_entropy_and_value", "model.loss.site=dec.1"),
    ("loss=interchange", "model.loss.variables={carry:{site:dec.1,dims:[0,3]}}", "model.loss.strict=0.5"),
)
LENGTHS = ("task.min_bits=1", "data.examples=40", "split=length", "split.trained=2")
RECIPES = [(f"optimizer={OPTIMIZERS[0]}", "scheduler=warmup_cosine", *LOSSES[1]), LOSSES[0]]
RECIPES += [(f"optimizer={name}",) for name in OPTIMIZERS[1:]] + [(f"scheduler={name}",) for name in SCHEDULERS]
RECIPES += [("optimizer=nadam", "trainer.precision=64-true"), (*LENGTHS, "model.net.positions=coupled")]


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("recipe", RECIPES, ids=" ".join)
def test_alone_equals_in_a_pack_and_interrupted_equals_uninterrupted(recipe, train_in, tmp_path):
    words = ("model=nanogpt", *recipe)
    packed = train_in(tmp_path / "packed", *words, "seed=[5,0]")
    alone = train_in(tmp_path / "alone", *words, "seed=5")
    for name, weight in weights_of(alone, 5).items():
        torch.testing.assert_close(weights_of(packed, 5)[name], weight, rtol=0, atol=1e-5)
    again = partial(train_in, tmp_path / "again", *words, "seed=[5,0]")
    power_cut(again, CheckpointWriter, 1, True)
    assert_same(again(), packed)


LR, KEY = {"lr": 1e-3}, r"^model\.optimizer\._target_=torch\.optim\."


@pytest.mark.parametrize(
    ("part", "name", "arguments", "message"),
    [
        ("optimizer", "Adafactor", LR, rf"{KEY}Adafactor: lets the seeds of a pack influence"),
        ("optimizer", "Muon", LR, rf"{KEY}Muon: .*2D"),
        ("optimizer", "SparseAdam", LR, rf"{KEY}SparseAdam: RuntimeError: .*dense gradients"),
        ("scheduler", "lr_scheduler.ReduceLROnPlateau", {}, "a function of the step alone"),
        ("scheduler", "lr_scheduler.LambdaLR", {}, "lr_lambda"),
        ("scheduler", "Adam", {}, "expected a LRScheduler"),
        ("scheduler", "lr_scheduler.OneCycleLR", {"max_lr": 0.1, "epochs": 1}, r"^model\.scheduler: ValueError: Tried"),
    ],
)
def test_recipes_that_cannot_train_a_pack_are_refused_in_one_line(part, name, arguments, message, runs_dir):
    """The last case fails when its schedule has ended."""
    job = compose("train", [*TINY, "model=nanogpt", f"runs_dir={runs_dir}"])
    chosen = {part: ClassSpec(f"torch.optim.{name}", arguments, key=f"model.{part}._target_")}
    with pytest.raises(UserError, match=message):
        train_pack(replace(job, model=replace(job.model, **chosen)))


def rates(*recipe: str, steps: int) -> list[float]:
    """Learning rates of the first steps, three an epoch; torch's schedule takes over from an optimizer of any rate."""
    job, make = compose("train", [*TINY, *recipe]), partial(torch.optim.SGD, lr=0.1)
    optimizer, found = make([nn.Parameter(torch.zeros(1))]), []
    schedule = checked_scheduler(job, build_task_data(job), make)[0](optimizer)
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        step_scheduler(schedule)
    return found


@pytest.mark.parametrize("scheduler", ["warmup_cosine", "warmup_linear"])
def test_rate_warms_up_and_falls_to_almost_nothing_by_the_last_step(scheduler):
    found = rates(f"scheduler={scheduler}", "model.optimizer.lr=0.1", "model.scheduler.pct_start=0.5", steps=6)
    assert (found[0], found[2]) == pytest.approx((0.1 / 25, 0.1))
    assert found[:3] == sorted(found[:3])
    assert found[2:] == sorted(found[2:], reverse=True)
    assert found[-1] < 1e-6


def test_warm_up_of_one_step_is_skipped_and_decay_of_no_steps_is_refused():
    """Torch divides by zero in the first step of the former, after the last of the latter."""
    recipe = ("scheduler=warmup_cosine", "model.optimizer.lr=0.1", "model.scheduler.interval=epoch")
    found = rates(*recipe, "model.scheduler.pct_start=0.05", "trainer.max_epochs=20", steps=20)
    assert found[0] == pytest.approx(0.1)
    assert found == sorted(found, reverse=True)
    with pytest.raises(UserError, match=r"^model\.scheduler: divides by zero; expected a function of the step"):
        rates(*recipe, "model.scheduler.pct_start=1.0", steps=2)


class Good(Network):
    """A network with all that is accepted: our dropout, and a constant."""

    def __init__(self, prompt_length: int, answer_length: int, vocab_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, 4)
        self.mix = nn.Linear(4, 4)
        self.dropout = Dropout(0.5)
        self.register_buffer("scale", torch.tensor(2.0), persistent=False)
        self.more()

    def more(self) -> None:
        """What a subclass adds."""

    def middle(self, x):
        return self.dropout(x) * self.scale

    def forward(self, prompt, answer_in):
        x = self.embedding(answer_in) + self.embedding(prompt).sum(dim=1, keepdim=True)
        return self.middle(self.mix(x).tanh() @ self.embedding.weight.T)

    def sites(self):
        return {"dec.1": self.mix}


class OfTheActivation(CrossEntropy):
    def prepare(self, network, task, examples):
        self.head = nn.Parameter(torch.ones(()))

    def forward(self, network, prompt, completion, targets=None):
        with cache_outputs(network.sites(), ["dec.1"]) as found:
            network(prompt, shift_right(completion))
        return found["dec.1"].square().mean() * self.head


class DrawnHead(OfTheActivation):
    def prepare(self, network, task, examples):
        self.head = nn.Parameter(torch.randn(()))


def drawn(self) -> None:
    self.register_buffer("gain", torch.randn(1), persistent=False)


def weighted(self) -> None:
    self.gain = nn.Parameter(torch.tensor(np.random.default_rng().random()))


def tied(self) -> None:
    self.mix.weight = self.embedding.weight


HERE = r"\(test_build\.py, line \d+\)$"
LOGITS = r"returned logits \(2, 3, 5\); expected \(B, m, V\), here \(2, 4, 5\)$"
SHAPE = r"returned a tensor of shape \(5,\); expected one number$"
NOISE = "RuntimeError: vmap: called random operation"
BAD = {  # name -> base, a method by its name, and the message with three seeds
    "Failing": (Good, "middle", lambda self, x: x @ torch.zeros(3, 3), rf"RuntimeError: .* {HERE}"),
    "OtherShape": (Good, "forward", lambda self, *tokens: Good.forward(self, *tokens)[:, 1:], LOGITS),
    "Ahead": (Good, "forward", lambda *t: Good.forward(*t).flip(1), "its logits depend on later tokens"),
    "Drawing": (Good, "middle", lambda self, x: x + torch.rand(()), NOISE),
    "OwnGain": (Good, "more", drawn, "its buffer gain is random or changes; expected a constant buffer"),
    "OtherWeights": (Good, "more", weighted, "a seed gives gain other values each time; expected values from torch"),
    "Recurrent": (Good, "more", lambda self: self.add_module("memory", nn.LSTM(4, 4)), r"memory is an nn\.LSTM, which"),
    "Tied": (Good, "more", tied, r"its state_dict also holds mix\.weight; expected parameters under one name each"),
    "OfEachToken": (CrossEntropy, "forward", lambda self, net, *t: net(*t).exp()[0, 0], SHAPE),
    "Noisy": (CrossEntropy, "forward", lambda *t: CrossEntropy.forward(*t) * torch.rand(()), NOISE),
    "Constant": (CrossEntropy, "forward", lambda *t: torch.zeros(()), "does not depend on a parameter"),
    "Leaving": (CrossEntropy, "forward", lambda *t: sys.exit(0), rf"SystemExit: 0 {HERE}"),
    "Closing": (CrossEntropy, "forward", lambda *t: (_ for _ in ()).throw(GeneratorExit), rf"GeneratorExit {HERE}"),
    "Broken": (CrossEntropy, "forward", lambda self, *t: t[0].no, rf"AttributeError: .* {HERE}"),
}
for name, (base, method, function, _) in BAD.items():  # classes are looked up in their module
    globals()[name] = type(name, (base,), {method: function, "__module__": __name__})


def assembled(seeds: str, net: str = "Good", loss: str | None = None) -> LitPack:
    tiny = compose("train", [*TINY, seeds])
    classes = {"net": ClassSpec(f"{__name__}.{net}", key="model.net._target_")}
    if loss is not None:
        classes["loss"] = ClassSpec(f"{__name__}.{loss}", key="model.loss._target_")
    return build_module(replace(tiny, model=replace(tiny.model, **classes)), CPU)


@pytest.fixture
def trusted(monkeypatch):
    monkeypatch.setattr("arith_erd.config.class_spec._trusted_packages", {__name__})


def test_own_network_and_loss_are_accepted_and_what_the_loss_draws_is_the_same_in_every_pack(trusted):
    heads = []
    for seeds in ("0", "1-3"):
        torch.manual_seed(int(seeds[0]))
        heads.append(assembled(f"seed={seeds}", loss="DrawnHead").pack.loss.head)
    assert heads[1].tolist() == heads[0].tolist() * 3


@pytest.mark.parametrize("name", BAD)
def test_network_or_loss_that_would_train_wrongly_is_refused_in_one_line(name, trusted):
    base, *_, message = BAD[name]
    kind = "net" if base is Good else "loss"
    with pytest.raises(UserError, match=rf"^model\.{kind}\._target_={__name__}\.{name}: {message}"):
        assembled("seed=0-2", **{kind: name})
