"""The probes that look into layers, on small untrained networks: identities that hold for any weights."""

import numpy as np
import pandas as pd
import pytest
import torch

from arith_erd.errors import UserError
from arith_erd.interp.subject import Subject
from arith_erd.models import NanoGPT, Network, Transformer
from arith_erd.probes.attention import Attention
from arith_erd.probes.logit_lens import LogitLens
from arith_erd.probes.patching import Patching, corrupt
from arith_erd.probes.probe import Probe
from arith_erd.tasks import Add, Mul, Task

MODELS = (Transformer, NanoGPT)


def untrained(model: type[Network], task: Task, seed: int = 0, **options: bool) -> Subject:
    torch.manual_seed(seed)
    size = {"d_model": 16, "num_heads": 2, "num_layers": 2}
    network = model(prompt_length=task.prompt_length, answer_length=task.width, **size, **options)
    return Subject(name="untrained", seed=seed, task=task, network=network.eval(), split=None)


def measured(probe: Probe) -> pd.DataFrame:
    return pd.DataFrame(probe.rows(), columns=list(probe.columns))


def draws(probe: Probe, rows: pd.DataFrame) -> None:
    assert len(probe.table(rows))
    assert probe.figure(rows).axes


@pytest.mark.parametrize("model", MODELS)
def test_attention_weights_of_a_query_sum_to_one_and_spread_where_operands_decide(model: type[Network]) -> None:
    probe = Attention([untrained(model, Mul(3))], pairs=None)
    rows = measured(probe)
    sums = rows.groupby(["site", "head", "query"])["weight"].sum()
    np.testing.assert_allclose(sums, 1, atol=1e-6)
    assert rows["spread"].max() > 1e-3
    only = rows[
        (rows["query"] == rows["query"].iloc[0]) & (rows["key"] == "<s>") & rows["site"].str.startswith("dec.1.attn")
    ]
    assert (only["spread"] < 1e-6).all()  # the first query of a decoder sees one token, which is always the same
    draws(probe, rows)


def test_a_network_without_attention_is_refused_by_name() -> None:
    with pytest.raises(UserError, match=r"^probe=attention: untrained has no attention"):
        Attention([untrained(Transformer, Add(3), attention=False)])


@pytest.mark.parametrize("model", MODELS)
def test_the_lens_of_the_last_layer_is_the_network(model: type[Network]) -> None:
    probe = LogitLens([untrained(model, Add(3))], pairs=None)
    rows = measured(probe)
    last = rows[rows["site"] == "dec.2"]
    assert (last["agreement"] == 1).all()
    assert rows.loc[rows["site"] == "dec.1.resid_pre", "agreement"].min() < 1
    assert rows["probability"].between(0, 1).all()
    draws(probe, rows)


@pytest.mark.parametrize("corruption", ["bit", "pair"])
@pytest.mark.parametrize("model", MODELS)
def test_patching_the_last_layer_recovers_each_position_wholly_and_nothing_else(
    model: type[Network], corruption: str
) -> None:
    probe = Patching([untrained(model, Add(3))], corruption=corruption, pairs=40)
    rows = measured(probe)
    last = rows[(rows["site"] == "dec.2") & (rows["n"] > 0)]
    own = last["position"] == last["answer_position"]
    np.testing.assert_allclose(last.loc[own, "recovered"], 1, atol=1e-3)
    np.testing.assert_allclose(last.loc[~own, "recovered"], 0, atol=1e-3)
    draws(probe, rows)


@pytest.mark.parametrize("corruption", ["bit", "pair"])
def test_a_corrupted_pair_differs_as_it_should(corruption: str) -> None:
    task = Add(4)
    clean = task.examples()
    other = corrupt(task, clean, corruption, seed=0)
    changed = [bin(x).count("1") for x in (clean.a ^ other.a) + 16 * (clean.b ^ other.b)]
    assert set(changed) == {1} if corruption == "bit" else min(changed) >= 1
    assert ((other.a >= 0) & (other.a < 16) & (other.b >= 0) & (other.b < 16)).all()


def test_wrong_options_are_refused_with_their_key() -> None:
    subject = untrained(NanoGPT, Add(3))
    for make, message in (
        (lambda: Patching([subject], corruption="noise"), r"^probe\.corruption=noise"),
        (lambda: Patching([subject], pairs=0), r"^probe\.pairs=0"),
        (lambda: Patching([subject], site="enc.1"), r"^site enc\.1"),
        (lambda: LogitLens([subject], pairs=True), r"^probe\.pairs=True"),
    ):
        with pytest.raises(UserError, match=message):
            make()
