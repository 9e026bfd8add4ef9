"""What every probe has: notes, names of tokens, checks of its options and its task."""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import arith_erd as ae
from arith_erd.errors import UserError
from arith_erd.interp.causal_model import CausalModel
from arith_erd.models import NanoGPT, Transformer
from arith_erd.probes.amnesic import Amnesic
from arith_erd.probes.attention import Attention
from arith_erd.probes.dose import Dose
from arith_erd.probes.interchange import InterchangeProbe
from arith_erd.probes.logit_lens import LogitLens
from arith_erd.probes.mechanism import Mechanism
from arith_erd.probes.patching import Patching
from arith_erd.probes.probe import weighted_means
from arith_erd.probes.subspaces import Subspaces
from arith_erd.tasks import Add, Add3, AddScratchpad, Mul, RandomOutput, Sub, Task
from tests.unit.probes.small import measured, own_model, untrained

ADD, RANDOM = Add(3), RandomOutput(3)
OWN = partial(InterchangeProbe, causal_model=own_model)


def test_means_are_over_the_values_that_are_known() -> None:
    rows = pd.DataFrame({"token": ["r0", "r0", "r1"], "n": [1, 3, 2], "a": [0.5, float("nan"), float("nan")]})
    means = weighted_means(rows, ["token"], ["a"])["a"]
    assert means["r0"] == 0.5
    assert pd.isna(means["r1"])


@pytest.mark.parametrize(
    ("task", "words", "others"),
    [
        (Add(3), ("bit t also scores high for the sum", "dose can", "linear in the operands' digits"), ()),
        (Add(1, base=10), ("digit t also scores",), ("bits",)),
        (Mul(3), ("for the product", "dose can"), ("sum", "addition")),
        (Sub(3), ("probe=subspaces can",), ("sum", "dose", "addition", "bit t")),
    ],
    ids=lambda x: repr(x) if isinstance(x, Task) else "",
)
def test_notes_say_what_holds_for_the_task(task: Task, words: tuple[str, ...], others: tuple[str, ...]) -> None:
    models = [untrained(task)]
    probes = Amnesic(models, "dec.1"), InterchangeProbe(models, num_examples=2), Subspaces(models, "dec.1")
    notes = " ".join(note for probe in probes for note in probe.notes()).replace("baseline_operand_bits", "")
    assert [word for word in words if word not in notes] == []
    assert [word for word in others if word in notes] == []


def only_bits(task: Task) -> CausalModel:
    return CausalModel(task, {"answer": lambda a, b: a + b})


@pytest.mark.parametrize(
    ("probe", "task", "options", "message"),
    [
        (Patching, ADD, {"site": "dec.9"}, r"probe.site=dec\.9: this model has enc\.1"),
        (Patching, ADD, {"corruption": "noise"}, r"^probe\.corruption=noise"),
        (LogitLens, ADD, {"num_examples": True}, r"^probe\.num_examples=true"),
        (Amnesic, ADD, {"concept": "carry"}, r"probe\.concept=carry: .*value, completion_bits, .*carries"),
        (Amnesic, ADD, {"method": ["leace", "rlace"]}, r"rlace.*: expected inlp, mean_projection or leace"),
        (Mechanism, RANDOM, {}, r"^probe=mechanism: received task=random_output; expected"),
        (Mechanism, ADD, {"num_examples": 8}, r"^probe\.num_examples=8: expected an integer of at least 64"),
        (Mechanism, ADD, {"causal_model": CausalModel}, r"=.*: expected a causal model with the variable prefix"),
        (InterchangeProbe, ADD, {"variable": "carries"}, r"probe\.variable=carries: expected some of a_bit"),
        (InterchangeProbe, ADD, {"families": {"x": {"keep": ["carries"]}}}, r"families\.x=carries: expected"),
        (InterchangeProbe, ADD, {"families": {"x": {"vary": "sum", "keep": "sum"}}}, r"families=x: none of"),
        (InterchangeProbe, ADD, {"families": {"x": {"varies": "sum"}}}, r"probe\.families\.x\.varies"),
        (OWN, ADD, {"variable": "idle"}, r"^probe\.variable=idle: its interchange changes no answer"),
        (OWN, ADD, {"variable": ["total", "sum"]}, r"^probe\.variable=sum: it predicts the same as another variable"),
        (OWN, ADD, {"variable": "low_carry"}, r"^probe\.variable=low_carry: none of 64 bases has a pair"),
        (Subspaces, ADD, {"position": 0, "variable": "carry"}, r"probe\.variable=carry: its interchange changes no an"),
        (Subspaces, ADD, {"site": "dec.1", "position": 4}, r"probe\.position=4: expected an integer from 0 to 3"),
        (Subspaces, ADD, {"site": "enc.1", "position": 1}, r"probe\.position=1: expected all at enc\.1"),
        (Subspaces, RANDOM, {"position": "all"}, r"probe\.position=all: task=random_output has no value"),
        (Dose, Sub(3), {}, r"^probe\.causal_model=null: expected a causal model of sub with .* the answer as a number"),
        (Dose, ADD, {"causal_model": only_bits}, r"^probe\.causal_model=.*: expected .* the answer as a number"),
        (Mechanism, Add(12), {}, "^task=add: 16,777,216 examples; probe=mechanism needs"),
        (Dose, ADD, {"delta": 15}, r"probe\.delta=15: expected an integer from 1 to 14"),
    ],
)
def test_bad_options_are_refused_before_any_forward(probe, task, options: dict[str, Any], message, monkeypatch) -> None:
    model = untrained(task)
    monkeypatch.setattr(model.network, "encode", lambda prompt: pytest.fail("ran the network"))
    options = {"site": "dec.1"} | options if probe in (Subspaces, Amnesic) else options
    with pytest.raises(UserError, match=message):
        probe([model], **options)


