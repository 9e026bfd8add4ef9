"""Interventions: what to do to the output of a site while a network runs (`Hooked.run`).

Each names a site and a position, and acts on the output there::

    Replace("dec.2", "r1", other["dec.2"])       by a value: a patch, a mean, a sample from another run
    Steer("dec.2", "r1", 3 * direction)          moved along a direction
    Interchange("dec.2", "r1", subspace, source) by another run's value, within a subspace
    Erase("dec.2", None, eraser)                 without a concept

A position is an index among the positions that the site owns (`interp.sites`), a name such as ``a0`` or ``r1``, or None
for all of them. Answer position t predicts ``r_t``. Values are (N, C) for one position and (N, k, C) for all. A value
without the axis of examples is used for all of them. From a whole cached site (N, k, C) an intervention takes its own
position.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from ..errors import UserError

Position = int | str | None


@dataclass(frozen=True, eq=False)
class Subspace:
    """Orthonormal directions (d, r) of an activation, of one position (d = C) or of all concatenated (d = k * C)."""

    directions: Tensor

    def __post_init__(self) -> None:
        columns = torch.as_tensor(self.directions)
        object.__setattr__(self, "directions", columns)  # of NumPy's arrays too
        exact = columns.detach().double()
        if exact.dim() != 2 or not torch.allclose(exact.mT @ exact, torch.eye(exact.shape[1]).to(exact), atol=1e-3):
            raise UserError(f"Subspace: directions {tuple(exact.shape)}: expected orthonormal columns (d, r)")

    def __repr__(self) -> str:
        return f"Subspace(rank {self.rank} of {len(self.directions)})"

    @property
    def rank(self) -> int:
        return self.directions.shape[1]

    def interchange(self, base: Tensor, source: Tensor) -> Tensor:
        """``base + (source - base) @ directions @ directions.T``, (N, d), (N, d) -> (N, d)."""
        if base.shape[-1] != len(self.directions):
            raise UserError(f"{self}: does not fit activations of {base.shape[-1]} numbers")
        directions = self.directions.to(base)
        return base + (source - base) @ directions @ directions.T


@dataclass(frozen=True)
class BatchSlice:
    """Which examples are run, ``rows`` of ``count``, and where: the position's index among its site's, None for all."""

    rows: slice
    count: int
    at: int | None = None
    before: int = 0
    """Positions of the prompt that precede the site's own."""
    own: int = 0

    def align(self, value: Tensor, x: Tensor) -> Tensor:
        """The part of a value that belongs to activations x, broadcastable to them; refused if it does not fit."""
        value = torch.as_tensor(value)  # of numpy too
        if self.at is not None and value.dim() == x.dim() + 1:
            held = value.shape[1]  # more than the site's own where a run is shorter than the one that was cached
            with_prompt = held != self.own and held >= self.before + self.own
            place = self.at + self.before * with_prompt
            if not 0 <= place < held:
                raise UserError(f"a value of {held} positions does not hold the one that is changed; give it alone")
            value = value[:, place]
        per_example = value.dim() == x.dim() and value.shape[0] == self.count
        value = value[self.rows] if per_example else value
        pairs = zip(reversed(value.shape), reversed(x.shape), strict=False)
        part = value.dim() == x.dim() and not per_example and len(value) != 1  # of the examples
        if part or value.dim() > x.dim() or any(size not in (1, wanted) for size, wanted in pairs):
            raise UserError(f"a value of shape {tuple(value.shape)} does not fit activations {tuple(x.shape)}")
        return value.to(x)


@dataclass(frozen=True, eq=False)
class Intervention:
    """A change of what a site gives, at a position or at all that the site owns."""

    site: str
    position: Position

    def change(self, x: Tensor, batch: BatchSlice) -> Tensor:
        """Activations (B, C) at one position, or (B, k, C) at all -> new ones of the same shape."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Replace(Intervention):
    """The value in place of what the site gives."""

    value: Tensor

    def change(self, x: Tensor, batch: BatchSlice) -> Tensor:
        return batch.align(self.value, x).expand_as(x)


@dataclass(frozen=True, eq=False)
class Steer(Intervention):
    """The value added to what the site gives."""

    value: Tensor

    def change(self, x: Tensor, batch: BatchSlice) -> Tensor:
        return x + batch.align(self.value, x)


@dataclass(frozen=True, eq=False)
class Interchange(Intervention):
    """An interchange intervention: the part in a subspace, or the whole, comes from another run (Geiger et al., 2021).

    Without a source it says where to intervene; `of` gives it the activations of the source runs.
    """

    subspace: Subspace | None = None
    source: Tensor | None = None

    def of(self, cache: Mapping[str, Tensor]) -> Self:
        """The same, with the source runs' activations at the site."""
        return replace(self, source=cache[self.site])

    def change(self, x: Tensor, batch: BatchSlice) -> Tensor:
        if self.source is None:
            raise UserError(f"Interchange at {self.site} has no source; give it one with .of(cache)")
        source = batch.align(self.source, x).expand_as(x)
        if self.subspace is None:
            return source
        return self.subspace.interchange(x.flatten(1), source.flatten(1)).view_as(x)


@dataclass(frozen=True, eq=False)
class Erase(Intervention):
    """The eraser's result, on the concatenated positions: (N, k * C) -> (N, k * C); see `interp.erasure`."""

    eraser: Callable[[Tensor], Tensor]

    def change(self, x: Tensor, batch: BatchSlice) -> Tensor:
        return self.eraser(x.flatten(1)).view_as(x)


def token_means(x: Tensor, tokens: Tensor, vocab_size: int) -> Tensor:
    """For mean ablation by token: means (P, V, C) of activations (N, P, C) by the token (N, P) there; 0 without any."""
    means = x.new_zeros(x.shape[1], vocab_size, x.shape[2])
    for position in range(x.shape[1]):
        for token in tokens[:, position].unique():
            means[position, token] = x[tokens[:, position] == token, position].mean(0)
    return means
