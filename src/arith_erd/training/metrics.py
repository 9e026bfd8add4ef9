"""Accuracies with one entry per replica, as torchmetrics."""

import torch
from torch import Tensor
from torchmetrics import Metric


class ReplicaAccuracy(Metric):
    """Fraction of right predictions of each replica, (R,).

    A subclass defines the unit of a prediction: `right` maps token hits (R, B, m) to hits of that unit.
    """

    full_state_update = False
    higher_is_better = True
    hits: Tensor
    total: Tensor

    def __init__(self, replicas: int) -> None:
        super().__init__()
        self.add_state("hits", torch.zeros(replicas, dtype=torch.int64), dist_reduce_fx="sum")
        self.add_state("total", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def right(self, token_hits: Tensor) -> Tensor:
        raise NotImplementedError

    def update(self, predicted: Tensor, completion: Tensor) -> None:
        """Predicted tokens (R, B, m) against the right ones, (R, B, m) or (B, m) for all replicas."""
        hits = self.right(predicted == completion)
        self.hits += hits.flatten(1).sum(dim=1)
        self.total += hits[0].numel()

    def compute(self) -> Tensor:
        """Fractions (R,); torchmetrics drops the axis if R is 1."""
        return self.hits.double() / self.total


class TokenAccuracy(ReplicaAccuracy):
    """Probability of the right next token, given the right ones before it (paper, section 3.2)."""

    def right(self, token_hits: Tensor) -> Tensor:
        return token_hits


class SequenceAccuracy(ReplicaAccuracy):
    """Probability of a wholly right completion (paper, section 3.2).

    Teacher-forced predictions give the autoregressive accuracy exactly: see `arith_erd.models.decoding`.
    """

    def right(self, token_hits: Tensor) -> Tensor:
        return token_hits.all(dim=-1)
