"""Counterfactual pairs at one place of a network: run the bases up to there once, then go on with other activations.

::

    activations = Activations(model, causal_model, ["dec.3"], rows)
    trials = Trials.of(activations, data, "dec.3", 4, "carry")
    trials.accuracy(subspace)
"""

from collections.abc import Iterator, Sequence
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


def balanced(tokens: Tensor, expected: Tensor, unchanged: Tensor) -> float:
    """Interchange-intervention accuracy: the mean of two, on answers that should change and on those that should not.

    Without an intervention, a network that is always right scores 0.5.

    Args:
        tokens: (n, k), the network's.
        expected: (n, k), the causal model's.
        unchanged: (n, k), right answers of the bases.
    """
    right, moved = tokens == expected, expected != unchanged
    shares = [right[which].double().mean() for which in (moved, ~moved) if which.any()]
    return float(torch.stack(shares).mean())


class Activations:
    """Activations of a network on some examples of its task, teacher forced.

    Args:
        model: with the task of the causal model.
        causal_model: its ``examples`` are all there are.
        sites: to read.
        rows: of these examples, those to run; None for all.

    Attributes:
        x: by site, (M, k, ...), of the M rows that were run, in ascending order.
        tokens: (M, m), the network's own answers.

    Raises:
        UserError: if the network lacks a site, or an activation is not finite.
    """

    def __init__(
        self, model: Hooked, causal_model: CausalModel, sites: Sequence[str], rows: Array | None = None
    ) -> None:
        self.model, self.causal_model = model, causal_model
        task = causal_model.task
        rows = np.arange(task.size) if rows is None else np.unique(rows)
        self._index = np.full(task.size, -1)
        self._index[rows] = np.arange(len(rows))
        logits, self.x = model.run_with_cache(self.examples(rows), sites)
        self.tokens = logits.argmax(-1)
        for site, x in self.x.items():
            if not x.isfinite().all():
                raise UserError(f"site {site}: its activations contain NaN or infinity; expected finite numbers")

    def examples(self, rows: Array) -> Examples:
        """Operands, answers and tokens of rows (n,)."""
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
        return self.tokens[torch.as_tensor(self._index[rows], device=self.tokens.device)]

    def read_at(self, site: str, position: Position) -> list[int]:
        """The tokens of the answer that an intervention is judged by: the position's own, or all."""
        width = self.causal_model.task.width
        if position is None or site.startswith("enc.") or self.x[site].shape[1] != width:
            return list(range(width))
        return [self.model.index(site, position)]

    def digit(self, token: int) -> int:
        """Which digit of the answer its token is, counted from the lowest."""
        task = self.causal_model.task
        return token if task.completion_order == "reverse" else task.width - 1 - token

    def answer_tokens(self, digits: Array) -> Tensor:
        """Digits (n, width), the lowest first -> tokens (n, m) in the order of the answer."""
        order = self.causal_model.task.completion_order
        return torch.as_tensor(reorder(digits, order) + ZERO, device=self.tokens.device)


class BaseRuns:
    """Runs to be intervened on at one place, computed up to there once.

    Args:
        activations: of rows that include these.
        rows: (n,).
        site, position: where activations will be replaced.
    """

    def __init__(self, activations: Activations, rows: Array, site: str, position: Position) -> None:
        self.activations, self.rows, self.site, self.position = activations, rows, site, position
        self.read = activations.read_at(site, position)

    @cached_property
    def resumed(self) -> Resumed:
        """The runs from the site on. No position of the answer after the last one that is read is computed."""
        model = self.activations.model
        inputs = model.inputs(self.activations.examples(self.rows))
        if isinstance(model.network, Network):
            inputs = inputs[0], inputs[1][:, : max(self.read) + 1]
        return model.resume_from(self.site, inputs)

    @cached_property
    def base(self) -> Tensor:
        """Their own activations (n, d) at the place."""
        return self.activations.flat(self.site, self.rows, self.position)

    def batches(self, size: int) -> "list[BaseRuns]":
        """Successive parts of about that many."""
        parts = np.array_split(self.rows, max(1, len(self.rows) // size))
        return [BaseRuns(self.activations, part, self.site, self.position) for part in parts]

    @property
    def tokens(self) -> Tensor:
        """Their answers (n, len(read)) without an intervention."""
        return self.activations.answered(self.rows)[:, self.read]

    def logits(self, source: Tensor, subspace: Subspace | None = None) -> Tensor:
        """Logits (n, len(read), V) with activations (n, ...) of other runs at the place; gradients pass."""
        return self.resumed([Interchange(self.site, self.position, subspace, source)])[:, self.read]


@dataclass(frozen=True)
class Trials:
    """Counterfactual pairs at one place of a network, with the answers that a causal model predicts.

    Attributes:
        runs: of the bases.
        source: activations (n, ...) of the sources.
        expected: predicted tokens (n, k), of the k that are read.
        unchanged, of_source: right answers (n, k) of bases and sources.
    """

    runs: BaseRuns
    source: Tensor
    expected: Tensor
    unchanged: Tensor
    of_source: Tensor

    @classmethod
    def of(
        cls,
        activations: Activations,
        data: CounterfactualDataset,
        site: str,
        position: Position,
        variable: str,
        runs: BaseRuns | None = None,
    ) -> "Trials":
        """Of a dataset, as its own causal model predicts.

        Args:
            runs: of the bases, if they are there already.
        """
        runs = runs or BaseRuns(activations, data.base, site, position)
        predicted = data.expected(variable)
        answers = activations.causal_model.table["answer"]
        tokens = (activations.answer_tokens(x) for x in (predicted, answers[data.base], answers[data.source]))
        return cls(runs, activations.at(site, data.source, position), *(x[:, runs.read] for x in tokens))

    def __len__(self) -> int:
        return len(self.expected)

    def split(self, runs: Sequence[BaseRuns]) -> "Iterator[Trials]":
        """The trials of successive parts of the bases."""
        start = 0
        for part in runs:
            rows = slice(start, start := start + len(part.rows))
            yield Trials(part, self.source[rows], self.expected[rows], self.unchanged[rows], self.of_source[rows])

    @torch.no_grad()
    def tokens(self, subspace: Subspace | None) -> Tensor:
        """The likeliest tokens (n, k) with the subspace interchanged, or with the whole activation (None)."""
        return self.runs.logits(self.source, subspace).argmax(dim=-1)

    def accuracy(self, subspace: Subspace | None) -> float:
        """`balanced` accuracy of the same."""
        return balanced(self.tokens(subspace), self.expected, self.unchanged)

    def no_intervention(self) -> float:
        """`balanced` accuracy of the network's own answers."""
        return balanced(self.runs.tokens, self.expected, self.unchanged)

    def strength(self, subspace: Subspace | None) -> float:
        """Share that change, of the answers that should change to the source's own answer; NaN if there are none."""
        counted = (self.expected != self.unchanged) & (self.expected == self.of_source)
        return float((self.tokens(subspace) == self.expected)[counted].double().mean())
