"""The errors of a network that is wrong in a known way."""

import io

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from arith_erd.interp.hooked import Hooked, Provenance
from arith_erd.models import Network
from arith_erd.probes.errors import Errors
from arith_erd.splits import RandomSplit, Split
from arith_erd.tasks import Add, Add3, Mul, Task

TASK = Add(3)


class Parrot(Network):
    """Gives, token by token, whatever completion it was told for each prompt."""

    def __init__(self, task: Task, completion: npt.NDArray[np.int64]) -> None:
        super().__init__()
        self.vocab_size = task.vocab_size
        self.device_marker = nn.Parameter(torch.zeros(1))
        rows = zip(task.examples().prompt.tolist(), completion.tolist(), strict=True)
        self.told = {tuple(prompt): tokens for prompt, tokens in rows}

    def encode(self, prompt: Tensor) -> Tensor:
        return prompt

    def decode(self, memory: Tensor, answer_in: Tensor) -> Tensor:
        steps = answer_in.shape[1]
        tokens = [self.told[tuple(prompt)][:steps] for prompt in memory.tolist()]
        return nn.functional.one_hot(torch.tensor(tokens, dtype=torch.int64).view(-1, steps), self.vocab_size).float()


def parrot(task: Task, answer: npt.NDArray[np.int64], split: Split | None = None, seed: int = 0) -> Hooked:
    completion = task.completion(task.examples().operands, answer)
    return Hooked(Parrot(task, completion), {}, name="parrot", seed=seed, task=task, provenance=Provenance(split))


def measure(*models: Hooked) -> pd.DataFrame:
    probe = Errors(models)
    return pd.DataFrame(probe.rows(), columns=list(probe.columns))


@pytest.mark.parametrize(
    ("task", "operands", "given", "row"),
    [
        (TASK, (3, 5), 7, {"decoded": 7, "value_error": -1, "hamming_error": 4, "wrong_tokens": "r0 r1 r2 r3"}),
        (Add(2, base=10), (47, 85), 122, {"value_error": -10, "hamming_error": 1, "longest_carry": 2}),
        (Add3(2), (3, 3, 3), 8, {"c": 3, "answer": 9, "decoded": 8, "longest_carry": 2}),
    ],
)
def test_known_error_is_reported_in_value_and_in_tokens(task, operands, given, row) -> None:
    examples = task.examples()
    there = (examples.operands == operands).all(axis=1)
    (found,) = measure(parrot(task, np.where(there, given, examples.answer))).to_dict("records")
    assert found | row == found


@pytest.mark.parametrize("order", ["reverse", "plain"])
def test_every_wrong_answer_is_reported_once(order: str) -> None:
    task = Mul(3, completion_order=order)
    examples = task.examples()
    answer = (examples.answer + (examples.a > 4) * 9) % 64
    rows = measure(parrot(task, answer))
    assert len(rows) == 3 * 8
    bits = rows["decoded"] ^ rows["answer"]
    assert (rows["decoded"] == (rows["a"] * rows["b"] + 9) % 64).all()
    assert (rows["value_error"] == rows["decoded"] - rows["answer"]).all()
    assert (rows["hamming_error"] == np.bitwise_count(bits)).all()
    named = rows["wrong_tokens"].map(lambda names: sum(2 ** int(name[1:]) for name in names.split()))
    assert (named == bits).all()
    assert rows["longest_carry"].isna().all()  # carries are a concept of addition


def test_shares_count_each_subset_by_token_and_by_carry_and_name_what_is_stuck() -> None:
    """Bit 4 is a coin, bit 3 only held out; held out, bit 5 is often wrong, and bit 1 as often as in training."""
    task, split = Add(5), RandomSplit()
    examples, generator = task.examples(), np.random.default_rng(0)
    held_out = split(examples)
    one, three, five, four = (generator.random(len(examples)) < share for share in (0.005, 0.5, 0.2, 0.5))
    answer = examples.answer ^ 2 * one ^ 8 * (three & held_out) ^ 32 * (five & held_out) ^ 16 * four
    probe = Errors([parrot(task, answer, split)])
    rows = pd.DataFrame(probe.rows(), columns=list(probe.columns))
    assert ((rows["subset"] == "validation") == held_out[32 * rows["a"] + rows["b"]]).all()
    panels = {ax.get_title(loc="left"): ax for ax in probe.figure(rows).axes}
    labels = [label.get_text() for label in panels["token"].get_xticklabels()]
    assert labels == ["r0", "r1", "r2", "r3\nlost\nheld\nout", "r4\nnever\nlearned", "r5"]

    assert Errors(probe.models).files() == probe.files()  # whatever is asked first
    shares = pd.read_csv(io.StringIO(probe.files()["shares.csv"])).set_index(["subset", "by", "name"])
    wrong = shares["wrong"]
    assert wrong["validation", "token", "r3"] == (three & held_out).sum()
    assert wrong["train", "token", "r1"] == (one & ~held_out).sum() > 0
    assert [wrong["train", "token", f"r{t}"] for t in (0, 2, 3, 5)] == [0] * 4
    carry = task.slices(examples)["longest_carry"]
    is_wrong = answer != examples.answer
    for length in range(6):
        assert wrong["validation", "longest carry", str(length)] == (is_wrong & held_out & (carry == length)).sum()
    assert shares["examples"]["train", "token", "r0"] == (~held_out).sum()
    found = shares["stuck"].dropna().to_dict()
    assert found == {("validation", "token", "r3"): "lost held out", ("validation", "token", "r4"): "never learned"}
    inside, outside = 1 - four[~held_out].mean(), 1 - four[held_out].mean()
    assert probe.notes() == [
        f"seed 0: bit r3 lost held out: {1 - three[held_out].mean():.1%} held out, 100.0% in training",
        f"seed 0: bit r4 never learned: {outside:.1%} held out, {inside:.1%} in training",
    ]


def test_networks_without_errors_are_reported_and_count_as_seeds() -> None:
    answer = TASK.examples().answer
    perfect = Errors(models := [parrot(TASK, answer, seed=seed) for seed in range(2)])
    rows, sentence = measure(*models), "no wrong answer in 64 pairs (2 seeds)"
    assert rows.empty
    assert perfect.table(rows)["wrong"].tolist() == [0, 0]
    assert perfect.summary() == [sentence]
    assert perfect.figure(rows).get_suptitle() == f"Addition: {sentence}"
    one_is_wrong = Errors([parrot(TASK, answer), parrot(TASK, answer ^ (np.arange(64) == 5), seed=1)])
    assert one_is_wrong.summary() == []
    title = one_is_wrong.figure(pd.DataFrame(one_is_wrong.rows())).get_suptitle()
    assert title.replace("\N{NO-BREAK SPACE}", " ").endswith("(2 seeds)")
