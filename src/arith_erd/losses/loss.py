"""The interface of losses."""

from collections.abc import Sequence

from torch import Tensor, nn

from ..bits import Array
from ..tasks import Examples, Task


class Loss(nn.Module):
    """The loss of each of R replicas. Tensors have the replicas' axis first; B examples, m tokens of an answer.

    A loss may read an activation of the network (`site`), and numbers that it should say something about (`targets`).
    It may have parameters, which the optimizer trains along with the network's (`begin`). No replica may see another:
    row r of the result depends on row r of each tensor alone.
    """

    site: str | None = None
    """The entry of ``network.sites()`` whose activation `forward` gets; None for none."""

    def targets(self, task: Task, examples: Examples) -> Array | None:
        """Numbers (N, k) that `forward` gets for each example of the whole table; None for none.

        Raises:
            UserError: if the task has no such numbers.
        """
        return None

    def begin(self, replicas: int, activation: Sequence[int], targets: int) -> None:
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
