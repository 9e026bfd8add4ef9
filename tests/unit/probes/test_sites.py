"""The probes that look into layers, on small untrained networks: identities that hold for any weights."""

import numpy as np
import pandas as pd
import pytest

from arith_erd.errors import UserError
from arith_erd.interp.hooked import Hooked
from arith_erd.models import NanoGPT, Network, Transformer
from arith_erd.probes.attention import Attention
from arith_erd.probes.logit_lens import LogitLens
from arith_erd.probes.patching import Patching, corrupt
from arith_erd.tasks import Add, Add3, ModAdd, Mul, Sub, Task
from tests.unit.probes.small import measured, untrained

MODELS = (Transformer, NanoGPT)


@pytest.mark.parametrize("model", MODELS)
def test_attention_weights_of_a_query_sum_to_one_and_spread_where_operands_decide(model: type[Network]) -> None:
    probe = Attention([untrained(Mul(3), model)], pairs=None)
    rows = measured(probe)
    sums = rows.groupby(["site", "head", "query"])["weight"].sum()
    np.testing.assert_allclose(sums, 1, atol=1e-6)
    assert rows["spread"].max() > 1e-3
    only = rows[
        (rows["query"] == rows["query"].iloc[0]) & (rows["key"] == "<s>") & rows["site"].str.startswith("dec.1.attn")
    ]
    assert (only["spread"] < 1e-6).all()  # the first query of a decoder sees one token, which is always the same


def test_network_without_attention_is_refused_by_name() -> None:
    network = Transformer(7, 4, d_model=16, num_heads=2, num_layers=2, attention=False)
    with pytest.raises(UserError, match=r"^probe=attention: Transformer has no attention"):
        Attention([Hooked(network, task=Add(3))])


@pytest.mark.parametrize("model", MODELS)
def test_logit_lens_of_the_last_layer_equals_the_network(model: type[Network]) -> None:
    probe = LogitLens([untrained(Add(3), model)], pairs=None)
    rows = measured(probe)
    last = rows[rows["site"] == "dec.2"]
    assert (last["agreement"] == 1).all()
    assert rows.loc[rows["site"] == "dec.1.resid_pre", "agreement"].min() < 1
    assert rows["probability"].between(0, 1).all()


@pytest.mark.parametrize("corruption", ["bit", "pair"])
@pytest.mark.parametrize("model", MODELS)
def test_patching_the_last_layer_recovers_each_position_wholly_and_nothing_else(
    model: type[Network], corruption: str
) -> None:
    probe = Patching([untrained(Add(3), model)], corruption=corruption, pairs=40)
    rows = measured(probe)
    last = rows[(rows["site"] == "dec.2") & (rows["n"] > 0)]
    own = last["position"] == np.array(Add(3).answer_names)[last["answer_position"]]
    np.testing.assert_allclose(last.loc[own, "recovered"], 1, atol=1e-3)
    np.testing.assert_allclose(last.loc[~own, "recovered"], 0, atol=1e-3)


@pytest.mark.parametrize(("model", "embedded"), [(Transformer, "enc.embed"), (NanoGPT, "dec.embed")])
@pytest.mark.parametrize("task", [Add(3), Add3(2)], ids=lambda task: task.name)
def test_patching_the_changed_digit_of_the_prompt_recovers_the_first_answer_token(
    task: Task, model: type[Network], embedded: str
) -> None:
    """Its inputs are the prompt and ``<start>``, so patching the corrupted digit makes the clean run."""
    probe = Patching([untrained(task, model)], site=[embedded, "dec.2"], pairs=40)
    rows = measured(probe)
    first = rows[(rows["site"] == embedded) & (rows["answer_position"] == 0)].set_index("position")
    assert list(first.index) == task.prompt_names + (task.answer_names if model is NanoGPT else [])
    assert first["recovered"].sum() == pytest.approx(1, abs=1e-3)
    operators = [name for name in task.prompt_names if name.startswith(task.operator)]
    assert (first.loc[operators, "recovered"].abs() < 1e-3).all()
    assert set(rows.loc[rows["site"] == "dec.2", "position"]) == set(task.answer_names)


def test_patch_that_moves_the_logits_the_wrong_way_has_another_hue_and_none_is_white() -> None:
    probe = Patching([untrained(Add(3), NanoGPT)], site="dec.1", pairs=8)
    rows = pd.DataFrame(probe.rows()).assign(recovered=0.0, n=1)
    for position, recovered in {"a0": 0.5, "a1": -0.25}.items():
        rows.loc[rows["position"] == position, "recovered"] = recovered
    (image,) = probe.figure(rows).axes[0].images
    more, less, none = image.to_rgba(image.get_array()[0])[:3, :3]
    assert more[2] > more[0]
    assert less[0] > less[2]
    assert none.min() > 0.95


@pytest.mark.parametrize("corruption", ["bit", "pair"])
def test_corrupted_pair_differs_in_the_chosen_digit(corruption: str) -> None:
    task = Add(4)
    clean = task.examples()
    other = corrupt(task, clean, corruption, seed=0)
    changed = [bin(x).count("1") for x in (clean.a ^ other.a) + 16 * (clean.b ^ other.b)]
    assert set(changed) == {1} if corruption == "bit" else min(changed) >= 1
    assert ((other.a >= 0) & (other.a < 16) & (other.b >= 0) & (other.b < 16)).all()


@pytest.mark.parametrize("task", [Add3(2), Sub(2, base=10), ModAdd(4, modulus=11)], ids=lambda task: task.name)
def test_corrupted_digit_is_one_digit_of_one_operand(task: Task) -> None:
    clean = task.examples()
    other = corrupt(task, clean, "bit", seed=0)
    assert ((clean.prompt != other.prompt).sum(axis=1) == 1).all()
    assert ((other.operands >= 0) & (other.operands < task.limit)).all()
    changed = (clean.prompt != other.prompt).any(axis=0)
    assert changed.sum() == task.operands * task.bits  # every digit of every operand is changed somewhere
    pair = corrupt(task, clean, "pair", seed=0)
    assert (clean.operands != pair.operands).any(axis=1).all()


@pytest.mark.parametrize("task", [Add3(2), Mul(1, base=10)], ids=lambda task: task.name)
def test_probes_take_any_base_and_number_of_operands(task: Task) -> None:
    subjects = [untrained(task, NanoGPT)]
    for probe in (Attention(subjects), LogitLens(subjects), Patching(subjects, pairs=8)):
        measured(probe)


def test_every_position_of_a_prompt_has_its_own_name() -> None:
    assert Add(2).prompt_names == ["a0", "a1", "+", "b0", "b1"]
    assert Sub(2, "plain", base=10).prompt_names == ["a1", "a0", "-", "b1", "b0"]
    assert Add3(2).prompt_names == ["a0", "a1", "+1", "b0", "b1", "+2", "c0", "c1"]


def test_wrong_options_are_refused_with_their_key() -> None:
    subject = untrained(Add(3), NanoGPT)
    for make, message in (
        (lambda: Patching([subject], corruption="noise"), r"^probe\.corruption=noise"),
        (lambda: Patching([subject], pairs=0), r"^probe\.pairs=0"),
        (lambda: Patching([subject], site="enc.1"), r"^site enc\.1"),
        (lambda: LogitLens([subject], pairs=True), r"^probe\.pairs=True"),
    ):
        with pytest.raises(UserError, match=message):
            make()
