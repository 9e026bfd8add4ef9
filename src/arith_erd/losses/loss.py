"""The interface of losses, and the cross-entropy of the answer's tokens."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..bits import PAD, Array
from ..errors import bad_value
from ..models.network import Network, position_axis
from ..tasks import Examples, Task

ANSWER = "answer"


@dataclass(frozen=True)
class BatchInterchange:
    """A further run of a batch, in which each example takes part of a site from the example before it in the batch.

    Args:
        site: a layer of the decoder, or `ANSWER` for the answer's tokens, which are taken whole.
        dims: coordinates that are taken, or with ``others`` all but those.
        by_column: example i takes them at answer position ``i % m`` only; otherwise at all answer positions.
    """

    site: str
    dims: tuple[int, ...] = ()
    by_column: bool = False
    others: bool = False

    def take(self, source: Tensor, answer: int, module: nn.Module, given: Any, output: Tensor) -> Tensor:
        """A forward hook of the site, after ``source`` (B, T, F), of the examples before, and the answer's length."""
        x = output.movedim(position_axis(module), 1)  # (B, T, F); the answer's positions are the last
        if max(self.dims) >= x.shape[2]:
            accepted = f"0 to {x.shape[2] - 1} at {self.site}"
            raise bad_value("model.loss.variables", f"dims to {max(self.dims)}", accepted)
        where = torch.zeros(x.shape[2], dtype=torch.bool, device=x.device)
        where[list(self.dims)] = True
        places = torch.arange(x.shape[1], device=x.device) - (x.shape[1] - answer)
        examples = torch.arange(x.shape[0], device=x.device)[:, None] % answer
        at = places == examples if self.by_column else (places >= 0).expand(x.shape[0], -1)  # (B, T)
        taken = at[..., None] & (~where if self.others else where)
        return torch.where(taken, source, x).movedim(1, position_axis(module))


class Loss(nn.Module):
    """The loss of each of R replicas. Tensors have the replicas' axis first; B examples, m tokens of an answer.

    A loss may read an activation of the network (`site`), and numbers that it should say something about (`targets`).
    It may have parameters, which the optimizer trains along with the network's (`make_parameters`). No replica may see
    another: row r of the result depends on row r of each tensor alone.
    """

    padded: bool = False
    """Whether completions hold unused tokens, which `forward` must leave out: that of the task's layout."""
    site: str | None = None
    """The entry of ``network.sites()`` whose activation `forward` gets; None for none."""

    def targets(self, task: Task, examples: Examples) -> Array | None:
        """Numbers (N, k) that `forward` gets for each example of the whole table; None for none.

        It is called before all other methods, so a loss can keep what they need of the task.

        Raises:
            UserError: if the task has no such numbers.
        """
        return None

    def interchanges(self) -> Sequence[BatchInterchange]:
        """Further runs of each batch, whose logits `forward` gets as ``interchanged`` (R, E, B, m, V).

        The pack of a loss that wants any is not compiled.
        """
        return ()

    def report(self, network: Callable[[], Network], held_out: Array) -> Mapping[str, Sequence[float]]:
        """Return extra rows for ``tokens.csv`` after an epoch: name -> accuracy of each answer token.

        Args:
            network: makes the network of one replica, with its weights of this epoch.
            held_out: rows, among all examples of the task, that are not trained on.
        """
        return {}

    def make_parameters(self, replicas: int, activation: Sequence[int], targets: int) -> None:
        """Make parameters, if any: (R, ...) each. Called once, before the first step, if there is a `site`.

        Args:
            replicas: R.
            activation: (T, F), the shape of one example's activation.
            targets: k.
        """

    def forward(
        self, logits: Tensor, completion: Tensor, activation: Tensor | None = None, targets: Tensor | None = None
    ) -> Tensor:
        """The losses (R,), means over the B examples.

        Args:
            logits: (R, B, m, V), under teacher forcing.
            completion: (R, B, m).
            activation: (R, B, T, F): T positions, which are the prompt's at ``enc.*`` and the answer's elsewhere.
            targets: (R, B, k).
        """
        raise NotImplementedError


class CrossEntropy(Loss):
    """The mean cross-entropy of the answer's tokens under teacher forcing.

    Args:
        label_smoothing: part of the probability, from 0 to below 1, that is spread evenly over the vocabulary.
    """

    def __init__(self, label_smoothing: float = 0.0) -> None:
        super().__init__()
        self.label_smoothing = label_smoothing

    def forward(
        self, logits: Tensor, completion: Tensor, activation: Tensor | None = None, targets: Tensor | None = None
    ) -> Tensor:
        options: dict[str, Any] = {"ignore_index": PAD} if self.padded else {}
        losses = F.cross_entropy(
            logits.flatten(0, 2),
            completion.flatten(),
            reduction="none",
            label_smoothing=self.label_smoothing,
            **options,
        ).view(len(completion), -1)
        if self.padded:
            return losses.sum(dim=1) / (completion != PAD).flatten(1).sum(dim=1)
        return losses.mean(dim=1)  # (R,)
