"""The causal probes: rows, tables and figures on small networks, and what they refuse."""

import io
from typing import Any

import pandas as pd
import pytest
import torch
from arith_erd.interp.subject import Subject
from torch import Tensor

from arith_erd.errors import UserError
from arith_erd.models import NanoGPT, Network, Transformer
from arith_erd.probes.dose import Dose
from arith_erd.probes.interchange import Interchange
from arith_erd.probes.mechanism import Mechanism
from arith_erd.probes.prefix import BINS, Prefix
from arith_erd.probes.probe import Probe
from arith_erd.probes.subspaces import Subspaces
from arith_erd.probes.transfer import Transfer
from arith_erd.tasks import Add, Mul, RandomOutput, Task
from tests.unit.interp.toys import FromLastToken, FromPrompt, InDirections, OneNumber

SMALL = {"train": 64, "validation": 20, "test": 20, "steps": 4, "random": 2}


def subject(task: Task, network: Network | type[Network], seed: int = 0) -> Subject:
    if isinstance(network, type):
        torch.manual_seed(seed)
        network = network(task.prompt_length, task.width, d_model=16, num_heads=2, num_layers=2)
    return Subject("test", seed, task, network.eval(), None)


def measure(probe: Probe) -> pd.DataFrame:
    """Rows that fit their columns, a figure that can be saved and a table that can be shown."""
    rows = pd.DataFrame(probe.rows())
    assert list(rows.columns) == list(probe.columns)
    file = io.BytesIO()
    probe.figure(rows).savefig(file)
    assert file.tell() < 300_000
    assert len(probe.table(rows))
    return rows


@pytest.mark.parametrize("kind", [Transformer, NanoGPT])
@pytest.mark.parametrize("task", [Add(3), Mul(3), RandomOutput(3)], ids=["add", "mul", "random_output"])
def test_prefix_on_every_network_and_task(kind, task):
    rows = measure(Prefix([subject(task, kind)]))
    strata = {"all", "propagate", "settled"} if task.name == "add" else {"all"}
    assert set(rows["stratum"]) == strata
    whole = rows[rows["d"].isna()].set_index(["position", "intervention", "stratum"])["n"]
    assert whole[1, "flip", "all"] == 64
    assert whole[3, "far", "all"] == 2 * 64
    assert whole[2, "random", "all"] == 2 * 64
    bins = rows[(rows["d"].notna()) & (rows["stratum"] == "all")].groupby("position")["n"].sum()
    assert (bins == 2 * 64).all()
    assert set(rows["d"].dropna()) <= set(BINS)


def test_prefix_tells_a_carry_off_the_last_token_from_the_prompt():
    task = Add(4)
    changed = {}
    for network in (FromPrompt(task), FromLastToken(task)):
        rows = measure(Prefix([subject(task, network)]))
        flips = rows[rows["intervention"] == "flip"]
        changed[type(network)] = flips.groupby("stratum")["changed"].agg(["min", "max"])
        own = "prompt_only" if isinstance(network, FromPrompt) else "local_carry"
        random = rows[(rows["intervention"] == "random") & (rows["n_differ"] > 0)]
        assert (random[own] == 1).all()
        assert random["remainder"].mean() < 1
    assert (changed[FromPrompt] == 0).all(axis=None)
    assert changed[FromLastToken].loc["propagate"].tolist() == [1, 1]
    assert changed[FromLastToken].loc["settled"].tolist() == [0, 0]


@pytest.mark.parametrize("kind", [Transformer, NanoGPT])
@pytest.mark.parametrize("task", [Add(2), Mul(2)], ids=["add", "mul"])
def test_interchange_on_every_network_and_task(kind, task):
    rows = measure(Interchange([subject(task, kind, seed=5)], sample=4))
    assert set(rows["seed"]) == {5}
    assert set(rows["site"]) == {"dec.1", "dec.2"} | ({"enc.1", "enc.2"} if kind is Transformer else set())
    assert len(rows.drop_duplicates(["site", "position", "family", "answer"])) == len(rows)
    shares = rows.filter(regex="^(flipped|iia|floor|ceiling)")
    assert (shares.isna() | ((shares >= 0) & (shares <= 1))).all(axis=None)
    assert (rows["iia_none"] >= 1 - rows["flipped"] - (1 - rows["floor_none"]) - 1e-9).all()


def test_interchange_inside_a_layer():
    rows = measure(Interchange([subject(Add(3), Transformer)], site="dec.2.mlp.post", sample=4))
    assert set(rows["site"]) == {"dec.2.mlp.post"}


