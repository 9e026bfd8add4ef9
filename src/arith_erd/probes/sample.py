"""Samples of a task's table."""

import numpy as np

from ..tasks import Examples, Task


def sample_pairs(task: Task, count: int | None, seed: int) -> Examples:
    """``count`` different examples in random order, or the whole table if it is None or larger than that."""
    table = task.examples()
    if count is None or count >= len(table):
        return table
    chosen = np.random.default_rng(seed).permutation(len(table))[:count]
    return task.examples(*table.operands[chosen].T)
