"""Exact ceilings, against guessing by brute force."""

from collections import Counter

import pandas as pd
import pytest

from arith_erd.paper.probes.ceilings import Ceilings, ceiling
from arith_erd.splits import RandomSplit
from arith_erd.tasks import Add, Mul, Sub


@pytest.mark.parametrize("task", [Add(3), Mul(3), Sub(3), Add(2, base=3)])
def test_ceiling_is_the_best_answer_to_each_visible_prompt(task) -> None:
    examples = task.examples()
    bags: dict[tuple, Counter] = {}
    for prompt, answer in zip(examples.prompt.tolist(), examples.answer.tolist(), strict=True):
        bags.setdefault(tuple(sorted(prompt)), Counter())[answer] += 1
    best = sum(max(counts.values()) for counts in bags.values()) / len(examples)
    constant = Counter(examples.answer.tolist()).most_common(1)[0][1] / len(examples)
    tokens = examples.prompt, examples.completion
    assert ceiling(*tokens, "no_positional_encoding") == pytest.approx(best)
    assert ceiling(*tokens, "no_attention") == pytest.approx(constant)
    assert ceiling(*tokens, "one_head") == 1.0


@pytest.mark.parametrize(("task", "percent"), [(Add(), (2.33, 0.78)), (Mul(), (1.82, 1.56))])
def test_rows_hold_the_ceilings_of_the_cells_that_never_learn(task, percent) -> None:
    rows = pd.DataFrame(Ceilings(task, RandomSplit()).rows()).set_index(["subset", "ablation"])["ceiling"]
    names = ["no_positional_encoding", "no_attention"]
    assert (100 * rows["all"][names]).round(2).tolist() == [*percent]
    assert rows["validation"]["none"] == 1.0
