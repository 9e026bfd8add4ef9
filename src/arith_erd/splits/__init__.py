"""The splits: which examples are held out for validation. The files in ``conf/split/`` name them in ``_target_``.

A split is a function of the examples only: ``split(examples) -> (N,) bool``, True where held out. A new split needs a
file here and one in ``conf/split/``, and no line in this file: the imports below are for Python users.
"""

from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from ..tasks import Examples
from .random import RandomSplit
from .vs_t import TokenSplit
from .vs_v import ValueSplit


@runtime_checkable
class Split(Protocol):
    """Any callable with this signature; no base class is needed.

    >>> from arith_erd.tasks import Add
    >>> split, examples = ValueSplit(), Add(bits=3).examples()
    >>> held_out = split(examples)
    >>> held_out.sum(), len(held_out), isinstance(split, Split)
    (np.int64(16), 64, True)
    """

    def __call__(self, examples: Examples, /) -> npt.NDArray[np.bool_]: ...


__all__ = ["RandomSplit", "Split", "TokenSplit", "ValueSplit"]
