"""The examples of a task as tokens, and which of them are held out of training."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from ..bits import render
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

    columns: tuple[str, ...] = ("a", "b", "answer", "prompt", "completion", "subset")
    counted = ("subset",)

    def __init__(self, task: Task, split: Split) -> None:
        task.require_enumerable("probe=dataset")
        self.task, self.split = task, split
        self.columns = (*task.operand_names, *Dataset.columns[2:])

    def rows(self) -> Iterator[dict[str, Any]]:
        examples = self.task.examples()
        subset = np.where(self.split(examples), "validation", "train")
        texts = [render(tokens, self.task.operator) for tokens in (examples.prompt, examples.completion)]
        numbers = (*examples.operands.T.tolist(), examples.answer.tolist())
        for values in zip(*numbers, *texts, subset.tolist(), strict=True):
            yield self.row(*values)

    def figure(self, rows: pd.DataFrame) -> Figure:
        """The held-out region in the (A, B) plane, as a share over further operands; along A for a single operand."""
        held_out = np.zeros(self.task.shape)
        held_out[tuple(rows[name] for name in self.task.operand_names)] = rows["subset"] == "validation"
        count, shape = int(held_out.sum()), (*self.task.shape[:2], 1)[:2]
        plane = held_out.reshape(*shape, -1).mean(axis=2).T  # (B, A), or (1, A)
        figure, ax = subplots(4.6, 4.8 if shape[1] > 1 else 1.6)
        ax.imshow(plane, vmin=0, vmax=1, origin="lower", cmap=HELD_OUT, interpolation="nearest", aspect="auto")
        ticks = np.arange(0, shape[0] + 1, max(shape[0] // 4, 1))
        ax.set(xlabel="A", xticks=ticks, xlim=(-0.5, shape[0] - 0.5))
        if shape[1] > 1:
            ax.set(ylabel="B", yticks=ticks, ylim=(-0.5, shape[1] - 0.5), box_aspect=1)
        else:
            ax.set_yticks([])
        dark = "dark" if held_out.ndim < 3 else "dark: share over other operands"
        options = ", ".join(f"{key}={value}" for key, value in vars(self.split).items() if not key.startswith("_"))
        digits = self.task.digit_noun if self.task.bits > 1 else self.task.digit_noun.removesuffix("s")
        split = type(self.split).__name__ + (options and f"({options})")
        caption = f"{count:,} of {len(rows):,} examples held out ({dark})"
        ax.set_title(f"{self.task.name}, {self.task.bits} {digits}, {split}\n{caption}", fontsize=10)
        return figure
