"""The probes that look into layers: identities that hold for any weights, and labels of any task's tokens."""

import numpy as np
import pytest
import torch

import arith_erd as ae
from arith_erd.errors import UserError
from arith_erd.interp.hooked import Hooked
from arith_erd.interp.interventions import Replace
from arith_erd.models import NanoGPT, Network, Transformer
from arith_erd.probes.attention import Attention
from arith_erd.probes.logit_lens import LogitLens
from arith_erd.probes.patching import Patching, change_digit, other_operands
from arith_erd.tasks import Add, Add3, AddScratchpad, ModAdd, Mul, Sub, Task
from tests.unit.probes.small import measured, untrained

pytestmark = pytest.mark.slow_after(3)

MODELS = (Transformer, NanoGPT)
TASK = Add(3)


@pytest.mark.parametrize("model", MODELS)
def test_attention_weights_of_a_query_sum_to_one_and_spread_where_operands_decide(model: type[Network]) -> None:
    probe = Attention([untrained(Mul(3), model)], num_examples=None)
    rows = measured(probe)
    sums = rows.groupby(["site", "head", "query"])["weight"].sum()
    np.testing.assert_allclose(sums, 1, atol=1e-6)
    assert rows["spread"].max() > 1e-3
    only = rows[(rows["query"] == rows["query"][0]) & (rows["key"] == "<s>") & (rows["site"] == "dec.1.attn.pattern")]
    assert (only["spread"] < 1e-6).all()  # the first query of a decoder sees one token, which is always the same
    with pytest.raises(UserError, match=r"^probe=attention: test has no attention"):
        Attention([untrained(TASK, model, attention=False)])


@pytest.mark.parametrize("model", MODELS)
def test_logit_lens_of_the_last_layer_equals_the_network(model: type[Network]) -> None:
    probe = LogitLens([untrained(Add(3), model)], num_examples=None)
    rows = measured(probe)
    last = rows[rows["site"] == "dec.2"]
    assert (last["agreement"] == 1).all()
    assert rows.loc[rows["site"] == "dec.1.resid_pre", "agreement"].min() < 1
    assert rows["probability"].between(0, 1).all()


@pytest.mark.parametrize(("model", "embedded"), [(Transformer, "enc.embed"), (NanoGPT, "dec.embed")])
@pytest.mark.parametrize("task", [Add(3), Add3(2)], ids=lambda task: task.name)
def test_changed_digits_recover_the_first_token_and_last_layer_positions_their_own(task, model, embedded):
    """The inputs of the first token are the prompt and ``<start>``, so the corrupted digit makes the clean run."""
    probe = Patching([untrained(task, model)], site=[embedded, "dec.2"], num_examples=40)
    rows = measured(probe)
    assert "in the last layer a position" in " ".join(probe.notes())
    assert "last layer" not in " ".join(Patching(probe.models, site="dec.1", num_examples=4).notes())
    first = rows[(rows["site"] == embedded) & (rows["token"] == "r0")].set_index("position")
    assert list(first.index) == task.prompt_names + (task.answer_names if model is NanoGPT else [])
    assert first["recovered"].sum() == pytest.approx(1, abs=1e-3)
    operators = [name for name in task.prompt_names if name.startswith(task.operator)]
    assert (first.loc[operators, "recovered"].abs() < 1e-3).all()
    last = rows[(rows["site"] == "dec.2") & (rows["n"] > 0)]
    assert set(last["position"]) == set(task.answer_names)
    np.testing.assert_allclose(last["recovered"], last["position"] == last["token"], atol=1e-3)


@pytest.mark.parametrize("task", [Add3(2), Sub(2, base=10), ModAdd(4, modulus=11)], ids=lambda task: task.name)
def test_corrupted_digit_is_one_digit_of_one_operand(task: Task) -> None:
    clean = task.examples()
    other = change_digit(task, clean, np.random.default_rng(0))
    assert ((clean.prompt != other.prompt).sum(axis=1) == 1).all()
    assert ((other.operands >= 0) & (other.operands < task.limit)).all()
    changed = (clean.prompt != other.prompt).any(axis=0)
    assert changed.sum() == task.num_operands * task.bits  # every digit of every operand is changed somewhere
    pair = other_operands(task, clean, np.random.default_rng(0))
    assert (clean.operands != pair.operands).any(axis=1).all()


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


class Branch(NanoGPT):
    """A network whose ``dec.2`` is what a block adds, not the stream after it."""

    def sites(self):
        return super().sites() | {"dec.2": self.blocks[1].feed_forward.sublayer}


def test_logit_lens_refuses_a_layer_that_is_not_the_whole_state():
    branch = Hooked(untrained(TASK, Branch).network, task=TASK)
    with pytest.raises(UserError, match=r"^site=dec.2: is not the whole state of Branch: with dec.2 fixed, .* dec.1"):
        measured(LogitLens([branch], num_examples=8))


def test_heads_in_rows_are_numbered_as_in_interventions():
    model = untrained(TASK, NanoGPT)
    rows = measured(Attention([model]))
    assert sorted(rows["head"].unique()) == [0, 1]
    examples, site = TASK.examples(), "dec.2.attn.pattern"
    for head in (0, 1):
        chosen = rows[(rows["site"] == site) & (rows["head"] == head) & (rows["query"] == "r1")]
        _, cache = model.run_with_cache(examples, site, include_prompt=True)
        replaced = Replace(site, "r1", cache[site].mean(0, keepdim=True)[:, -TASK.width + 1], head=head)  # (1, nh, S)
        _, patched = model.run_with_cache(examples, site, replaced, include_prompt=True)
        pattern = patched[site][:, -TASK.width + 1].mean(0)  # the same mean, and no spread
        np.testing.assert_allclose(chosen["weight"], pattern[head], atol=1e-5)
        spread = patched[site][:, -TASK.width + 1].std(0).sum(-1)
        assert spread[head] < 1e-4 < spread[1 - head]


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
