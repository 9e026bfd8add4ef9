"""The interface of losses, the cross-entropy of the answer's tokens, and the same plus the error of a linear head."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..bundled import load_option
from ..digits import PAD, Array
from ..errors import UserError, bad_value, unknown_name
from ..interp.causal_model import CausalModel
from ..interp.hooks import cache_outputs
from ..interp.sites import SitePositions, require_sites
from ..models.network import Network, position_axis, shift_right
from ..tasks import Examples, Task

OPTIONS = load_option("loss", "cross_entropy")
VALUE_OPTIONS = load_option("loss", "cross_entropy_and_value")


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


class CrossEntropyAndValue(CrossEntropy):
    """Cross-entropy plus the squared error of a linear head that predicts ``target`` from the activation at ``site``.

    At ``enc.*`` the head reads all prompt positions. Elsewhere it reads column t of the target at answer position t,
    which has seen neither token t nor later ones. So it reads a single number, such as ``value``, at ``<start>``: at a
    later position it could copy the number from the answer. The target of arXiv 2510.00184 is ``running_sum``, with
    one column for each token of a product.

    The head starts at zero, and is trained and resumed with the network. The final weights do not contain it.

    Args:
        site: an entry of ``network.sites()``, such as ``dec.1``.
        target: a concept of the task, or a variable of its causal model. Each column is scaled to mean 0, variance 1.
        weight: factor of the head's error.
    """

    def __init__(
        self,
        site: str,
        target: str = VALUE_OPTIONS["target"],
        weight: float = VALUE_OPTIONS["weight"],
        label_smoothing: float = VALUE_OPTIONS["label_smoothing"],
    ) -> None:
        super().__init__(label_smoothing)
        self.site, self.target, self.weight = site, target, weight

    def prepare(self, network: Network, task: Task, examples: Examples) -> Array:
        super().prepare(network, task, examples)
        targets = self.scaled_targets(task, examples)
        self.add_head(network, *meta_tokens(examples), targets.shape[1])
        return targets

    def scaled_targets(self, task: Task, examples: Examples) -> Array:
        """The columns of the target (N, k), in the order of the answer's tokens."""
        if task.min_bits is not None or task.answer_length != task.width:
            what = "operands of several lengths" if task.min_bits else "an answer with other tokens than its digits"
            raise UserError(f"model.loss: task={task.name} has {what}; expected loss=cross_entropy")
        variables = task.concepts(examples)
        if self.target not in variables:
            variables |= CausalModel(task).values(examples)
        if self.target not in variables:
            accepted = f"{' or '.join(variables)} for task={task.name}"
            raise unknown_name("model.loss.target", self.target, variables, accepted)
        values = variables[self.target].reshape(len(examples), -1).astype(float)
        if values.shape[1] == task.width:
            values = values[:, task.answer_digits]  # in plain order the lowest digit is the last token
        spread = values.std(axis=0)
        scaled: Array = (values - values.mean(axis=0)) / (spread + (spread == 0))
        return scaled

    def add_head(self, network: Network, prompt: Tensor, completion: Tensor, columns: int) -> None:
        """Make the head's parameters, and store the site's output in each forward pass of the network."""
        require_sites(sites := network.sites(), [self.site], "model.loss.site")
        with cache_outputs(sites, [self.site]) as cache:
            network(prompt, shift_right(completion))
        positions, features = _own_positions(self.site, cache[self.site], prompt, completion).shape[1:]
        self.activations: list[Tensor] = []  # the site's output, from a training step's forward to its loss
        sites[self.site].register_forward_hook(self._store_activation)
        self.reads_prompt = str(self.site).startswith("enc.")
        if self.reads_prompt:
            features *= positions
        elif columns > positions:
            accepted = f"one of at most {positions} columns at {self.site}, or a site in the encoder"
            raise bad_value("model.loss.target", f"{self.target} ({columns} columns)", accepted)
        self.head = nn.Parameter(torch.zeros(columns, features))
        self.offset = nn.Parameter(torch.zeros(columns))

    def _store_activation(self, module: nn.Module, given: Any, output: Tensor) -> None:
        if module.training:
            self.activations.append(output.movedim(position_axis(module), 1))

    def forward(self, network: Network, prompt: Tensor, completion: Tensor, targets: Tensor | None = None) -> Tensor:
        assert targets is not None
        loss = super().forward(network, prompt, completion)
        activation = _own_positions(self.site, self.activations.pop(), prompt, completion)
        if self.reads_prompt:
            predicted = activation.flatten(1) @ self.head.T
        else:
            predicted = torch.einsum("bkf,kf->bk", activation[:, : targets.shape[1]], self.head)
        return loss + self.weight * (predicted + self.offset - targets).square().mean()


def _own_positions(site: str, x: Tensor, prompt: Tensor, completion: Tensor) -> Tensor:
    """A site's output at its own positions (B, T, F)."""
    positions = SitePositions.from_lengths(site, x.shape[1], prompt.shape[1], completion.shape[1])
    return x[:, -positions.num_own :].flatten(2)
