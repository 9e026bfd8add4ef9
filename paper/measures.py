"""What only this paper's claims measure."""

from functools import cache

import pandas as pd

from arith_erd.paper.probes.ceilings import ceiling
from arith_erd.report.collect import RunData
from arith_erd.report.measures import Derived, Measure
from arith_erd.splits import RandomSplit, TokenSplit, ValueSplit
from arith_erd.tasks import Add, Mul

TASKS = {"add": Add, "mul": Mul}
SPLITS = {"random": RandomSplit, "vs_t": TokenSplit, "vs_v": ValueSplit}


class Ceiling(Measure):
    """The exact ceiling of an ablation, and the largest validation accuracy of each run of ``planned`` epochs or more.

    A network that exceeded the ceiling of its validation set would refute the argument.
    """

    bits: int = 7

    def value(self, data: RunData, replicas: pd.DataFrame) -> pd.Series:
        planned = replicas.index[replicas["max_epochs"] >= self.planned]  # also if they stopped at an accuracy
        return data.metrics[data.metrics["replica"].isin(planned)].groupby("replica")["val_seq_acc"].max()

    def derived(self) -> Derived:
        options = {"ablation": "none", "split": "random", **self.runs}
        return _ceilings(options["task"], options["split"], options["ablation"], self.bits)


@cache
def _ceilings(task: str, split: str, ablation: str, bits: int) -> Derived:
    examples = TASKS[task](bits=bits).examples()
    all_pairs, validation = (
        ceiling(examples.prompt[chosen], examples.completion[chosen], ablation)
        for chosen in (slice(None), SPLITS[split]()(examples))  # the best answers are chosen for each
    )
    return Derived(all_pairs, validation, f"exact ceiling; that of the validation set is {validation:.2%}")
