"""How far does the answer jump when a few bits of the operands flip? (paper, appendix A)"""

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..bits import Array
from ..plots.discontinuities import draw_discontinuities
from ..tasks import Task
from .probe import Probe


def change_counts(task: Task) -> Array:
    """Counts (2 * bits + 1, width + 1): of pairs (input, flips) by flipped operand bits and changed answer bits.

    An input is the number ``x = a * 2 ** bits + b``, and flips are a number to XOR with it. Flips undo themselves, so
    a pair of inputs is looked at once, from the one whose highest flipped bit is 0, and counts twice.
    """
    answer = task.examples().answer.astype(np.uint32)  # (4 ** bits,)
    inputs = np.arange(len(answer))
    counts = np.zeros((2 * task.bits + 1, task.width + 1), dtype=np.int64)
    counts[0, 0] = len(answer)
    for highest in 2 ** np.arange(2 * task.bits):
        x = inputs[inputs & highest == 0]
        before = answer[x]
        for flips in range(highest, 2 * highest):
            changed = np.bitwise_count(before ^ answer[x ^ flips])
            counts[flips.bit_count()] += 2 * np.bincount(changed, minlength=task.width + 1)
    return counts


class Discontinuity(Probe):
    """Of all ways to flip i operand bits of all inputs, the share that changes j bits of the answer: exact.

    At three bits, ``3 + 4 = 7`` with the lowest bit of 4 flipped is ``3 + 5 = 8``: one bit in, four bits out,
    from ``1110`` to ``0001``. A row is ``percent`` for one i (``input_bits``) and j (``output_bits``); over j they
    add up to 100.
    """

    columns = ("task", "input_bits", "output_bits", "percent")
    units: ClassVar[dict[str, str]] = {"percent": "percent"}
    across = ("output_bits",)

    def __init__(self, task: Task) -> None:
        self.task = task

    def rows(self) -> Iterator[dict[str, Any]]:
        counts = change_counts(self.task)
        percent = 100 * counts / counts.sum(axis=1, keepdims=True)
        for (i, j), value in np.ndenumerate(percent):
            yield dict(zip(self.columns, (self.task.name, i, j, float(value)), strict=True))

    def figure(self, rows: pd.DataFrame) -> Figure:
        """The appendix's table as a heat map, percentages by row; a cell without a single case stays empty."""
        title = f"{self.task.name} at {self.task.bits} bits: percent of each row"
        return draw_discontinuities({title: rows})