def test_subspaces_in_a_network_of_two_directions():
    task = Add(4)
    rows = measure(Subspaces([subject(task, InDirections(task))], "dec.1", 2, ["carry", "xor"], **SMALL))
    chosen = rows[rows["chosen"] == 1].set_index("variable")
    assert chosen["rank"].to_dict() == {"carry": 1, "xor": 1}
    assert (chosen["iia"] == 1).all()
    assert chosen["iia_untrained"].notna().all()
    assert rows.loc[rows["chosen"] == 0, "iia_untrained"].isna().all()


def test_subspaces_of_products_and_of_all_positions():
    rows = measure(Subspaces([subject(Mul(3), Transformer)], "dec.1", 2, rank=1, **SMALL))
    assert list(rows["variable"]) == ["a_bit", "b_bit", "column_sum", "column_carry", "product"]
    rows = measure(Subspaces([subject(Add(3), Transformer)], "enc.1", "all", rank=1, **SMALL))
    assert rows[["position", "variable"]].to_numpy().tolist() == [["all", "sum"]]


def test_dose_and_transfer_of_one_number():
    task = Add(4)
    network = OneNumber(task)
    rows = measure(Dose([subject(task, network)], delta=[1, 4], sample=30))
    assert (rows["answer"] > 0.95).all()
    rows = measure(Transfer([subject(task, network)], "dec.1", "slope", sample=40))
    assert rows["iia"].mean() > 0.95


def test_dose_of_products():
    rows = measure(Dose([subject(Mul(3), Transformer)], "dec.2", delta=[1, 2], sample=10))
    assert (rows["n"] <= 10).all()
    assert rows["answer"].between(0, 1).all()


ADD, PLAIN, RANDOM = Add(3), Add(3, completion_order="plain"), RandomOutput(3)


@pytest.mark.parametrize("probe", [Prefix, Interchange, Subspaces, Dose, Transfer, Mechanism])
def test_answers_in_plain_order_are_refused_in_a_line(probe):
    with pytest.raises(UserError, match=r"^task\.completion_order=plain: expected reverse"):
        probe([subject(PLAIN, Transformer)])


class WithoutTree(Network):
    """A user's network, as in ``docs/extend.md``: its ``decode`` takes no tree."""

    def decode(self, memory: Tensor, answer_in: Tensor) -> Tensor:  # type: ignore[override]
        raise NotImplementedError


@pytest.mark.parametrize(("probe", "name"), [(Prefix, "prefix"), (Mechanism, "mechanism")])
def test_network_whose_decoder_takes_no_tree_is_refused(probe, name):
    with pytest.raises(UserError, match=rf"^probe={name}: .* WithoutTree.*expected model transformer or nanogpt$"):
        probe([subject(ADD, WithoutTree())])


@pytest.mark.parametrize(
    ("probe", "task", "options", "message"),
    [
        (Prefix, ADD, {"draws": 0}, r"probe\.draws=0: expected an integer of at least 1"),
        (Interchange, ADD, {"site": "dec.9"}, r"site dec\.9: this model has enc\.1"),
        (Interchange, ADD, {"sample": "many"}, r"probe\.sample=many"),
        (Subspaces, Mul(3), {"variable": "carry"}, r"probe\.variable=carry: expected variables of task mul: a_bit"),
        (Subspaces, ADD, {"site": "dec.1", "position": 4}, r"probe\.position=4: expected an integer from 0 to 3"),
        (Subspaces, ADD, {"site": "enc.1", "position": 1}, r"probe\.position=1: expected all at enc\.1"),
        (Subspaces, ADD, {"position": "all", "variable": "xor"}, r"probe\.variable=xor: expected sum with"),
        (
            Subspaces,
            RANDOM,
            {"position": "all"},
            r"probe\.position=all: task random_output has neither sum nor product",
        ),
        (Subspaces, ADD, {"position": 1, "rank": 0}, r"probe\.rank=0: expected an integer of at least 1"),
        (Dose, RANDOM, {}, r"task random_output has no single value to move"),
        (Dose, ADD, {"method": "probe"}, r"probe\.method=probe: expected some of slope, leace, centroids, das"),
        (Dose, ADD, {"delta": 15}, r"probe\.delta=15: expected an integer from 1 to 14"),
        (Transfer, ADD, {"site": "enc.1"}, r"probe\.site=enc\.1: expected sites of the decoder"),
        (Transfer, RANDOM, {"site": "dec.1"}, r"task random_output has no single value"),
    ],
)
def test_bad_options_are_refused_before_any_forward(probe, task, options: dict[str, Any], message, monkeypatch):
    network = subject(task, Transformer)
    monkeypatch.setattr(network.network, "encode", lambda prompt: pytest.fail("ran the network"))
    options = {"site": "dec.1"} | options if probe is Subspaces else options
    with pytest.raises(UserError, match=message):
        probe([network], **options)
