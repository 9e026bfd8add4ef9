"""Random: validation examples scattered over the whole input space (paper, section 3.2)."""

import numpy as np
import numpy.typing as npt

from ..errors import bad_value, require_integer
from ..tasks import Examples


class RandomSplit:
    """Hold out a random ``fraction`` of the table.

    Args:
        fraction: of the examples, strictly between 0 and 1. Each side keeps at least one example.
        seed: of the split. All replicas of an experiment share it.
    """

    def __init__(self, fraction: float = 0.25, seed: int = 0) -> None:
        if isinstance(fraction, bool) or not isinstance(fraction, (int, float)) or not 0 < fraction < 1:
            raise bad_value("split.fraction", fraction, "a number between 0 and 1, both excluded")
        require_integer("split.seed", seed, 0)
        self.fraction = fraction
        self.seed = seed

    def __call__(self, examples: Examples) -> npt.NDArray[np.bool_]:
        held_out = min(max(round(len(examples) * self.fraction), 1), len(examples) - 1)
        mask = np.zeros(len(examples), dtype=bool)
        mask[np.random.default_rng(self.seed).permutation(len(examples))[:held_out]] = True
        return mask
