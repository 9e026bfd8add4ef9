"""The interface of losses, and the cross-entropy of the answer's tokens."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..bundled import load_option
from ..digits import PAD, Array
from ..models.network import Network, shift_right
from ..tasks import Examples, Task

OPTIONS = load_option("loss", "cross_entropy")


class Loss(nn.Module):
    """The loss of one replica, which a pack evaluates for each. B examples, m answer tokens.

    A loss gets the network itself, so it may read activations, or run the network again with interventions. It may have
    parameters, made in `prepare`: the optimizer trains them along with the network's.
    """

    compiles: bool | Literal["layers"] = True
    """Whether a pack may be compiled. False if `forward` hooks modules inside layers, since compiled code ignores that.
    ``layers`` if it hooks only whole layers: then these are compiled one by one, and a pack is never one graph.
    """

    def prepare(self, network: Network, task: Task, examples: Examples) -> Array | None:
        """Called once, before the other methods. Returns ``targets`` (N, k) for `forward`, or None without targets.

        Args:
            network: the network that `forward` gets, on the device ``meta``, where it has shapes but no weights.
            task: if its layout is ``padded``, `forward` must ignore padding.
            examples: all examples of the run; the targets have a row for each.
        """
        return None

    def report(self, network: Callable[[], Network], held_out: Array) -> Mapping[str, Sequence[float]]:
        """Extra rows for ``tokens.csv`` after an epoch: name -> accuracy of each answer token.

        Args:
            network: returns the network of one replica, with its weights after this epoch.
            held_out: row numbers of the held-out examples, among all examples of the task.
        """
        return {}

    def forward(self, network: Network, prompt: Tensor, completion: Tensor, targets: Tensor | None = None) -> Tensor:
        """The mean loss of the examples: prompt (B, P), completion (B, m), and targets (B, k) if there are any."""
        raise NotImplementedError


def meta_tokens(examples: Examples) -> tuple[Tensor, Tensor]:
    """Prompts (2, P) and completions (2, m) on the device ``meta``, for the network of `Loss.prepare`."""
    return torch.from_numpy(examples.prompt[:2]).to("meta"), torch.from_numpy(examples.completion[:2]).to("meta")


class CrossEntropy(Loss):
    """The mean cross-entropy of the answer's tokens under teacher forcing.

    Args:
        label_smoothing: probability, from 0 to below 1, that is spread evenly over the vocabulary.
    """

    def __init__(self, label_smoothing: float = OPTIONS["label_smoothing"]) -> None:
        super().__init__()
        self.label_smoothing, self.padded = label_smoothing, False

    def prepare(self, network: Network, task: Task, examples: Examples) -> Array | None:
        self.padded = task.layout.padded
        return None

    def forward(self, network: Network, prompt: Tensor, completion: Tensor, targets: Tensor | None = None) -> Tensor:
        return self.loss_of_logits(network(prompt, shift_right(completion)), completion)

    def loss_of_logits(self, logits: Tensor, completion: Tensor) -> Tensor:
        """The loss of logits (B, m, V) against the completion (B, m)."""
        options: dict[str, Any] = {"ignore_index": PAD} if self.padded else {}
        options |= {"reduction": "none", "label_smoothing": self.label_smoothing}
        losses = F.cross_entropy(logits.flatten(0, 1), completion.flatten(), **options)
        return losses.sum() / (completion != PAD).sum() if self.padded else losses.mean()
