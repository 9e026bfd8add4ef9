"""Every optimizer, scheduler and loss: a replica is the same alone, in a pack, and after an interruption."""

import io
import sys
from contextlib import nullcontext
from dataclasses import replace
from functools import cache, partial

import pytest
import torch
import yaml
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from arith_erd.bundled import CONF
from arith_erd.config.class_spec import ClassSpec
from arith_erd.config.compose import compose
from arith_erd.errors import UserError
from arith_erd.interp.hooks import cache_outputs
from arith_erd.losses import CrossEntropy, Loss
from arith_erd.models import Network
from arith_erd.models.dropout import Dropout
from arith_erd.models.network import shift_right
from arith_erd.splits import RandomSplit
from arith_erd.tasks import Add
from arith_erd.training.build import build_module, build_task_data, checked_scheduler, replicas_are_independent
from arith_erd.training.data import TaskData, TrainBatches
from arith_erd.training.module import LitPack, step_scheduler
from arith_erd.training.pack import Pack
from arith_erd.training.run_pack import train_pack
from tests.tiny import TINY
from tests.values import options

pytestmark = pytest.mark.slow_after(5)

CPU = torch.device("cpu")
TASK = Add(2)
STEPS = 5  # of three an epoch


OPTIMIZERS, SCHEDULERS, LOSSES = map(options, ("optimizer", "scheduler", "loss"))


