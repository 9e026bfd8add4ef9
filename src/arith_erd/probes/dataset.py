"""The examples of a task as tokens, and which of them are held out of training."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from ..digits import render
from ..plots.style import BLUE, subplots
from ..splits import Split
from ..tasks import Task
from .probe import Probe

HELD_OUT = LinearSegmentedColormap.from_list("held out", ["#e5e7eb", BLUE])


class Dataset(Probe):
    """The whole table of a task, with the subset of each example.

    ``a=3, b=5`` of seven-bit addition: prompt ``1100000+1010000``, completion ``00010000``, subset ``train``. The first
    columns are the task's operands.
    """

    task: Task
    split: Split

    def __post_init__(self) -> None:
        self.task.require_enumerable("probe=dataset")
        self.columns = (*self.task.operand_names, "answer", "prompt", "completion", "subset")

    def rows(self) -> Iterator[dict[str, Any]]:
        examples = self.task.examples()
        subset = np.where(self.split(examples), "validation", "train")
        texts = [render(tokens, self.task.operator) for tokens in (examples.prompt, examples.completion)]
        numbers = (*examples.operands.T.tolist(), examples.answer.tolist())
        for values in zip(*numbers, *texts, subset.tolist(), strict=True):
            yield dict(zip(self.columns, values, strict=True))

    def table(self, rows: pd.DataFrame) -> pd.DataFrame:
        firsts = {f"first {column}": (column, "first") for column in ("prompt", "completion")}
        table = rows.groupby("subset", sort=False).agg(cases=("subset", "size"), **firsts).reset_index()
        return table.assign(cases=table["cases"].map("{:,}".format))

    def figure(self, rows: pd.DataFrame) -> Figure:
        """The held-out region in the (A, B) plane, as a share over further operands; along A for a single operand."""
        names = self.task.operand_names
        held_out = rows["subset"] == "validation"
        share = held_out.groupby([rows[name] for name in names[:2]]).mean()
        plane = share.unstack(0) if len(names) > 1 else share.to_frame().T  # (B, A), or (1, A)
        figure, ax = subplots(4.6, 4.8 if len(plane) > 1 else 1.6)
        ax.imshow(plane, vmin=0, vmax=1, origin="lower", cmap=HELD_OUT, interpolation="nearest", aspect="auto")
        ax.set(xlabel="A", ylabel="B" if len(plane) > 1 else "")
        if len(plane) == 1:
            ax.set_yticks([])
        dark = "dark" if len(names) < 3 else "dark: share over other operands"
        options = ", ".join(f"{key}={value}" for key, value in vars(self.split).items() if not key.startswith("_"))
        split = type(self.split).__name__ + (options and f"({options})")
        caption = f"{held_out.sum():,} of {len(rows):,} examples held out ({dark})"
        ax.set_title(f"{self.task.name}, {self.task.bits} {self.task.digit_noun}, {split}\n{caption}", fontsize=10)
        return figure
