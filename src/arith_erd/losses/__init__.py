"""The losses. The files in ``conf/loss/`` name the classes in ``_target_``."""

from .cross_entropy import CrossEntropy, CrossEntropyAndValue, Loss
from .interchange_training import InterchangeTraining

__all__ = ["CrossEntropy", "CrossEntropyAndValue", "InterchangeTraining", "Loss"]