UNNAMED = "has tokens without names; expected its class to define"


class Unnamed(Add):
    """Writes the prompt backwards, and keeps the names."""

    def examples(self, *operands, length=None):
        table = super().examples(*operands, length=length)
        return table[np.arange(len(table))]


class Reversed(Add):
    """Writes its answer from the highest digit, and keeps the names."""

    def completion(self, operands, answer):
        return super().completion(operands, answer)[:, ::-1]


class Backwards(Reversed):
    name = "backwards"

    @property
    def answer_names(self):
        return super().answer_names[::-1]


TASKS = [Add(2, interleaved=True), AddScratchpad(2), Backwards(2), Add3(2), Mul(1, base=10)]


@pytest.mark.slow_after(3)
@pytest.mark.parametrize(
    ("network", "task"),
    [*((NanoGPT, task) for task in TASKS), (Transformer, AddScratchpad(2))],
    ids=lambda x: getattr(x, "__name__", type(x).__name__),
)
def test_rows_have_the_names_of_the_tokens(network, task):
    model = untrained(task, network)
    patched = measured(Patching([model], site="dec.1", num_examples=4))
    assert set(patched["position"]) <= {*task.prompt_names, *task.answer_names}
    measured(LogitLens([model], num_examples=4))
    attention = measured(Attention([model], num_examples=4))
    assert {*task.answer_names} <= set(attention["query"]) <= {*task.prompt_names, *task.answer_names}
    wrong = ae.probe("errors", model)
    assert {word for words in wrong.rows["wrong_tokens"] for word in words.split()} <= {*task.answer_names}
    assert wrong.figure()


@pytest.mark.parametrize("probe", ["interchange", "mechanism", "place_value"])
def test_causal_probes_refuse_an_answer_with_other_tokens_than_its_digits(probe):
    with pytest.raises(UserError, match=r"task=add_scratchpad: 5 answer tokens for 3 bits"):
        assert ae.probe(probe, untrained(AddScratchpad(2), NanoGPT)).rows.empty


def named(prompt_names: list[str]) -> Task:
    return type("Named", (Add,), {"prompt_names": prompt_names})(2)


def test_large_tasks_are_sampled_with_a_note_and_several_lengths_or_no_names_refused():
    answer = ae.probe("logit_lens", untrained(Add(12)), num_examples=8)
    assert "measured on at most 4,096 of the task's examples" in answer.notes()
    for ask, message in (
        (
            lambda: ae.CounterfactualDataset.sample(ae.CausalModel(Add(12)), "carry"),
            "16,777,216 examples; a dataset of pairs needs one length",
        ),
        (lambda: ae.probe("discontinuity", task=Add(20)), ".* examples; probe=discontinuity needs one length"),
        (lambda: ae.probe("dataset", task=Add(20)), ".* examples; probe=dataset needs one length, and fewer"),
        (lambda: ae.probe("ceilings", task=Add(20)), ".* examples; probe=ceilings needs one length, and fewer"),
        (lambda: ae.probe("logit_lens", untrained(named(["q", "r"]))), "2 prompt_names for 5 tokens; expected one"),
        (lambda: ae.probe("logit_lens", untrained(named(["p", "q", "r0", "s", "t"]))), "r0 names two tokens; expected"),
        (lambda: ae.probe("logit_lens", untrained(Add(3, min_bits=1), NanoGPT)), "has operands of 1 to 3 bits; "),
        (lambda: ae.probe("logit_lens", untrained(Unnamed(2))), UNNAMED),
    ):
        with pytest.raises(UserError, match=f"^task=add: {message}"):
            ask()


def test_tokens_without_names_are_refused_wherever_a_name_is_looked_up():
    """Names of the default order would score, replace or decode the wrong digit."""
    model = untrained(task := Reversed(2), NanoGPT)
    adder = ae.CausalModel(task)
    pairs = ae.CounterfactualDataset.sample(adder, vary="carry", n=8)
    for ask in (
        lambda: ae.interchange_accuracy(model, adder, pairs, sites="dec.1"),
        lambda: ae.interchange_accuracy(model, adder, pairs, ae.Interchange("dec.1", 0)),
        lambda: ae.fit_das(model, adder, pairs, "dec.1", 0),
        lambda: model.run(task.examples(), ae.Replace("dec.1", "r0", torch.zeros(16))),
        lambda: model.predict([1], [2]),
    ):
        with pytest.raises(UserError, match=f"^task={task.name}: {UNNAMED}"):
            ask()
    assert model.run(task.examples(), ae.Replace("dec.1", 0, torch.zeros(16))).isfinite().all()  # an index needs none
