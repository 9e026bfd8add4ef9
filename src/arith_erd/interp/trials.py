"""Counterfactual pairs at one place of a network: run the bases up to there once, then go on with other activations."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ..bits import ZERO, Array, reorder
from ..errors import UserError
from ..models.network import Network
from ..tasks import Examples
from .causal_model import CausalModel
from .counterfactuals import CounterfactualDataset
from .hooked import Hooked, Resumed
from .interventions import Interchange, Position, Subspace

KEPT = 16  # resumable runs, of a few hundred examples each


def balanced(tokens: Tensor, expected: Tensor, unchanged: Tensor) -> float:
    """Interchange-intervention accuracy: the mean of two, on answers that should change and on those that should not.

    Without an intervention, a network that is always right scores 0.5. All arguments are tokens (n, k): the network's,
    the causal model's, and the right answers of the bases.
    """
    right, moved = tokens == expected, expected != unchanged
    shares = [right[which].double().mean() for which in (moved, ~moved) if which.any()]
    return float(torch.stack(shares).mean())


class Activations:
    """Activations of a network on some rows of ``causal_model.examples``, teacher forced.

    Attributes:
        x: by site, (M, k, ...), of the M rows in ascending order.

    Raises:
        UserError: if the network lacks a site, or an activation is not finite.
    """

    def __init__(self, model: Hooked, causal_model: CausalModel, sites: Sequence[str], rows: Array) -> None:
        self.model, self.causal_model = model, causal_model
        rows = np.unique(rows)
        self._index = np.full(causal_model.task.size, -1)
        self._index[rows] = np.arange(len(rows))
        self._resumed: OrderedDict[object, Resumed] = OrderedDict()
        logits, self.x = model.run_with_cache(self.examples(rows), sites)
        self._tokens = logits.argmax(-1)
        for site, x in self.x.items():
            if not x.isfinite().all():
                raise UserError(f"site {site}: its activations contain NaN or infinity; expected finite numbers")

    def examples(self, rows: Array) -> Examples:
        return self.causal_model.task.examples(*self.causal_model.examples.operands[rows].T)

    def at(self, site: str, rows: Array, position: Position = None) -> Tensor:
        """Activations of rows (n,): (n, ...) at one position of a site, or (n, k, ...) at all."""
        x = self.x[site][torch.as_tensor(self._index[rows], device=self.x[site].device)]
        if position is None:
            return x
        at = self.model.index(site, position)
        if not 0 <= at < x.shape[1]:
            raise UserError(f"position {position}: {site} has the positions 0 to {x.shape[1] - 1}")
        return x[:, at]

    def flat(self, site: str, rows: Array, position: Position = None) -> Tensor:
        """The same as vectors (n, d), all positions concatenated."""
        return self.at(site, rows, position).flatten(1)

    def answered(self, rows: Array) -> Tensor:
        """The network's own answers (n, m) to rows (n,)."""
        return self._tokens[torch.as_tensor(self._index[rows], device=self._tokens.device)]

    def right(self, digits: Array) -> Tensor:
        """Digits (n, width), the lowest first -> tokens (n, m) in the order of the answer."""
        tokens = reorder(digits, self.causal_model.task.completion_order) + ZERO
        return torch.as_tensor(tokens.copy(), device=self._tokens.device)

    def read_at(self, site: str, position: Position) -> list[int]:
        """The tokens of the answer that an intervention is judged by: the position's own, or all.

        All of them in the encoder, and at any site that does not have the positions of the answer.
        """
        width = self.causal_model.task.width
        if position is None or site.startswith("enc.") or self.x[site].shape[1] != width:
            return list(range(width))
        return [self.model.index(site, position)]

    def digit(self, token: int) -> int:
        """Which digit of the answer a token is, counted from the lowest; and the token of a digit."""
        task = self.causal_model.task
        return token if task.completion_order == "reverse" else task.width - 1 - token

    def resume(self, site: str, rows: Array, length: int) -> Resumed:
        """The runs of rows (n,) from a site on, over the first positions of the answer. The latest ones are kept."""
        key = site, rows.tobytes(), length
        if key not in self._resumed:
            inputs = self.model.inputs(self.examples(rows))
            if isinstance(self.model.network, Network):
                inputs = inputs[0], inputs[1][:, :length]
            self._resumed[key] = self.model.resume_from(site, inputs)
            if len(self._resumed) > KEPT:
                self._resumed.popitem(last=False)
        self._resumed.move_to_end(key)
        return self._resumed[key]


@dataclass(frozen=True)
class Trials:
    """n counterfactual pairs at one place of a network, and the answers that the interchange of a variable predicts."""

    activations: Activations
    data: CounterfactualDataset
    site: str
    position: Position
    variable: str

    def __len__(self) -> int:
        return len(self.data)

    @cached_property
    def read(self) -> list[int]:
        """The k tokens of the answer that count."""
        return self.activations.read_at(self.site, self.position)

    @cached_property
    def source(self) -> Tensor:
        """Activations (n, ...) of the sources."""
        return self.activations.at(self.site, self.data.source, self.position)

    @cached_property
    def expected(self) -> Tensor:
        """Predicted tokens (n, k)."""
        return self.activations.right(self.data.expected(self.variable))[:, self.read]

    @cached_property
    def unchanged(self) -> Tensor:
        """Right answers (n, k) of the bases."""
        return self.activations.right(self.data.model.table["answer"][self.data.base])[:, self.read]

    def part(self, rows: slice) -> "Trials":
        return Trials(self.activations, self.data.part(rows), self.site, self.position, self.variable)

    def batches(self, size: int) -> "list[Trials]":
        parts = np.array_split(np.arange(len(self)), max(1, len(self) // size))
        return [self.part(slice(part[0], part[-1] + 1)) for part in parts]

    def logits(self, subspace: Subspace | None) -> Tensor:
        """Logits (n, k, V) with the subspace interchanged, or the whole activation (None); gradients pass."""
        resumed = self.activations.resume(self.site, self.data.base, max(self.read) + 1)
        return resumed([Interchange(self.site, self.position, subspace, self.source)])[:, self.read]

    @torch.no_grad()
    def tokens(self, subspace: Subspace | None) -> Tensor:
        return self.logits(subspace).argmax(dim=-1)

    def accuracy(self, subspace: Subspace | None) -> float:
        """`balanced` accuracy of the same."""
        return balanced(self.tokens(subspace), self.expected, self.unchanged)

    def no_intervention(self) -> float:
        return balanced(self.activations.answered(self.data.base)[:, self.read], self.expected, self.unchanged)

    def strength(self, subspace: Subspace | None) -> float:
        """Share that change, of the answers that should change to the source's own answer; NaN if there are none."""
        of_source = self.activations.right(self.data.model.table["answer"][self.data.source])[:, self.read]
        counted = (self.expected != self.unchanged) & (self.expected == of_source)
        return float((self.tokens(subspace) == self.expected)[counted].double().mean())
