"""Weights over time: the epochs after which a run keeps its weights (``checkpoint.keep``)."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import bad_value

ACCEPTED = "none, all, log, or every:K with K from 1, as every:10"
A_DECADE = 8  # epochs that ``log`` keeps between 10 and 100, between 100 and 1000, and so on


@dataclass(frozen=True)
class Keep:
    """The epochs that are kept: ``epoch in keep``.

    >>> [list(Keep.read("keep", text).until(10)) for text in ("none", "every:4", "log")]
    [[], [4, 8], [1, 2, 3, 4, 6, 7, 10]]
    """

    rule: str
    """``none``, ``all``, ``log`` or ``every``."""
    step: int = 1
    """Of ``every``."""

    @classmethod
    def read(cls, key: str, value: object) -> "Keep":
        """The rule that a text names.

        Raises:
            UserError: for any other text, naming the key.
        """
        if value in ("none", "all", "log"):
            return cls(str(value))
        if isinstance(value, str) and (match := re.fullmatch(r"every:([1-9]\d{0,8})", value, re.ASCII)):
            return cls("every", int(match[1]))
        raise bad_value(key, value, ACCEPTED)

    def __contains__(self, epoch: object) -> bool:
        """Epochs count from 1."""
        if self.rule == "none" or not isinstance(epoch, int) or epoch < 1:
            return False
        if self.rule == "log":
            return epoch == round(10 ** (round(A_DECADE * math.log10(epoch)) / A_DECADE))
        return epoch % self.step == 0

    def until(self, last: int) -> Iterator[int]:
        """The epochs that a run of ``last`` epochs keeps, ascending."""
        return (epoch for epoch in range(1, last + 1) if epoch in self)


NOTHING = Keep("none")
