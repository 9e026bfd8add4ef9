"""Interventions: changes of a site's output while a network runs (`Hooked.run`).

Each names a site and a position: ``Replace("dec.2", "r1", other["dec.2"])``. A position is an index among those that
the site owns (`interp.sites`), or a name such as ``a0`` or ``r1``; None or ``all`` means all that it owns. Answer
position t predicts ``r_t``. `Replace` says which values fit.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from ..checks import require_integer, require_type
from ..errors import UserError, bad_value, counted
from .sites import SitePositions, require_sites
from .tensors import as_reals, finite_matrix

Position = int | str | None


@dataclass(frozen=True, eq=False)
class Subspace:
    """Orthonormal directions (d, r) of activations at one position (d = C), or at all, concatenated (d = k * C)."""

    directions: Tensor

    def __post_init__(self) -> None:
        columns = finite_matrix("Subspace", self.directions, "columns (d, r)", (2,))  # NumPy arrays are accepted too
        object.__setattr__(self, "directions", columns)
        exact = columns.detach().double()
        if not torch.allclose(exact.mT @ exact, torch.eye(exact.shape[1]).to(exact), atol=1e-3):
            d, r = exact.shape
            raise UserError(f"Subspace: the {r} columns of size {d} are not orthonormal; expected orthonormal (d, r)")

    def __repr__(self) -> str:
        return f"Subspace(rank {self.rank} of {len(self.directions)})"

    @property
    def rank(self) -> int:
        return self.directions.shape[1]

    def interchange(self, base: Tensor, source: Tensor) -> Tensor:
        """``base + (source - base) @ directions @ directions.T``, (N, d), (N, d) -> (N, d)."""
        if base.shape[-1] != len(self.directions):
            raise UserError(f"{self}: does not fit activations of size {base.shape[-1]}")
        directions = self.directions.to(base)
        return base + (source - base) @ directions @ directions.T


class Features(nn.Module):
    """The first ``rank`` features of an invertible module. `Interchange` takes them in place of a `Subspace`.

    ``featurizer`` maps activations (N, d) to features (N, d), and its method ``inverse`` maps them back. To interchange
    all positions, it gets them concatenated. A rotation gives the same interchange as a `Subspace`.
    """

    def __init__(self, featurizer: nn.Module, rank: int) -> None:
        super().__init__()
        require_type("featurizer", featurizer, nn.Module)
        if not callable(getattr(featurizer, "inverse", None)):
            raise UserError(f"featurizer: {type(featurizer).__name__} has no method inverse; expected one")
        require_integer("rank", rank, 1)
        self.featurizer, self.rank = featurizer, rank

    def interchange(self, base: Tensor, source: Tensor) -> Tensor:
        """The base with these features taken from the source: (N, d), (N, d) -> (N, d)."""
        inverse: Any = self.featurizer.inverse
        like = next(self.featurizer.parameters(), base)
        base_features, source_features = (self.featurizer(x.to(like)) for x in (base, source))
        if self.rank > (count := base_features.shape[1]):
            raise bad_value("Features: rank", self.rank, f"at most {count}, the number of features")
        mixed = torch.cat([source_features[:, : self.rank], base_features[:, self.rank :]], dim=1)
        return inverse(mixed).to(base)


@dataclass(frozen=True)
class InterventionContext:
    """The examples of a batch, ``rows`` of ``num_examples``, and the position to change."""

    rows: slice
    num_examples: int
    position: int | None  # index among the site's own positions, None for all
    site_positions: SitePositions  # in this run; a cache has more if the decoder's input is a prefix
    answer_length: int | None  # in a whole run; None if the task is unknown

    def align(self, value: Tensor, x: Tensor) -> Tensor:
        """The part of a value that belongs to activations x, broadcastable to them; a `UserError` if none fits."""
        value = as_reals("value", value)
        if value.dim() == x.dim() + (self.position is not None):
            value = self._select_from_cache(value)
        several = "positions" if self.position is None else "heads"
        if x.dim() > 2 and x.shape[1] > 1 and value.dim() == x.dim() - 1:  # (N, C) and (k, C) look alike
            received, wanted = f"a value of shape {tuple(value.shape)} at several {several}", tuple(value.shape)
            accepted = f"{(1, *wanted)} for all examples alike, or {(wanted[0], 1, *wanted[1:])} for one value each"
            raise UserError(f"{received}: expected {accepted}")
        whole = (self.num_examples, *x.shape[1:])
        sizes = zip(reversed(value.shape), reversed(whole), strict=False)
        if value.dim() > x.dim() or any(size not in (1, wanted) for size, wanted in sizes):
            raise UserError(f"a value of shape {tuple(value.shape)} does not fit activations {whole}")
        per_example = value.dim() == x.dim() and len(value) > 1
        return (value[self.rows] if per_example else value).to(x)

    def _select_from_cache(self, x: Tensor) -> Tensor:
        """The part of a cached site x (N, T, ...) at the position to change, or at all positions of this run."""
        length, num_prompt, num_own = x.shape[1], self.site_positions.num_prompt, self.site_positions.num_own
        in_whole_run = num_own if self.site_positions.owned == "prompt" else max(num_own, self.answer_length or 0)
        own = {num_own, in_whole_run}
        one_for_all = length == 1 and self.position is None
        if not one_for_all and length not in (lengths := sorted(own | {num_prompt + k for k in own})):
            accepted = " or ".join(map(str, lengths))
            raise UserError(f"a value of {counted(length, 'position')}: expected {accepted} at this site")
        first = 0 if one_for_all or length in own else num_prompt
        if self.position is None:
            return x[:, first : first + num_own]
        if not 0 <= first + self.position < length:
            accepted = "run_with_cache(.., include_prompt=True) caches the prompt's too"
            raise UserError(f"a value of the answer's {length} positions: lacks the one to change; {accepted}")
        return x[:, first + self.position]


@dataclass(frozen=True, eq=False)
class Intervention:
    """Base class: changes the output of a site at one position, or at all positions that the site owns.

    With ``head``, counted from 0, only this head of ``attn.pattern``, ``attn.z`` or ``attn.result`` changes.
    """

    site: str
    position: Position
    head: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        require_type("site", self.site, str)
        if self.head is not None:
            require_integer("head", self.head, 0)
        if not isinstance(self.position, str | Integral | None):
            raise bad_value("position", self.position, "a number, a name such as r0, or None for all positions")
        if self.position == "all":  # the name in tables of results
            object.__setattr__(self, "position", None)

    def change(self, x: Tensor, context: InterventionContext) -> Tensor:
        """Activations (B, C) at one position, or (B, k, C) at all -> changed activations of the same shape."""
        raise NotImplementedError

    def apply(self, x: Tensor, context: InterventionContext) -> Tensor:
        """The result of `change`. With ``head``, the other heads keep their activations."""
        changed = self.change(x, context)
        if self.head is None:
            return changed
        heads = x.shape[-2] if x.dim() == 3 + (context.position is None) else 0  # (B, nh, ..) or (B, k, nh, ..)
        if self.head >= heads:
            raise bad_value("head", self.head, f"one of {heads} heads" if heads else "None at a site without heads")
        chosen = torch.arange(heads, device=x.device)[:, None] == self.head
        return torch.where(chosen, changed, x)


@dataclass(frozen=True, eq=False)
class Replace(Intervention):
    """Replace the output of a site by ``value``.

    Args:
        value: (N, C) at one position, (N, k, C) at all, or a whole cached site, from which the same position is taken.
            A value (C,) applies to every example and position, (N, 1, C) to every position, and (1, k, C) to every
            example, such as the mean ``cache[site].mean(0, keepdim=True)``.
    """

    value: Tensor

    def change(self, x: Tensor, context: InterventionContext) -> Tensor:
        return context.align(self.value, x).expand_as(x)


@dataclass(frozen=True, eq=False)
class Steer(Intervention):
    """Add ``value`` to the output of a site; shapes as in `Replace`."""

    value: Tensor

    def change(self, x: Tensor, context: InterventionContext) -> Tensor:
        return x + context.align(self.value, x)


@dataclass(frozen=True, eq=False)
class Interchange(Intervention):
    """Replace a site's output, or its part in a subspace, by the output in another run (Geiger et al., 2021).

    Without a source it only says where to intervene; `with_source` adds the activations of the source runs.
    """

    subspace: Subspace | Features | None = None
    source: Tensor | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.subspace, Tensor | np.ndarray):
            object.__setattr__(self, "subspace", Subspace(self.subspace))
        if self.subspace is not None and not isinstance(self.subspace, Features):
            require_type("Interchange: subspace", self.subspace, Subspace)  # tensors and arrays are subspaces by now

    def with_source(self, cache: Mapping[str, Tensor]) -> Self:
        """A copy with the source runs' activations at the site."""
        require_type("Interchange.with_source", cache, Mapping)
        if self.site not in cache:
            raise UserError(f"Interchange at {self.site}: the cache lacks this site; it has {', '.join(cache)}")
        return replace(self, source=cache[self.site])

    def change(self, x: Tensor, context: InterventionContext) -> Tensor:
        if self.source is None:
            raise UserError("has no source; add one with .with_source(cache)")
        source = context.align(self.source, x).expand_as(x)
        if self.subspace is None:
            return source
        return self.subspace.interchange(x.flatten(1), source.flatten(1)).view_as(x)


