"""The interface of losses, and the cross-entropy of the answer's tokens."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from ..bits import PAD, Array
from ..models.network import Network, shift_right
from ..tasks import Examples, Task


class Loss(nn.Module):
    """The loss of one replica; a pack evaluates it for all. B examples, m tokens of an answer.

    It gets the network itself, so it may read activations, or run it again with interventions. It may have parameters,
    which the optimizer trains along with the network's (`begin`).
    """

    padded: bool = False
    """Whether completions hold unused tokens, which `forward` must leave out: that of the task's layout."""
    compiles: bool = True
    """Whether a pack with it may be compiled: not if it changes hooks while it runs."""

    def targets(self, task: Task, examples: Examples) -> Array | None:
        """Numbers (N, k) that `forward` gets for each example of the whole table; None for none.

        It is called before all other methods, so a loss can keep what they need of the task.

        Raises:
            UserError: if the task has no such numbers.
        """
        return None

    def begin(self, network: Network, prompt: Tensor, completion: Tensor) -> None:
        """Called once: with the network that `forward` will get and a few examples, all on ``meta``, for shapes."""

    def report(self, network: Callable[[], Network], held_out: Array) -> Mapping[str, Sequence[float]]:
        """Return extra rows for ``tokens.csv`` after an epoch: name -> accuracy of each answer token.

        Args:
            network: makes the network of one replica, with its weights of this epoch.
            held_out: rows, among all examples of the task, that are not trained on.
        """
        return {}

    def forward(self, network: Network, prompt: Tensor, completion: Tensor, targets: Tensor | None = None) -> Tensor:
        """The mean over the examples, one number: prompt (B, P), completion (B, m), targets (B, k) if there are any."""
        raise NotImplementedError


class CrossEntropy(Loss):
    """The mean cross-entropy of the answer's tokens under teacher forcing.

    Args:
        label_smoothing: part of the probability, from 0 to below 1, that is spread evenly over the vocabulary.
    """

    def __init__(self, label_smoothing: float = 0.0) -> None:
        super().__init__()
        self.label_smoothing = label_smoothing

    def forward(self, network: Network, prompt: Tensor, completion: Tensor, targets: Tensor | None = None) -> Tensor:
        return self.of_logits(network(prompt, shift_right(completion)), completion)

    def of_logits(self, logits: Tensor, completion: Tensor) -> Tensor:
        """The loss of logits (B, m, V) after the right tokens."""
        options: dict[str, Any] = {"ignore_index": PAD} if self.padded else {}
        options |= {"reduction": "none", "label_smoothing": self.label_smoothing}
        losses = F.cross_entropy(logits.flatten(0, 1), completion.flatten(), **options)
        return losses.sum() / (completion != PAD).sum() if self.padded else losses.mean()
