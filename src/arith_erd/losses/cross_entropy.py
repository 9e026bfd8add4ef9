"""The cross-entropy of the answer's tokens."""

from torch import Tensor
from torch.nn import functional as F

from ..errors import bad_value
from .loss import Loss


class CrossEntropy(Loss):
    """The mean cross-entropy of the answer's tokens under teacher forcing.

    Args:
        label_smoothing: part of the probability, from 0 to below 1, that is spread evenly over the vocabulary.
    """

    def __init__(self, label_smoothing: float = 0.0) -> None:
        super().__init__()
        if not 0 <= label_smoothing < 1:
            raise bad_value("model.loss.label_smoothing", label_smoothing, "a probability from 0 to below 1")
        self.label_smoothing = label_smoothing

    def forward(
        self, logits: Tensor, completion: Tensor, activation: Tensor | None = None, targets: Tensor | None = None
    ) -> Tensor:
        losses = F.cross_entropy(
            logits.flatten(0, 2), completion.flatten(), reduction="none", label_smoothing=self.label_smoothing
        )
        return losses.view(len(completion), -1).mean(dim=1)  # (R,)
