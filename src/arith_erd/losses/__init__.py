"""The losses. The files in ``conf/loss/`` name the classes in ``_target_``."""

from .cross_entropy_and_value import CrossEntropyAndValue
from .interchange import Interchange
from .loss import CrossEntropy, Exchange, Loss

__all__ = ["CrossEntropy", "CrossEntropyAndValue", "Exchange", "Interchange", "Loss"]
