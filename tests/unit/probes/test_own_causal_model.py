"""A user's network and causal model, from a folder outside the project, in training and in every causal probe."""

import pandas as pd
import pytest
from lightning.pytorch.utilities.seed import isolate_rng

from arith_erd.config import class_spec
from arith_erd.config.causal_models import build_causal_model
from arith_erd.errors import UserError
from arith_erd.tasks import Add

PARTS = '''
import arith_erd as ae
from torch import nn


class Net(ae.Network):
    def __init__(self, prompt_length, answer_length, vocab_size, **options):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, 8)
        self.read = nn.Linear(8 * prompt_length, 8)
        self.position = nn.Embedding(answer_length, 8)
        self.mix = nn.Linear(8, 8)
        self.head = nn.Linear(8, vocab_size)

    def encode(self, prompt):
        return self.read(self.embedding(prompt).flatten(-2))

    def decode(self, memory, answer_in):
        x = memory.unsqueeze(-2) + self.embedding(answer_in) + self.position.weight[: answer_in.shape[-1]]
        return self.head(self.mix(x.relu()).relu())

    def sites(self):
        return {"dec.1": self.mix}


class Halves(ae.CausalModel):
    """The lower two bits are added first; ``idle`` affects nothing."""

    def __init__(self, task):
        parts = {"low": lambda a, b: a % 4 + b % 4, "high": lambda a, b: a // 4 + b // 4, "idle": lambda a: a}
        super().__init__(task, parts | {"total": lambda low, high: low + 4 * high})


def halves(task: ae.Task) -> "ae.CausalModel":
    return Halves(task)


def silent(task):
    return Halves(task)


def narrow(task: ae.Task) -> ae.CausalModel:
    return Halves(ae.Add(2))
'''


@pytest.mark.slow
def test_own_network_trains_on_an_own_variable_and_every_causal_probe_accepts_it(package, train, main) -> None:
    package("mine", parts=PARTS)
    net = ("model=nanogpt", "model.net._target_=mine.parts.Net", "trust=[mine]")
    loss = ("loss=interchange", "model.loss.variables={low: {site: dec.1, dims: [0, 3]}}")
    with isolate_rng():
        run = train(*net, *loss, "model.loss.causal_model=mine.parts.halves")
    assert set(pd.read_csv(run.tokens_file)["split"]) == {"train", "val", "low"}
    own, small = "probe.causal_model=mine.parts.Halves", ("probe.num_train=32", "probe.steps=2", "probe.num_controls=2")
    for probe, *options in (
        ("interchange", "probe.variable=[low,high]", "probe.num_examples=8"),
        ("subspaces", "probe.variable=low", "probe.site=dec.1", *small),
        ("dose", "probe.delta=1", "probe.num_examples=8"),
    ):
        ask = ("probe.py", f"probe={probe}", f"run={run.path}", *options)
        asked = main(*ask, own, "trust=[mine]")
        assert asked.returncode == 0, asked.stderr
        (result,) = run.path.joinpath("probes").glob(f"{probe}-*/rows.csv")
        assert len(pd.read_csv(result))
    class_spec._trusted_packages.clear()
    refused = main(*ask, own)
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "trust=[mine]" in refused.stderr


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mine.parts.silent", r"=mine\.parts\.silent: expected an annotated function, such as def silent\("),
        ("mine.parts.Net", r"=mine\.parts\.Net: expected a CausalModel"),
        ("mine.parts.narrow", r"=mine\.parts\.narrow: expected a function or class that makes a CausalModel"),
        ("arith_erd.config.class_spec.trust", r"=arith_erd\.config\.class_spec\.trust: expected a class"),
    ],
)
def test_names_that_make_no_causal_model_of_the_task_are_refused(package, name: str, message: str) -> None:
    package("mine", parts=PARTS)
    class_spec.trust("mine")
    with pytest.raises(UserError, match=rf"^probe\.causal_model{message}"):
        build_causal_model(Add(3), name, "probe.causal_model")
