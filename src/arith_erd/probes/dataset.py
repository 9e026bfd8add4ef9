"""What the model really sees: every example in its own tokens, and which of them it is never trained on."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from ..bits import render
from ..splits import Split
from ..tasks import Task
from .probe import Probe


class Dataset(Probe):
    """The whole table of a task as a split cuts it.

    ``a=3, b=5`` of seven-bit addition: prompt ``1100000+1010000``, completion ``00010000``, subset ``train``.
    """

    columns = ("a", "b", "answer", "prompt", "completion", "subset")
    counted = ("subset",)

    def __init__(self, task: Task, split: Split) -> None:
        self.task = task
        self.split = split

    def rows(self) -> Iterator[dict[str, Any]]:
        examples = self.task.examples()
        subset = np.where(self.split(examples), "validation", "train")
        prompt = render(examples.prompt, self.task.operator)
        completion = render(examples.completion, self.task.operator)
        numbers = (examples.a.tolist(), examples.b.tolist(), examples.answer.tolist())
        for values in zip(*numbers, prompt, completion, subset.tolist(), strict=True):
            yield dict(zip(self.columns, values, strict=True))

    def figure(self, rows: pd.DataFrame) -> Figure:
        """The held-out region in the (A, B) plane."""
        side = 2**self.task.bits
        held_out = np.zeros((side, side))
        held_out[rows["b"], rows["a"]] = rows["subset"] == "validation"
        figure = Figure(figsize=(4.6, 4.8), dpi=130, layout="constrained")
        ax = figure.subplots()
        ax.imshow(held_out, origin="lower", cmap=ListedColormap(["#e5e7eb", "#1f5fa8"]), interpolation="nearest")
        ax.set(xlabel="A", ylabel="B")
        ticks = np.arange(0, side + 1, max(side // 4, 1))
        ax.set(xticks=ticks, yticks=ticks, xlim=(-0.5, side - 0.5), ylim=(-0.5, side - 0.5))
        ax.set_title(
            f"{self.task.name}: {int(held_out.sum()):,} of {len(rows):,} pairs\nheld out for validation (dark)",
            fontsize=10,
        )
        return figure
