"""The best accuracy that a network without a component can reach (paper, table 3)."""

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from arith_erd.digits import Array
from arith_erd.plots.panels import Bars
from arith_erd.probes.probe import Probe
from arith_erd.splits import Split
from arith_erd.tasks import Task

ABLATIONS = ("none", "no_positional_encoding", "no_attention")


class Ceilings(Probe):
    """The exact largest share of examples that a network can get right after an ablation.

    Without attention the Transformer's decoder sees nothing of the prompt, so a constant answer is the best. Without
    positions a prompt is a bag of tokens, so the best is one answer for each bag. All other ablations leave the prompt
    whole. A decoder-only network can count positions by its causal mask, so its ceiling may be higher.

    A row is an ablation and a subset: ``all`` pairs, those held out or those trained on. The best answers are chosen
    for each subset.
    """

    picture = Bars(
        *("ceiling", "ablation", "subset"),
        title="exact ceilings of the sequence accuracy",
        percent=True,
        number_format=".2%",
        cell=(2, 0),
    )
    units: ClassVar[dict[str, str]] = {"ceiling": "accuracy"}
    across = ("subset",)

    task: Task
    split: Split

    def __post_init__(self) -> None:
        self.task.require_enumerable("probe=ceilings")

    def rows(self) -> Iterator[dict[str, Any]]:
        examples = self.task.examples()
        held_out = self.split(examples)
        for ablation in ABLATIONS:
            for subset, chosen in (("all", held_out | True), ("validation", held_out), ("train", ~held_out)):
                prompt, completion = examples.prompt[chosen], examples.completion[chosen]
                if len(prompt):
                    share = ceiling(prompt, completion, ablation)
                    yield {"task": self.task.name, "ablation": ablation, "subset": subset, "ceiling": share}


def ceiling(prompt: Array, completion: Array, ablation: str) -> float:
    """The largest share of examples (N, P), (N, m) that one answer for each distinct ablated prompt gets right.

    For ``0+0, 0+1, 1+0, 1+1``: a constant answer, ``01``, is right in 0.5, one answer for each bag of tokens in 1.0.
    """
    if ablation == "no_attention":
        prompt = np.zeros_like(prompt)
    elif ablation == "no_positional_encoding":
        prompt = np.sort(prompt, axis=1)
    prompt_ids, answer_ids = (np.unique(x, axis=0, return_inverse=True)[1].ravel() for x in (prompt, completion))
    counts = pd.Series(answer_ids).groupby(prompt_ids).value_counts()
    return float(counts.groupby(level=0).max().sum() / len(prompt))