class Toy(Network):
    """A matrix and a vector beside the embedding: what the recipe does to them, it does to any."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.mix = nn.Linear(4, 4)

    def forward(self, prompt: torch.Tensor, answer_in: torch.Tensor) -> torch.Tensor:
        x = self.embedding(answer_in) + self.embedding(prompt).sum(dim=1, keepdim=True)
        return self.mix(x).tanh() @ self.embedding.weight.T

    def sites(self) -> dict[str, nn.Module]:
        return {"dec.1": self.mix}


@cache
def option(group: str, name: str) -> ClassSpec | None:
    """What a file of ``conf/`` says; not composed, since that is slow."""
    text = (CONF / group / f"{name}.yaml").read_text().replace("${model.optimizer.lr}", "0.1")
    arguments = yaml.safe_load(text.replace("${trainer.max_epochs}", "2"))
    if "_target_" not in arguments:
        return None
    if name == "interchange":
        arguments["variables"] = {"carry": {"site": "dec.1", "dims": [0, 1]}}
    return ClassSpec.from_group(group, arguments, None, "interval")


@cache
def pack_of(loss: str, seeds: tuple[int, ...]) -> tuple[Pack, TaskData, dict[str, torch.Tensor]]:
    """A pack, its data, and its initial weights; packs are used again, since making one is slow."""
    made = option("loss", loss).build(Loss)
    data = TaskData(TASK, RandomSplit(), seeds, 4)
    pack = Pack(Toy, seeds, loss=made)
    data.set_targets(pack.prepare_loss(TASK, data.examples))
    return pack, data, {name: value.clone() for name, value in pack.state_dict().items()}


def trained(recipe: tuple[str, str, str], seeds: tuple[int, ...], first: int, last: int, saved: bytes | None = None):
    """The parameters after training from step ``first`` to ``last``, and the whole state then, as a checkpoint is."""
    pack, data, initial = pack_of(recipe[2], seeds)
    pack.load_state_dict(initial)
    pack.zero_grad()
    scheduler, schedule = option("scheduler", recipe[1]), None
    if scheduler is not None:
        more = {"steps_per_epoch": 3} if "epochs" in scheduler.arguments else {}
        schedule = partial(scheduler.build, LRScheduler, **more)
    module = LitPack(pack, partial(option("optimizer", recipe[0]).build, torch.optim.Optimizer), 0.5, schedule)
    found = module.configure_optimizers()
    states = [found] if schedule is None else [found["optimizer"], found["lr_scheduler"]["scheduler"]]
    if saved:
        for thing, state in zip([pack, *states], torch.load(io.BytesIO(saved), weights_only=True), strict=True):
            thing.load_state_dict(state)
    batches = TrainBatches(data.train, seeds, 4, lambda: 0)
    for step in range(first, last):
        prompt, completion, *targets = list(batches)[step % 3]
        pack.losses(prompt, completion, step, *targets).sum().backward()
        module.configure_gradient_clipping(states[0])
        for thing in states:
            thing.step()
        pack.zero_grad()
    whole = io.BytesIO()
    torch.save([thing.state_dict() for thing in (pack, *states)], whole)
    return {name: value.detach().clone() for name, value in pack.named_parameters()}, whole.getvalue()


RECIPES = [(optimizer, "warmup_cosine", LOSSES[1]) for optimizer in OPTIMIZERS]
RECIPES += [("adam", "warmup_cosine", loss) for loss in LOSSES[2:]]
RECIPES += [("adam", scheduler, loss) for scheduler in SCHEDULERS for loss in LOSSES[:1]]


@pytest.mark.parametrize("recipe", RECIPES, ids=" ".join)
def test_alone_equals_in_a_pack_and_interrupted_equals_uninterrupted(recipe):
    packed, _ = trained(recipe, (5, 0), 0, STEPS)
    alone, _ = trained(recipe, (5,), 0, STEPS)
    for name, value in alone.items():
        torch.testing.assert_close(packed[name][:1], value, rtol=1e-4, atol=1e-5)
    _, half = trained(recipe, (5, 0), 0, 2)
    resumed, _ = trained(recipe, (5, 0), 2, STEPS, half)
    assert all(torch.equal(packed[name], value) for name, value in resumed.items())


def test_optimizers_that_mix_numbers_are_recognised():
    for make in (partial(option("optimizer", name).build, torch.optim.Optimizer) for name in OPTIMIZERS):
        assert replicas_are_independent(make, CPU)
    assert not replicas_are_independent(partial(torch.optim.Adafactor, lr=1e-3), CPU)


RATE, KEY = "torch.optim.lr_scheduler.", r"^model\.optimizer\._target_=torch\.optim\."


@pytest.mark.parametrize(
    ("optimizer", "scheduler", "message"),
    [
        ("Adafactor", None, rf"{KEY}Adafactor: lets the seeds of a pack influence"),
        ("Muon", None, rf"{KEY}Muon: .*2D"),
        ("SparseAdam", None, rf"{KEY}SparseAdam: RuntimeError: .*dense gradients"),
        (None, ClassSpec(f"{RATE}ReduceLROnPlateau"), "a function of the step alone"),
        (None, ClassSpec(f"{RATE}LambdaLR"), "lr_lambda"),
        (None, ClassSpec("torch.optim.Adam"), "expected a LRScheduler"),
        (None, ClassSpec(f"{RATE}OneCycleLR", {"max_lr": 0.1, "epochs": 1}), r"^model\.scheduler: ValueError: Tried"),
    ],
)
def test_recipes_that_cannot_train_a_pack_are_refused_in_one_line(optimizer, scheduler, message, runs_dir):
    """The last one when its schedule has ended."""
    job = compose("train", [*TINY, "model=nanogpt", f"runs_dir={runs_dir}"])
    chosen = (
        {"scheduler": scheduler}
        if scheduler
        else {"optimizer": ClassSpec(f"torch.optim.{optimizer}", {"lr": 1e-3}, key="model.optimizer._target_")}
    )
    with pytest.raises(UserError, match=message):
        train_pack(replace(job, model=replace(job.model, **chosen)))


@pytest.mark.parametrize("scheduler", ["warmup_cosine", "warmup_linear"])
def test_rate_warms_up_and_falls_to_almost_nothing_by_the_last_step(scheduler):
    """Of two epochs of three steps."""
    recipe = (f"scheduler={scheduler}", "model.optimizer.lr=0.1", "model.scheduler.pct_start=0.5")
    made = compose("train", [*TINY, *recipe])
    make = partial(torch.optim.SGD, lr=0.1)
    optimizer, found = make([nn.Parameter(torch.zeros(1))]), []
    make_schedule, interval = checked_scheduler(made, build_task_data(made), make)
    schedule = make_schedule(optimizer)
    assert interval == "step"
    for _ in range(6):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        step_scheduler(schedule)
    assert (found[0], found[2]) == pytest.approx((0.1 / 25, 0.1))
    assert found[:3] == sorted(found[:3])
    assert found[2:] == sorted(found[2:], reverse=True)
    assert found[-1] < 1e-6


@pytest.mark.parametrize(
    ("interval", "epochs", "pct_start"), [("step", 4, 1 / 12), ("epoch", 20, 0.05), ("step", 2, 1.0)]
)
def test_warm_up_of_one_step_is_none_and_a_fall_of_no_steps_is_one_line(interval, epochs, pct_start):
    """Of three steps an epoch. Torch divides by zero in the first step of the former, after the last of the latter."""
    recipe = (f"model.scheduler.interval={interval}", f"model.scheduler.pct_start={pct_start}")
    made = compose("train", [*TINY, "scheduler=warmup_cosine", *recipe, f"trainer.max_epochs={epochs}"])
    make, rates = partial(torch.optim.SGD, lr=0.1), []
    optimizer = make([nn.Parameter(torch.zeros(1))])
    schedule = checked_scheduler(made, build_task_data(made), make)[0](optimizer)
    refused = pytest.raises(UserError, match=r"^model\.scheduler: divides by zero; expected a function of the step")
    with refused if pct_start == 1 else nullcontext():
        for _ in range(epochs * (3 if interval == "step" else 1)):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            step_scheduler(schedule)
    falls = rates[::-1] if pct_start == 1 else rates
    assert falls == sorted(falls, reverse=True)
    assert falls[0] == pytest.approx(made.model.scheduler.arguments["max_lr"])


class Good(Toy):
    """With what a network may have: dropout of ours, and a constant."""

    def __init__(self, prompt_length: int, answer_length: int, vocab_size: int) -> None:
        super().__init__()
        self.dropout = Dropout(0.5)
        self.register_buffer("scale", torch.tensor(2.0), persistent=False)
        self.more()

    def more(self) -> None:
        """What a subclass has besides."""

    def middle(self, x):
        return self.dropout(x) * self.scale

    def forward(self, prompt, answer_in):
        return self.middle(super().forward(prompt, answer_in))


class OfTheActivation(CrossEntropy):
    def prepare(self, network, task, examples):
        self.head = nn.Parameter(torch.ones(()))

    def forward(self, network, prompt, completion, targets=None):
        with cache_outputs(network.sites(), ["dec.1"]) as found:
            network(prompt, shift_right(completion))
        return found["dec.1"].square().mean() * self.head


def drawn(self) -> None:
    self.register_buffer("gain", torch.randn(1), persistent=False)


def tied(self) -> None:
    self.mix.weight = self.embedding.weight


HERE = r"\(test_build\.py, line \d+\)$"
LOGITS = r"returned logits \(2, 3, 5\); expected \(B, m, V\), here \(2, 4, 5\)$"
NOISE = "RuntimeError: vmap: called random operation"
BAD = {  # name -> base, a method by its name, and the message with three seeds
    "Failing": (Good, "middle", lambda self, x: x @ torch.zeros(3, 3), rf"RuntimeError: .* {HERE}"),
    "OtherShape": (Good, "forward", lambda self, *tokens: Good.forward(self, *tokens)[:, 1:], LOGITS),
    "Ahead": (Good, "forward", lambda *t: Good.forward(*t).flip(1), "its logits depend on later tokens"),
    "Drawing": (Good, "middle", lambda self, x: x + torch.rand(()), NOISE),
    "OwnGain": (Good, "more", drawn, "its buffer gain is random or changes; expected a constant buffer"),
    "Recurrent": (Good, "more", lambda self: self.add_module("memory", nn.LSTM(4, 4)), r"memory is an nn\.LSTM, which"),
    "Tied": (Good, "more", tied, r"its state_dict also holds mix\.weight; expected parameters under one name each"),
    "OfEachToken": (
        CrossEntropy,
        "forward",
        lambda self, net, *t: net(*t).exp()[0, 0],
        r"returned a tensor of shape \(5,\)",
    ),
    "Noisy": (CrossEntropy, "forward", lambda *t: CrossEntropy.forward(*t) * torch.rand(()), NOISE),
    "Constant": (CrossEntropy, "forward", lambda *t: torch.zeros(()), "does not depend on a parameter"),
    "Leaving": (CrossEntropy, "forward", lambda *t: sys.exit(0), rf"SystemExit: 0 {HERE}"),
    "Closing": (CrossEntropy, "forward", lambda *t: (_ for _ in ()).throw(GeneratorExit), rf"GeneratorExit {HERE}"),
    "Broken": (CrossEntropy, "forward", lambda self, *t: t[0].no, rf"AttributeError: .* {HERE}"),
}
for name, (base, method, function, _) in BAD.items():  # classes are looked up in their module
    globals()[name] = type(name, (base,), {method: function, "__module__": __name__})


def assembled(seeds: str, net: str = "Good", loss: str | None = None) -> None:
    tiny = compose("train", [*TINY, seeds])
    classes = {"net": ClassSpec(f"{__name__}.{net}", key="model.net._target_")}
    if loss is not None:
        classes["loss"] = ClassSpec(f"{__name__}.{loss}", key="model.loss._target_")
    build_module(replace(tiny, model=replace(tiny.model, **classes)), CPU)


@pytest.fixture
def trusted(monkeypatch):
    monkeypatch.setattr("arith_erd.config.class_spec._trusted_packages", {__name__})


@pytest.mark.parametrize("seeds", ["seed=0", "seed=0-2"])
def test_network_and_loss_of_ones_own_are_accepted(seeds, trusted):
    assembled(seeds, loss="OfTheActivation")


@pytest.mark.parametrize("name", BAD)
def test_network_or_loss_that_would_train_wrongly_is_refused_in_one_line(name, trusted):
    base, *_, message = BAD[name]
    kind = "net" if base is Good else "loss"
    with pytest.raises(UserError, match=rf"^model\.{kind}\._target_={__name__}\.{name}: {message}"):
        assembled("seed=0-2", **{kind: name})
