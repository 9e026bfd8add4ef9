"""VS_t: hold out a ball in token space (paper, section 4.4)."""

import numpy as np
import numpy.typing as npt

from ..bits import to_bits
from ..errors import UserError
from ..tasks import Examples


class TokenSplit:
    """Hold out the quarter of the table nearest to a centroid in Hamming distance between prompts.

    The bits of the centroid alternate through ``a``, ``b`` and any further operands. They start with 1, least
    significant bit first: at seven bits ``1010101 + 0101010``, that is 85 + 42. The paper does not say how ties are
    broken: 3473 pairs lie within distance 5, and 623 of the 3003 pairs at distance 6 complete the 4096. The authors'
    code takes them in lexicographic order of the prompt with reversed bits. So does this class, whatever bit order the
    model sees.

    Raises:
        UserError: for examples in another base than 2, which have no bits.
    """

    def __call__(self, examples: Examples) -> npt.NDArray[np.bool_]:
        if examples.base != 2:
            raise UserError(f"task.base={examples.base}: split=vs_t needs bits; expected task.base=2")
        operand_bits = to_bits(examples.operands, examples.bits).reshape(len(examples), -1)  # (N, k * bits)
        centroid = (np.arange(operand_bits.shape[1]) + 1) % 2
        distance = (operand_bits != centroid).sum(axis=1)
        keys = (*operand_bits.T[::-1], distance)  # np.lexsort: the last key decides first
        mask = np.zeros(len(examples), dtype=bool)
        mask[np.lexsort(keys)[: len(examples) // 4]] = True
        return mask
