"""The interface of losses, and the cross-entropy of the answer's tokens."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from torch import Tensor, nn
from torch.nn import functional as F

from ..bundled import load_option
from ..digits import PAD, Array
from ..models.network import Network, shift_right
from ..tasks import Examples, Task

OPTIONS = load_option("loss", "cross_entropy")


class Loss(nn.Module):
    """The loss of one replica; a pack evaluates it for all. B examples, m tokens of an answer.

    A loss gets the network itself, so it may read activations, or run the network again with interventions. It may have
    parameters, created in `begin`: the optimizer trains them along with the network's.
    """

    padded: bool = False
    """Whether the task pads completions. If so, `forward` must leave padding out."""
    compiles: bool | Literal["layers"] = True
    """Whether a pack may be compiled. False if `forward` hooks modules inside layers, since compiled code ignores that.
    ``layers`` if it hooks whole layers only: then they are compiled one by one, and a pack is never one graph.
    """

    def targets(self, task: Task, examples: Examples) -> Array | None:
        """The ``targets`` (N, k) of `forward`, a row for each example of the whole table; None for none.

        It is called before all other methods, so a loss can keep the task for them.
        """
        return None

    def begin(self, network: Network, prompt: Tensor, completion: Tensor) -> None:
        """Called once before training, with the network and a few examples on the device ``meta``, to read shapes."""

    def report(self, network: Callable[[], Network], held_out: Array) -> Mapping[str, Sequence[float]]:
        """Extra rows for ``tokens.csv`` after an epoch: name -> accuracy of each answer token.

        Args:
            network: returns the network of one replica, with its weights after this epoch.
            held_out: rows, among all examples of the task, that are not trained on.
        """
        return {}

    def forward(self, network: Network, prompt: Tensor, completion: Tensor, targets: Tensor | None = None) -> Tensor:
        """The mean loss of the examples: prompt (B, P), completion (B, m), and targets (B, k) if there are any."""
        raise NotImplementedError


class CrossEntropy(Loss):
    """The mean cross-entropy of the answer's tokens under teacher forcing.

    Args:
        label_smoothing: probability, from 0 to below 1, that is spread evenly over the vocabulary.
    """

    def __init__(self, label_smoothing: float = OPTIONS["label_smoothing"]) -> None:
        super().__init__()
        self.label_smoothing = label_smoothing

    def forward(self, network: Network, prompt: Tensor, completion: Tensor, targets: Tensor | None = None) -> Tensor:
        return self.loss_of_logits(network(prompt, shift_right(completion)), completion)

    def loss_of_logits(self, logits: Tensor, completion: Tensor) -> Tensor:
        """The loss of logits (B, m, V) against the completion (B, m)."""
        options: dict[str, Any] = {"ignore_index": PAD} if self.padded else {}
        options |= {"reduction": "none", "label_smoothing": self.label_smoothing}
        losses = F.cross_entropy(logits.flatten(0, 1), completion.flatten(), **options)
        return losses.sum() / (completion != PAD).sum() if self.padded else losses.mean()
