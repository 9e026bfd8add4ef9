"""The losses. The files in ``conf/loss/`` name the classes in ``_target_``."""

from .cross_entropy_and_value import CrossEntropyAndValue
from .interchange import InterchangeTraining
from .loss import ANSWER, BatchInterchange, CrossEntropy, Loss

__all__ = ["ANSWER", "BatchInterchange", "CrossEntropy", "CrossEntropyAndValue", "InterchangeTraining", "Loss"]
