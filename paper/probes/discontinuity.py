"""How far does the answer jump when a few bits of the operands flip? (paper, appendix A)"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from arith_erd.digits import Array, to_digits
from arith_erd.plots.panels import HeatMaps
from arith_erd.probes.probe import Probe
from arith_erd.tasks import Task

BLOCK = 32  # examples compared with all later ones at once


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
    for first in range(0, len(examples), BLOCK):
        # operand digits * outputs + answer digits, with each pair of examples in different blocks once
        agreeing = (weighted[first : first + BLOCK] @ one_hot[first:].T).astype(np.int64)
        for part, times in ((agreeing[:, :BLOCK], 1), (agreeing[:, BLOCK:], 2)):
            counts += times * np.bincount(part.ravel(), minlength=counts.size)
    return counts[::-1].reshape(inputs, outputs).copy()


class Discontinuity(Probe):
    """How often flipping i operand bits changes j bits of the answer: exact shares over all inputs and all flips.

    At three bits, ``3 + 4 = 7`` with the lowest bit of 4 flipped is ``3 + 5 = 8``: one bit in, four bits out, from
    ``1110`` to ``0001``. A row is ``percent`` for one i (``input_bits``) and j (``output_bits``), which sums to 100
    over j. In other bases each digit changes to any other digit.
    """

    picture = HeatMaps(
        *("percent", "output_bits", "input_bits", "task"),
        title="how far the answer jumps, percent of each row",
        xlabel="changed bits of the answer",
        ylabel="flipped bits of the operands",
        number_format=".1f",
        color_range=(0, 50),
    )
    units: ClassVar[dict[str, str]] = {"percent": "percent"}

    task: Task

    def __post_init__(self) -> None:
        self.task.require_enumerable("probe=discontinuity")
        noun = self.task.digit_noun
        axes = f"changed {noun} of the answer", f"flipped {noun} of the operands"
        self.picture = replace(self.picture, xlabel=axes[0], ylabel=axes[1])

    def rows(self) -> Iterator[dict[str, Any]]:
        counts = change_counts(self.task)
        for (i, j), count in np.ndenumerate(counts):
            if not (total := counts[i].sum()):  # no operands differ in so many digits
                continue
            value = 100 * count / total
            yield {"task": self.task.name, "input_bits": i, "output_bits": j, "percent": float(value)}

    def shown(self, rows: pd.DataFrame) -> pd.DataFrame:
        return without_empty_cells(rows)


def without_empty_cells(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows, without the percentage where there is no case: that cell stays empty."""
    return rows.assign(percent=rows["percent"].where(rows["percent"] > 0))