@dataclass(frozen=True, eq=False)
class Erase(Intervention):
    """Apply ``eraser``, for example from `leace`, to a site's output, with positions concatenated to (N, k * C)."""

    eraser: Callable[[Tensor], Tensor]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.eraser):
            raise bad_value("eraser", self.eraser, "a function of activations, such as leace(activations, concept)")

    def change(self, x: Tensor, context: InterventionContext) -> Tensor:
        erased = self.eraser(x.flatten(1))
        if not isinstance(erased, Tensor) or erased.shape != (len(x), x[0].numel()):
            returned = tuple(erased.shape) if isinstance(erased, Tensor) else f"a {type(erased).__name__}"
            raise UserError(f"the eraser returned {returned}; expected {(len(x), x[0].numel())}")
        return erased.view_as(x)


def as_interventions(
    interventions: Intervention | Sequence[Intervention], sites: Iterable[str]
) -> Sequence[Intervention]:
    """One or several interventions at these sites as a list; a `UserError` for anything else."""
    interventions = [*interventions] if isinstance(interventions, Iterable) else [interventions]
    for other in interventions:
        if not isinstance(other, Intervention):
            accepted = "an intervention, such as Replace(site, position, value)"
            raise UserError(f"interventions: received {other!r}; expected {accepted}")
    require_sites(sites, [intervention.site for intervention in interventions])
    return interventions
