"""Cross-entropy with a linear head that has to read a number from inside the network."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..bits import Array
from ..errors import UserError, bad_value
from ..tasks import Examples, Task
from .loss import CrossEntropy


class CrossEntropyAndValue(CrossEntropy):
    """`CrossEntropy`, and the squared error of a linear head on one activation, which starts at zero.

    At ``enc.*`` the head reads all prompt positions. Elsewhere it reads column t of the target from position t of the
    answer, which has not seen token t or any later one. So ``value``, a single column, is read at ``<start>``: further
    on it could be copied from the answer. ``column_sums``, one for each token of a product, are the running sums that
    arXiv 2510.00184 regresses.

    The head is trained and resumed with the network; the final weights leave it out.

    Args:
        site: an entry of ``network.sites()``, such as ``dec.1``.
        target: one of ``task.regressable()``, each column scaled to mean 0 and variance 1; ``weight``: of its error.
    """

    def __init__(self, site: str, target: str = "value", weight: float = 1.0, label_smoothing: float = 0.0) -> None:
        super().__init__(label_smoothing)
        self.site = site
        self.target = target
        self.weight = weight

    def targets(self, task: Task, examples: Examples) -> Array:
        if task.min_bits is not None or task.answer_length != task.width:
            what = "operands of several lengths" if task.min_bits else "an answer with other tokens than its digits"
            raise UserError(f"model.loss: task={task.name} has {what}; expected model.loss=cross_entropy")
        known = task.regressable()
        if self.target not in known:
            raise bad_value("model.loss.target", self.target, f"{' or '.join(known)} for task={task.name}")
        values = known[self.target](*examples.operands.T).astype(float)
        if values.shape[1] == task.width and task.completion_order == "plain":
            values = values[:, ::-1]  # the columns of digits come least significant first, and now their tokens last
        spread = values.std(axis=0)
        scaled: Array = (values - values.mean(axis=0)) / (spread + (spread == 0))
        return scaled

    def make_parameters(self, replicas: int, activation: Sequence[int], targets: int) -> None:
        positions, features = activation
        self.everywhere = str(self.site).startswith("enc.")
        if self.everywhere:
            features *= positions
        elif targets > positions:
            accepted = f"one of at most {positions} columns at {self.site}, or a site in the encoder"
            raise bad_value("model.loss.target", f"{self.target} ({targets} columns)", accepted)
        self.head = nn.Parameter(torch.zeros(replicas, targets, features))
        self.offset = nn.Parameter(torch.zeros(replicas, targets))

    def forward(
        self, logits: Tensor, completion: Tensor, activation: Tensor | None = None, targets: Tensor | None = None
    ) -> Tensor:
        assert activation is not None
        assert targets is not None
        if self.everywhere:
            predicted = torch.einsum("rbf,rkf->rbk", activation.flatten(2), self.head)
        else:
            predicted = torch.einsum("rbkf,rkf->rbk", activation[:, :, : targets.shape[2]], self.head)
        errors = (predicted + self.offset.unsqueeze(1) - targets).square()  # (R, B, k)
        return super().forward(logits, completion) + self.weight * errors.flatten(1).mean(dim=1)
