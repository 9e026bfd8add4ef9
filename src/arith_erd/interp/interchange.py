"""Replace the embedding at a position of a site by one from another run, whole or in a few directions.

::

    runs = ForcedRuns.of(network, pairs, ["dec.3"])
    couples = draw(pairs, "carry_only", 4, 200, rng)
    logits = runs.exchange("dec.3", couples, position=4)  # (n, m, V)

Both runs are teacher forced, each with its own right answer. Only the base's embedding (`interp.activations`) at the
site changes, at one position or at all.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..errors import UserError
from ..models.decoding import shift_right
from ..models.hook_point import position_axis
from ..models.network import Network
from .activations import Continuation, capture, positions
from .causal import CausalTask
from .pairs import Couples

BATCH = 256
Position = int | None  # None: all positions of the site together


@dataclass(frozen=True)
class Subspace:
    """Directions of an embedding, of one position (d = C) or of all of them (d = k * C).

    Args:
        directions: (d, r), orthonormal.
    """

    directions: Tensor

    @property
    def rank(self) -> int:
        return self.directions.shape[1]

    def exchange(self, base: Tensor, source: Tensor) -> Tensor:
        """``base + (source - base) @ directions @ directions.T``, (n, d), (n, d) -> (n, d)."""
        directions = self.directions.to(base)
        return base + (source - base) @ directions @ directions.T


@dataclass(frozen=True)
class ForcedRuns:
    """Teacher-forced runs of a network on some of the pairs of a task.

    Attributes:
        network: in evaluation mode.
        prompt, answer_in: of all N pairs of the task, (N, P) and (N, m).
        tokens: (N, m), the likeliest without any intervention; -1 for pairs that were not run.
        x: by site, the embeddings (M, k, C) of the pairs that were run; C is the size of a position's embedding.
        row: (N,), the index of a pair among those M; -1 if it was not run.
    """

    network: Network
    prompt: Tensor
    answer_in: Tensor
    tokens: Tensor
    x: dict[str, Tensor]
    row: Tensor

    @classmethod
    def of(
        cls, network: Network, pairs: CausalTask, sites: Sequence[str], members: np.ndarray | None = None
    ) -> "ForcedRuns":
        """Run the pairs with the indices ``members`` (M,), or all.

        Raises:
            UserError: if the network lacks one of the sites, or its embeddings are not finite.
        """
        device = next(network.parameters()).device
        prompt, completion = (
            torch.as_tensor(x, device=device) for x in (pairs.examples.prompt, pairs.examples.completion)
        )
        answer_in = shift_right(completion)
        wanted = torch.arange(len(prompt)) if members is None else torch.as_tensor(np.unique(members))
        wanted = wanted.to(device)
        tokens = torch.full_like(completion, -1)
        parts: dict[str, list[Tensor]] = {site: [] for site in sites}
        axes = {site: position_axis(module) for site, module in network.sites().items()}
        with torch.no_grad(), capture(network, sites) as outputs:
            for part in wanted.split(BATCH):
                tokens[part] = network(prompt[part], answer_in[part]).argmax(dim=-1)
                for site, output in outputs.items():
                    by_position = output.movedim(axes[site], 1)[:, -positions(site, prompt, answer_in) :]
                    parts[site].append(by_position.flatten(2).clone())  # (B, k, C)
        x = {site: torch.cat(batches) for site, batches in parts.items()}
        for site, embedding in x.items():
            if not embedding.isfinite().all():
                raise UserError(f"probe.site={site}: the embeddings contain NaN or infinity; expected finite numbers")
        row = torch.full((len(prompt),), -1, device=device)
        row[wanted] = torch.arange(len(wanted), device=device)
        return cls(network, prompt, answer_in, tokens, x, row)

    def at(self, site: str, pair: np.ndarray, position: Position = None) -> Tensor:
        """Embeddings (n, C) of pairs (n,) at one position of a site, or (n, k * C) at all."""
        x = self.x[site][self.row[torch.as_tensor(pair, device=self.row.device)]]  # (n, k, C)
        return x.flatten(1) if position is None else x[:, position]

    def continuation(self, site: str, pair: np.ndarray, until: int | None = None) -> "Patched":
        """The runs of pairs (n,), ready to be continued from other embeddings at a site.

        Args:
            until: the last position of the answer that is read; the decoder computes no later position.
        """
        index = torch.as_tensor(pair, device=self.row.device)
        length = self.answer_in.shape[1] if until is None else until + 1
        rest = Continuation(self.network, site, self.prompt[index], self.answer_in[index, :length], BATCH)
        return Patched(rest, self.x[site][self.row[index]][:, : rest.positions])

    @torch.no_grad()
    def exchange(self, site: str, couples: Couples, position: Position, subspace: Subspace | None = None) -> Tensor:
        """Logits (n, m, V) of the bases with the sources' embedding at a position of the site.

        Args:
            position: in the encoder of a prompt token, in the decoder of the answer token that it predicts; None for
                all.
            subspace: exchange only the part of the embedding in it; None for the whole embedding.
        """
        base, source = self.at(site, couples.base, position), self.at(site, couples.source, position)
        value = source if subspace is None else subspace.exchange(base, source)
        return self.continuation(site, couples.base)(value, position)


@dataclass(frozen=True)
class Patched:
    """Runs that can be continued from a replaced embedding.

    Attributes:
        rest: the forward pass from the site on.
        embedding: (n, k, C), the runs' own.
    """

    rest: Continuation
    embedding: Tensor

    def __call__(self, value: Tensor, position: Position) -> Tensor:
        """The embedding (n, C) at one position, or (n, k * C) at all -> logits (n, m, V); gradients pass."""
        if position is None:
            return self.rest(value)
        before, after = self.embedding[:, :position], self.embedding[:, position + 1 :]
        return self.rest(torch.cat([before, value[:, None].to(before), after], dim=1).flatten(1))
