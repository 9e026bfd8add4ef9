"""Probes of networks whose tokens are not those of ``a+b=r``: labels are the task's own, or the question is refused."""

import numpy as np
import pytest

import arith_erd as ae
from arith_erd.errors import UserError
from arith_erd.models import NanoGPT, Transformer
from arith_erd.probes.attention import Attention
from arith_erd.probes.logit_lens import LogitLens
from arith_erd.probes.patching import Patching
from arith_erd.tasks import Add, Add3, AddScratchpad, Mul
from tests.unit.probes.small import measured, untrained


class Unnamed(Add):
    """Writes the prompt backwards, and keeps the names."""

    def examples(self, *operands, length=None):
        table = super().examples(*operands, length=length)
        return table[np.arange(len(table))]


class Backwards(Add):
    name = "backwards"

    def completion(self, operands, answer):
        return super().completion(operands, answer)[:, ::-1]

    @property
    def answer_names(self):
        return super().answer_names[::-1]


def hooked(task, network=NanoGPT):
    return untrained(task, network, layout=task.layout)


TASKS = [Add(2, interleaved=True), AddScratchpad(2), Backwards(2), Add3(2), Mul(1, base=10)]


@pytest.mark.parametrize(
    ("network", "task"),
    [*((NanoGPT, task) for task in TASKS), (Transformer, AddScratchpad(2))],
    ids=lambda x: getattr(x, "__name__", type(x).__name__),
)
def test_rows_have_the_names_of_the_tokens(network, task):
    model = hooked(task, network)
    patched = measured(Patching([model], site="dec.1", pairs=4))
    assert set(patched["position"]) <= {*task.prompt_names, *task.answer_names}
    measured(LogitLens([model], pairs=4))
    attention = measured(Attention([model], pairs=4))
    assert {*task.answer_names} <= set(attention["query"]) <= {*task.prompt_names, *task.answer_names}
    wrong = ae.probe("errors", model)
    assert {word for words in wrong.rows["wrong_tokens"] for word in words.split()} <= {*task.answer_names}
    assert wrong.figure()


@pytest.mark.parametrize("probe", ["interchange", "mechanism", "place_value", "explorer"])
def test_causal_probes_refuse_an_answer_with_other_tokens_than_its_digits(probe):
    with pytest.raises(UserError, match=r"task=add_scratchpad: 5 answer tokens for 3 bits"):
        assert ae.probe(probe, hooked(AddScratchpad(2))).rows.empty


def test_large_tables_are_sampled_and_said_so_and_several_lengths_or_no_names_refused():
    answer = ae.probe("logit_lens", hooked(Add(12)), pairs=8)
    assert "measured on a sample of the task's examples, at most 4,096" in answer.notes()
    with pytest.raises(UserError, match=r"^task=add: 16,777,216 examples; a causal model needs a table that is listed"):
        ae.CausalModel(Add(12))
    for probe, options in (
        ("dataset", {"split": ae.RandomSplit()}),
        ("ceilings", {"split": ae.RandomSplit()}),
        ("discontinuity", {}),
    ):
        with pytest.raises(
            UserError, match=rf"^task=add: .* examples; probe={probe} needs a table that is listed whole$"
        ):
            ae.probe(probe, task=Add(20), **options)
    with pytest.raises(UserError, match=r"^task=add: has operands of 1 to 3 bits; expected one length"):
        ae.probe("logit_lens", hooked(Add(3, min_bits=1)), pairs=8)
    for names, said in (
        (["q", "r"], "2 prompt_names for 5 tokens; expected one for each"),
        (["q"] * 5, "prompt_names q, q, q, q, q; expected a name of its own for each token"),
    ):
        task = type("Named", (Add,), {"prompt_names": names})(2)
        with pytest.raises(UserError, match=f"^task=add: {said}$"):
            ae.probe("logit_lens", hooked(task), pairs=4)
    with pytest.raises(UserError, match=r"^task=add: has tokens without names; expected its class to define answer_n"):
        ae.probe("logit_lens", hooked(Unnamed(2)), pairs=4)
