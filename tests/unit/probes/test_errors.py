"""The errors of a network that is wrong in a known way."""

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from arith_erd.bits import encode_completion
from arith_erd.interp.hooked import Hooked
from arith_erd.models import Network
from arith_erd.probes.errors import Errors, longest_carry, truncated_binomial
from arith_erd.splits import Split, ValueSplit
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
    completion = encode_completion(answer, task.width, task.completion_order, task.base)
    return Hooked(Parrot(task, completion), {}, name="parrot", seed=seed, task=task, split=split)


def measure(*subjects: Hooked) -> pd.DataFrame:
    probe = Errors(subjects)
    return pd.DataFrame(probe.rows(), columns=list(probe.columns))


def test_known_error_is_reported_in_value_and_in_bits() -> None:
    examples = TASK.examples()
    answer = np.where((examples.a == 3) & (examples.b == 5), 7, examples.answer)
    (row,) = measure(parrot(TASK, answer)).to_dict("records")
    assert row == {
        "seed": 0,
        "subset": "all",
        "a": 3,
        "b": 5,
        "answer": 8,
        "decoded": 7,
        "value_error": -1,
        "hamming_error": 4,
        "longest_carry": 3,
    }


def test_known_error_in_base_10_and_of_three_operands() -> None:
    task = Add(2, base=10)
    examples = task.examples()
    subject = parrot(task, np.where((examples.a == 47) & (examples.b == 85), 122, examples.answer))
    (row,) = measure(subject).to_dict("records")
    assert row["value_error"] == -10
    assert (row["hamming_error"], row["longest_carry"]) == (1, 2)
    task = Add3(2)
    examples = task.examples()
    subject = parrot(task, np.where(examples.answer == 9, 8, examples.answer))
    (row,) = measure(subject).to_dict("records")
    assert [row[name] for name in ("a", "b", "c", "answer", "decoded", "longest_carry")] == [3, 3, 3, 9, 8, 2]
    assert Errors([subject]).figure(pd.DataFrame([row])).axes


@pytest.mark.parametrize("order", ["reverse", "plain"])
def test_every_wrong_answer_is_reported_once(order: str) -> None:
    task = Mul(3, completion_order=order)
    examples = task.examples()
    answer = (examples.answer + (examples.a > 4) * 9) % 64
    rows = measure(parrot(task, answer))
    assert len(rows) == 3 * 8
    assert (rows["decoded"] == (rows["a"] * rows["b"] + 9) % 64).all()
    assert (rows["value_error"] == rows["decoded"] - rows["answer"]).all()
    assert (rows["hamming_error"] == np.bitwise_count(rows["decoded"] ^ rows["answer"])).all()
    assert rows["longest_carry"].isna().all()  # carries are a concept of addition


def test_subsets_are_those_of_the_split() -> None:
    examples = TASK.examples()
    split = ValueSplit()
    subject = parrot(TASK, (examples.answer + 1) % 16, split)
    rows = measure(subject)
    assert ((rows["subset"] == "validation") == split(examples)).all()
    table = Errors([subject]).table(rows).set_index("subset")
    assert table["wrong"].to_dict() == {"train": 48, "validation": 16}


def test_longest_carry_equals_adding_by_hand() -> None:
    examples = TASK.examples()
    for a, b, longest in zip(examples.a, examples.b, longest_carry(TASK, examples), strict=True):
        carry, run, expected = 0, 0, 0
        for i in range(3):
            carry = (int(a) >> i & 1) + (int(b) >> i & 1) + carry >= 2
            run = run + 1 if carry else 0
            expected = max(expected, run)
        assert longest == expected


def test_without_errors_there_are_no_rows_and_the_figure_says_so() -> None:
    subjects = [parrot(TASK, TASK.examples().answer, seed=seed) for seed in (0, 1)]
    rows = measure(*subjects)
    assert rows.empty
    figure = Errors(subjects).figure(rows)
    assert "no wrong answers" in [text.get_text() for text in figure.texts]
    assert Errors(subjects).table(rows)["wrong"].tolist() == [0, 0]


def test_figure_tells_near_misses_from_flipped_bits() -> None:
    examples = TASK.examples()
    rows = measure(parrot(TASK, np.where(examples.answer > 0, examples.answer - 1, 0)))
    figure = Errors([parrot(TASK, examples.answer)]).figure(rows)
    in_value = figure.axes[0]
    assert in_value.patches[0].get_height() == 1  # every error is of size 1
    assert in_value.lines[0].get_ydata()[0] < 0.5  # random flips would make few of them so


@pytest.mark.parametrize("mean", [1.0, 1.001, 2.5, 4.0, 7.99, 8.0])
def test_independent_flips_have_the_stated_mean(mean: float) -> None:
    probability = truncated_binomial(8, mean)
    assert probability.sum() == pytest.approx(1)
    assert probability @ np.arange(1, 9) == pytest.approx(mean)
