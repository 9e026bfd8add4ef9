"""How far does the answer jump when a few bits of the operands flip? (paper, appendix A)"""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ..bits import Array, to_digits
from ..plots.style import INK, headline, heat_map, subplots
from ..tasks import Task
from .probe import Probe

BLOCK = 32  # examples compared with all others at once
COLUMNS: Mapping[str, type] = dict.fromkeys(("input_bits", "output_bits", "percent"), float)


def change_counts(task: Task) -> Array:
    """Count ordered pairs of examples by differing operand digits and answer digits: (k * bits + 1, width + 1).

    The product of the one-hot codes of two examples is the number of digits in which they agree.
    """
    examples = task.examples()
    operands = task.operand_digits(examples.operands)  # (N, k * bits)
    answer = to_digits(examples.answer, task.width, task.base)  # (N, width)
    inputs, outputs = operands.shape[1] + 1, task.width + 1
    one_hot = (np.hstack([operands, answer])[..., None] == np.arange(task.base)).astype(np.float32)
    weighted = one_hot.copy()
    weighted[:, : inputs - 1] *= outputs
    one_hot, weighted = (x.reshape(len(examples), -1) for x in (one_hot, weighted))
    counts = np.zeros(inputs * outputs, dtype=np.int64)
    for block in np.array_split(weighted, -(-len(examples) // BLOCK)):
        agreeing = (block @ one_hot.T).ravel().astype(np.int64)  # operand digits * outputs + answer digits
        counts += np.bincount(agreeing, minlength=counts.size)
    return counts[::-1].reshape(inputs, outputs).copy()


class Discontinuity(Probe):
    """How often flipping i operand bits changes j bits of the answer: exact shares over all inputs and all flips.

    At three bits, ``3 + 4 = 7`` with the lowest bit of 4 flipped is ``3 + 5 = 8``: one bit in, four bits out, from
    ``1110`` to ``0001``. A row is ``percent`` for one i (``input_bits``) and j (``output_bits``), which sums to 100
    over j. In other bases each digit changes to any other digit.
    """

    columns = ("task", "input_bits", "output_bits", "percent")
    units: ClassVar[dict[str, str]] = {"percent": "percent"}
    across = ("output_bits",)

    def __init__(self, task: Task) -> None:
        task.require_enumerable("probe=discontinuity")
        self.task = task

    def rows(self) -> Iterator[dict[str, Any]]:
        counts = change_counts(self.task)
        percent = 100 * counts / counts.sum(axis=1, keepdims=True)
        for (i, j), value in np.ndenumerate(percent):
            yield self.row(self.task.name, i, j, float(value))

    def figure(self, rows: pd.DataFrame) -> Figure:
        title = f"{self.task.name} at {self.task.bits} {self.task.digit_noun}: percent of each row"
        return draw_discontinuities({title: rows}, digits=self.task.digit_noun)


def draw_discontinuities(tasks: Mapping[str, pd.DataFrame], published: str = "", digits: str = "bits") -> Figure:
    """Draw a heat map of percentages for each task; a cell without cases stays empty.

    ``published`` is the title of the panel in which to frame the one cell that the paper's text prints.
    """
    tables = {
        title: rows.pivot_table("percent", "input_bits", "output_bits", dropna=False).rename(index=int, columns=int)
        for title, rows in tasks.items()
    }
    size = 8 if len(tables) == 1 else 6.5
    widths = [table.shape[1] for table in tables.values()]
    height = max(len(table) for table in tables.values())
    shape = 1.2 + size / 18 * sum(widths), 1.3 + size / 25 * height
    figure, (axes,) = subplots(*shape, 1, len(tables), width_ratios=widths, squeeze=False)
    for ax, (title, table) in zip(axes, tables.items(), strict=True):
        heat_map(ax, table.where(table > 0), Normalize(0, 50), numbers=".1f")
        ax.set_xlabel(f"changed {digits} of the answer")
        headline(ax, title)
        if title == published:
            ax.add_patch(Rectangle((2.5, 1.5), 1, 1, fill=False, edgecolor=INK, linewidth=1.4))
    axes[0].set_ylabel(f"{'flipped' if digits == 'bits' else 'changed'} {digits} of the operands")
    return figure
