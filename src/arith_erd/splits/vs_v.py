"""VS_v: hold out a box in value space (paper, section 4.4)."""

import numpy as np
import numpy.typing as npt

from ..tasks import Examples


class ValueSplit:
    """Hold out the examples whose operands all lie in the middle half of their range.

    For two operands that is the central square of the (A, B) plane, a quarter of the table: at seven bits
    ``32 <= A, B < 96``. For k operands it is 1 / 2^k of the table.
    """

    def __call__(self, examples: Examples) -> npt.NDArray[np.bool_]:
        low, high = examples.limit // 4, 3 * examples.limit // 4
        inside = (low <= examples.operands) & (examples.operands < high)  # (N, k)
        return np.logical_and.reduce(inside, axis=1)
