"""The losses. The files in ``conf/loss/`` name the classes in ``_target_``."""

from .cross_entropy_and_value import CrossEntropyAndValue
from .interchange_training import InterchangeTraining
from .loss import CrossEntropy, Loss

__all__ = ["CrossEntropy", "CrossEntropyAndValue", "InterchangeTraining", "Loss"]
